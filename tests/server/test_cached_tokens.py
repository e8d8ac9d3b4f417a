"""What replies say of the cache: always there, the same streamed or not, and what was cached on arrival."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.server.running import RunningServer, frames, running, wait_for

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
    lines = []
    for name in ("logged-first", "logged-second"):
        body = body_of("/v1/completions", PROMPT)
        assert httpx.post(flushed.url + "/v1/completions", json=body, headers={"x-request-id": name}, timeout=60).status_code == 200
        # A line is written after its reply.
        lines += wait_for(lambda name=name: [line for line in flushed.log.splitlines() if f" {name} 200 POST" in line], bool)
    assert f"prompt={len(PROMPT)} cached=0 (0%) generated=4 " in lines[0]
    assert f"prompt={len(PROMPT)} cached={len(PROMPT) - 1} (99%) generated=4 " in lines[1]
    assert "finish=length" in lines[1]
    assert re.search(r" queue=\d+ms ttft=\d+ms total=\d+ms ", lines[1])


@pytest.mark.parametrize("stream", [False, True])
def test_eight_choices_compute_their_prompt_once(flushed: RunningServer, stream: bool) -> None:
    """Seen by whoever scrapes the metrics."""
    before = positions_computed(flushed)
    usage = usage_of(flushed, "/v1/completions", stream=stream, n=8)
    assert usage["prompt_tokens"] == len(PROMPT)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
    # Each choice needs the prompt's last token for its first, and three of its four are fed back.
    assert positions_computed(flushed) - before == len(PROMPT) + 7 + 8 * 3


def positions_computed(server: RunningServer) -> int:
    server.wait_idle()
    text = httpx.get(server.url + "/metrics").text
    return int(float(re.search(r"^radixserve_computed_tokens_total (\S+)", text, re.MULTILINE)[1]))


@pytest.fixture(scope="module")
def tight(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A pool that four answers overrun, and chunks of 16 tokens."""
    tmp_path = tmp_path_factory.mktemp("tight")
    with running(tmp_path, tiny_model_dir, num_slots=150, max_batch_tokens=16, decode_reserve=0) as this:
        yield this


@pytest.mark.parametrize("route", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("stream", [False, True])
def test_what_was_cached_on_arrival_whatever_happens_later(tight: RunningServer, route: str, stream: bool) -> None:
    """Case: cached tokens were missing in streams, and wrong for several choices, chunks and preempted requests."""
    tight.wait_idle()
    assert tight.post("/flush_cache").status_code == 200
    before = tight.stats()["num_preemptions"]
    body = body_of(route, "x" * 20) | {"max_tokens": 60, "n": 4, "stream": stream, "stream_options": {"include_usage": True}}
    usages = []
    for _ in range(2):
        reply = tight.post(route, **body)
        usages.append((frames(reply.text)[-2] if stream else reply.json())["usage"])
    assert tight.wait_idle()["num_preemptions"] > before
    num_prompt = usages[0]["prompt_tokens"]
    assert [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages] == [0, num_prompt - 1]
    assert [usage["completion_tokens"] for usage in usages] == [240, 240]
