"""Clients that leave: queued, between chunks of their prompt, decoding, with four choices; streaming and not."""

import socket
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from tests.server.running import RunningServer, running, wait_until
from tests.tiny_models import make_tiny_model

LONG_ANSWER = {"prompt": "Once", "max_tokens": 15_000, "temperature": 0, "ignore_eos": True}
LONG_PROMPT = {"prompt": "Once upon a time " * 850, "max_tokens": 1_000, "ignore_eos": True}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Four requests run at once; a prompt is computed 32 tokens a step."""
    tmp_path = tmp_path_factory.mktemp("disconnects")
    model = make_tiny_model(tmp_path / "model", max_position_embeddings=16_384)
    with running(tmp_path, model, num_slots=80_000, max_running=4, max_batch_tokens=32) as this:
        yield this


class Client:
    """A client that can leave at any time."""

    def __init__(self, server: RunningServer, body: dict[str, Any], receive_buffer: int | None = None) -> None:
        url = httpx.URL(server.url)
        payload = msgspec.json.encode(body)
        head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(payload)}\r\n\r\n"
        self._socket = socket.socket()
        if receive_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.connect((url.host, url.port))
        self._socket.sendall(head.encode() + payload)

    def read_all(self) -> bytes:
        """Everything up to the end of the reply."""
        self._socket.settimeout(30)
        received = bytearray()
        while not received.endswith(b"0\r\n\r\n"):
            part = self._socket.recv(1 << 16)
            assert part, f"closed after {bytes(received[-200:])!r}"
            received += part
        self._socket.close()
        return bytes(received)

    def leave(self) -> None:
        self._socket.close()


def check_nothing_is_left(server: RunningServer, before: dict[str, Any]) -> None:
    """The engine is idle long before any of the answers could have been done, and answers as it would have."""
    after = server.wait_idle()
    assert after["generated_tokens"] - before["generated_tokens"] < 8_000
    assert after["finished"].get("abort", 0) > before["finished"].get("abort", 0)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 4])
def test_while_decoding(server: RunningServer, stream: bool, n: int) -> None:
    before = server.wait_idle()
    client = Client(server, LONG_ANSWER | {"stream": stream, "n": n})
    wait_until(lambda: (s := server.stats())["num_running"] == n and s["generated_tokens"] > before["generated_tokens"] + 8)
    client.leave()
    check_nothing_is_left(server, before)


@pytest.mark.parametrize("stream", [False, True])
def test_between_chunks_of_the_prompt(server: RunningServer, stream: bool) -> None:
    before = server.wait_idle()
    client = Client(server, LONG_PROMPT | {"stream": stream, "cache_salt": f"{stream}"})
    wait_until(lambda: server.stats()["computed_tokens"] > before["computed_tokens"] + 100)
    client.leave()
    after = server.wait_idle()
    assert after["generated_tokens"] == before["generated_tokens"]
    assert after["computed_tokens"] - before["computed_tokens"] < len(LONG_PROMPT["prompt"])


@pytest.mark.parametrize("stream", [False, True])
def test_while_queued(server: RunningServer, stream: bool) -> None:
    before = server.wait_idle()
    running_client = Client(server, LONG_ANSWER | {"n": 4})
    wait_until(lambda: server.stats()["num_running"] == 4)
    queued = Client(server, LONG_ANSWER | {"stream": stream})
    wait_until(lambda: server.stats()["num_waiting"] == 1)
    queued.leave()
    wait_until(lambda: server.stats()["num_waiting"] == 0)
    assert server.stats()["num_running"] == 4
    running_client.leave()
    check_nothing_is_left(server, before)


def test_health_answers_and_flush_is_refused_while_a_long_prompt_is_computed(server: RunningServer) -> None:
    server.wait_idle()
    client = Client(server, LONG_PROMPT | {"cache_salt": "health"})
    wait_until(lambda: server.stats()["num_running"] == 1)
    assert httpx.get(server.url + "/health").status_code == 200
    assert httpx.post(server.url + "/flush_cache").status_code == 409
    assert server.post("/v1/completions", prompt="a", temperature=-1).status_code == 400
    client.leave()
    server.wait_idle()
    assert httpx.post(server.url + "/flush_cache").status_code == 200


def test_the_answer_after_an_abort_is_the_answer_without(server: RunningServer) -> None:
    body = LONG_ANSWER | {"max_tokens": 40, "prompt": "An aborted prompt, sent again."}
    alone = server.post("/v1/completions", **body, cache_salt="alone").json()["choices"][0]["text"]
    for _ in range(2):
        client = Client(server, body | {"max_tokens": 15_000})
        wait_until(lambda: server.stats()["num_running"] == 1)
        client.leave()
        server.wait_idle()
        reply = server.post("/v1/completions", **body).json()
        assert reply["choices"][0]["text"] == alone
    assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_a_reader_that_reads_nothing_holds_up_nobody(server: RunningServer) -> None:
    """Its frames are more than the buffers of both ends take; the engine ends its answer, and it gets all of it when it reads."""
    server.wait_idle()
    slow = Client(server, LONG_ANSWER | {"max_tokens": 4_000, "logprobs": 20, "stream": True}, receive_buffer=4096)
    wait_until(lambda: server.stats()["num_running"] == 1)
    reply = server.post("/v1/completions", prompt="Twice", max_tokens=200, ignore_eos=True)
    assert reply.json()["usage"]["completion_tokens"] == 200
    server.wait_idle()
    received = slow.read_all()
    assert len(received) > 3_500_000
    assert received.count(b'"finish_reason":"length"') == 1
    assert b"data: [DONE]" in received[-100:]
