"""What replies say of the cache: always there, the same streamed or not, and what was cached on arrival."""

import httpx
import pytest

from tests.server.running import RunningServer, frames

PROMPT = "A prompt that several requests share, of about eighty characters, tokens here."


@pytest.fixture
def flushed(server: RunningServer) -> RunningServer:
    server.wait_idle()
    assert server.post("/flush_cache").status_code == 200
    return server


def body_of(route: str, text: str) -> dict[str, object]:
    prompt = {"prompt": text} if route == "/v1/completions" else {"messages": [{"role": "user", "content": text}]}
    return prompt | {"max_tokens": 4, "temperature": 0, "ignore_eos": True}


def usage_of(server: RunningServer, route: str, *, stream: bool, n: int, **fields: object) -> dict[str, object]:
    body = body_of(route, PROMPT) | {"n": n, "stream": stream, "stream_options": {"include_usage": True}} | fields
    reply = server.post(route, **body)
    assert reply.status_code == 200, reply.text
    return (frames(reply.text)[-2] if stream else reply.json())["usage"]


@pytest.mark.parametrize("route", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 4])
def test_cached_tokens(flushed: RunningServer, route: str, stream: bool, n: int) -> None:
    cold = usage_of(flushed, route, stream=stream, n=n)
    warm = usage_of(flushed, route, stream=stream, n=n)
    assert cold["prompt_tokens_details"] == {"cached_tokens": 0}
    assert warm["prompt_tokens_details"] == {"cached_tokens": warm["prompt_tokens"] - 1}
    assert warm["completion_tokens"] == cold["completion_tokens"] == 4 * n
    assert warm["total_tokens"] == warm["prompt_tokens"] + 4 * n


def test_salts_separate_and_the_empty_one_is_refused(flushed: RunningServer) -> None:
    def cached(**fields: object) -> int:
        return usage_of(flushed, "/v1/completions", stream=False, n=1, **fields)["prompt_tokens_details"]["cached_tokens"]

    assert [cached(cache_salt=salt) for salt in ("A", "A", "B")] == [0, len(PROMPT) - 1, 0]
    assert cached() == 0
    refused = flushed.post("/v1/completions", **body_of("/v1/completions", PROMPT), cache_salt="")
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "cache_salt"


def test_the_same_request_id_may_come_twice(flushed: RunningServer) -> None:
    with httpx.Client(base_url=flushed.url, headers={"x-request-id": "same"}, timeout=60) as client:
        body = body_of("/v1/completions", PROMPT) | {"max_tokens": 100, "stream": True}
        with (
            client.stream("POST", "/v1/completions", json=body) as first,
            client.stream("POST", "/v1/completions", json=body) as second,
        ):
            texts = ["".join(stream.iter_text()) for stream in (second, first)]
            assert first.headers["x-request-id"] == second.headers["x-request-id"] == "same"
    streams = [[frame["choices"][0]["text"] for frame in frames(text)[:-1]] for text in texts]
    assert streams[0] == streams[1]
    assert len(streams[0]) > 50


def test_a_request_s_log_line_shows_what_was_skipped(flushed: RunningServer) -> None:
    for _ in range(2):
        usage_of(flushed, "/v1/completions", stream=False, n=1)
    flushed.wait_idle()
    lines = [line for line in flushed.log.splitlines() if "POST /v1/completions" in line][-2:]
    assert f"prompt={len(PROMPT)} cached=0 (0%) generated=4 " in lines[0]
    assert f"prompt={len(PROMPT)} cached={len(PROMPT) - 1} (99%) generated=4 " in lines[1]
    assert "finish=length" in lines[1]
    assert "ttft=" in lines[1]
