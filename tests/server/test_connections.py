"""Connections over raw sockets: what is too large or too slow gets a refusal that arrives; old and terse clients an answer."""

import asyncio
import contextlib
import gzip
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from radixserve.config import ServerConfig
from radixserve.server.app import make_app
from radixserve.server.http import connection
from radixserve.server.http.connection import MAX_HEAD_BYTES
from radixserve.server.lifecycle import _Http
from tests.server.fake_engine import FakeClient, make_service

GET = b"GET /version HTTP/1.1\r\nHost: localhost\r\n"
COMPLETION = b'{"prompt": "x", "max_tokens": 5}'
WAIT_S = 20
"""Longest wait for what must come."""

Say = Callable[..., Awaitable[bytes]]


@contextlib.asynccontextmanager
async def serving(model: Path, client: FakeClient | None = None, **settings: Any) -> AsyncIterator[int]:
    """A server in this process; its port."""
    config = ServerConfig(**settings)
    http = _Http(make_app(make_service(model, client or FakeClient(), config)), config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(http.serve(sockets=[listener]))
        await http.ready.wait()
        try:
            yield listener.getsockname()[1]
        finally:
            http.should_exit = http.force_exit = True
            await task


async def say(port: int, *parts: bytes, half_close: bool = False) -> bytes:
    """All that comes back, to the end of the connection. Raises ConnectionError for a reset."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = asyncio.create_task(reader.read())
    with contextlib.suppress(ConnectionError):  # refused: what counts is the reply
        for part in parts:
            writer.write(part)
            await writer.drain()
        if half_close:
            writer.write_eof()
    try:
        return await asyncio.wait_for(answer, WAIT_S)
    finally:
        writer.close()


def ask(model: Path, *parts: bytes, half_close: bool = False, client: FakeClient | None = None, **settings: Any) -> bytes:
    async def run() -> bytes:
        async with serving(model, client, **settings) as port:
            return await say(port, *parts, half_close=half_close)

    return uvloop.run(run())


def status(answer: bytes) -> int:
    return int(answer.split()[1])


def post(path: str, body: bytes, *headers: str, version: str = "1.1") -> bytes:
    lines = [f"POST {path} HTTP/{version}", "Host: localhost", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def filler(size: int) -> Iterable[bytes]:
    return [b"x" * 65_536] * (size // 65_536)


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        ([GET, b"A: ", *filler(1_000_000), b"\r\n\r\n"], 431),
        ([GET, b"A: ", *filler(8_000_000)], 431),
        ([GET, b"A", *filler(1_000_000)], 431),
        ([GET, *[b"a:b\r\n" * 10_000] * 300, b"\r\n"], 431),
        ([GET, b"a:b\r\n" * (MAX_HEAD_BYTES // 5), b"\r\n"], 431),
        ([b"GET /", *filler(8_000_000), b" HTTP/1.1\r\n\r\n"], 414),
        ([b"GET /" + b"x" * MAX_HEAD_BYTES + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"], 414),
        ([b"nonsense\r\n\r\n", *filler(1_000_000)], 400),
    ],
)
def test_a_head_that_is_too_large_gets_a_reply(tiny_model_dir: Path, parts: list[bytes], wanted: int) -> None:
    answer = ask(tiny_model_dir, *parts)
    assert status(answer) == wanted
    assert b"connection: close" in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


def test_a_head_within_the_bound_is_read(tiny_model_dir: Path) -> None:
    assert status(ask(tiny_model_dir, GET, b"Connection: close\r\na: ", b"x" * (MAX_HEAD_BYTES - 1000), b"\r\n\r\n")) == 200


def test_trailers_and_chunk_extensions_are_bounded_too(tiny_model_dir: Path) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    ask(tiny_model_dir, head, b"1;", *filler(4_000_000))
    ask(tiny_model_dir, head, b"1\r\n{\r\n0\r\nA: ", *filler(4_000_000))  # both end, whatever they answer


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_gets_a_reply(tiny_model_dir: Path, chunked: bool) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    if chunked:
        parts = [head + b"Transfer-Encoding: chunked\r\n\r\n", *(b"10000\r\n" + part + b"\r\n" for part in filler(17_000_000))]
    else:
        parts = [head + b"Content-Length: 17000000\r\n\r\n", *filler(17_000_000)]
    answer = ask(tiny_model_dir, *parts)
    assert status(answer) == 413
    assert b"16777216 are read" in answer


@pytest.mark.parametrize("part", [b"", b"GET /ver", GET, GET + b"a: b", b"\r\n"], ids=str)
def test_half_a_head_does_not_stay_for_ever(tiny_model_dir: Path, part: bytes) -> None:
    answer = ask(tiny_model_dir, part, header_timeout_s=0.05)
    assert answer == b"" if not part.strip() else status(answer) == 408


def test_half_a_head_after_a_request_does_not_stay_either(tiny_model_dir: Path) -> None:
    answer = ask(tiny_model_dir, GET + b"\r\n" + GET, header_timeout_s=0.05)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 408" in answer


def test_half_a_body_does_not_stay_for_ever(tiny_model_dir: Path) -> None:
    answer = ask(tiny_model_dir, post("/v1/completions", COMPLETION)[:-5], body_timeout_s=0.05)
    assert status(answer) == 408


def test_one_connection_too_many_is_told_so(tiny_model_dir: Path) -> None:
    async def run() -> None:
        async with serving(tiny_model_dir, max_connections=2) as port:
            others = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            assert status(await say(port)) == 503
            others[0][1].close()
            await others[0][1].wait_closed()
            while status(answer := await say(port, GET + b"Connection: close\r\n\r\n")) == 503:
                await asyncio.sleep(0)
            assert status(answer) == 200
            others[1][1].close()

    uvloop.run(run())


def test_http_1_0_streams_end_with_the_connection(tiny_model_dir: Path) -> None:
    body = COMPLETION[:-1] + b', "stream": true}'
    head, _, stream = ask(tiny_model_dir, post("/v1/completions", body, version="1.0")).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert stream.startswith(b"data: ")
    assert stream.endswith(b"data: [DONE]\n\n")


def test_http_1_0_replies_keep_their_length(tiny_model_dir: Path) -> None:
    head, _, reply = ask(tiny_model_dir, post("/v1/completions", COMPLETION, version="1.0")).partition(b"\r\n\r\n")
    assert f"content-length: {len(reply)}".encode() in head
    assert json.loads(reply)["choices"][0]["text"] == "aaaaa"


class Held(FakeClient):
    """Answers when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on, self.left = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def generate(self, requests: Any) -> Any:
        self.begun.set()
        try:
            await self.go_on.wait()
            async for event in super().generate(requests):
                yield event
        finally:
            self.left.set()


@pytest.mark.parametrize("stream", [b"false", b"true"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_client_that_half_closes_gets_its_answer(tiny_model_dir: Path, stream: bytes, version: str) -> None:
    async def run() -> None:
        client = Held()
        async with serving(tiny_model_dir, client) as port:
            body = COMPLETION[:-1] + b', "stream": ' + stream + b"}"
            answer = asyncio.create_task(say(port, post("/v1/completions", body, version=version), half_close=True))
            await client.begun.wait()
            await asyncio.sleep(0.1)  # long enough for the probes that would find it gone
            assert not client.left.is_set()
            client.go_on.set()
            assert b'"text":"a' in await answer

    uvloop.run(run())


def test_a_client_that_leaves_is_still_noticed(tiny_model_dir: Path) -> None:
    async def run() -> None:
        client = Held()
        async with serving(tiny_model_dir, client) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(post("/v1/completions", COMPLETION))
            await client.begun.wait()
            writer.close()
            await asyncio.wait_for(client.left.wait(), WAIT_S)

    uvloop.run(run())


def zipped(size: int) -> bytes:
    return gzip.compress(b'{"prompt": "x"' + b" " * size + b"}")


@pytest.mark.parametrize(
    ("body", "headers", "wanted"),
    [
        (gzip.compress(COMPLETION), ["Content-Encoding: gzip"], 200),
        (gzip.compress(COMPLETION[:10]) + gzip.compress(COMPLETION[10:]), ["Content-Encoding: GZIP"], 200),
        (zipped(20_000_000), ["Content-Encoding: gzip"], 413),
        (gzip.compress(COMPLETION)[:-9], ["Content-Encoding: gzip"], 400),
        (COMPLETION, ["Content-Encoding: gzip"], 400),
        (COMPLETION, ["Content-Encoding: br"], 415),
        (COMPLETION, ["Content-Encoding: identity"], 200),
        (b"\xef\xbb\xbf" + COMPLETION, [], 200),
        (gzip.compress(b"\xef\xbb\xbf" + COMPLETION), ["Content-Encoding: gzip"], 200),
    ],
)
def test_zipped_bodies_and_byte_order_marks(tiny_model_dir: Path, body: bytes, headers: list[str], wanted: int) -> None:
    answer = ask(tiny_model_dir, post("/v1/completions", body, *headers))
    assert status(answer) == wanted, answer


def test_the_bound_on_a_head_is_a_bound_on_memory(tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the parser was given of a head without end."""
    fed = 0
    real = connection.HttpToolsProtocol.data_received

    def count(self: Any, data: bytes) -> None:
        nonlocal fed
        fed += len(data)
        real(self, data)

    monkeypatch.setattr(connection.HttpToolsProtocol, "data_received", count)
    assert status(ask(tiny_model_dir, GET, b"A: ", *filler(32_000_000))) == 431
    assert fed < 1_000_000
