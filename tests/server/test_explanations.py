"""What clients are told when they ask why the cache gave them no more."""

from typing import Any

import pytest

from tests.server.running import RunningServer, frames


@pytest.fixture
def flushed(server: RunningServer) -> RunningServer:
    server.wait_idle()
    assert server.post("/flush_cache").status_code == 200
    return server


def complete(server: RunningServer, prompt: Any, **fields: Any) -> Any:
    reply = server.post("/v1/completions", prompt=prompt, max_tokens=2, temperature=0, **fields)
    assert reply.status_code == 200, reply.text
    return reply


def test_a_stream_and_a_whole_answer_explain_the_same(flushed: RunningServer) -> None:
    complete(flushed, "The first prompt of all.")
    whole = complete(flushed, "The first question.", explain_cache=True).json()["usage"]
    (told,) = whole["cache_explanations"]
    assert (told["reason"], told["cached_tokens"]) == ("never_seen", whole["prompt_tokens_details"]["cached_tokens"])
    assert told["text_before"].endswith("first ")
    assert told["text_after"].startswith("question")
    assert told["nearest_branch"]["text"].startswith("prompt of")
    stream = frames(complete(flushed, "The first query.", explain_cache=True, stream=True).text)
    assert stream[-2]["usage"]["cache_explanations"][0]["text_after"].startswith("ry.")


def test_each_choice_is_explained(flushed: RunningServer) -> None:
    usage = complete(flushed, ["One prompt.", "Another prompt."], n=2, explain_cache=True).json()["usage"]
    assert len(usage["cache_explanations"]) == 4


def test_who_does_not_ask_gets_none(flushed: RunningServer) -> None:
    assert "cache_explanations" not in complete(flushed, "Hello.").json()["usage"]


def test_a_request_is_explained_afterwards_by_its_id(flushed: RunningServer) -> None:
    reply = complete(flushed, "# Tell me later.")
    (told,) = flushed.get(f"/cache/explain?request_id={reply.headers['x-request-id']}")["explanations"]
    assert (told["reason"], told["cached_tokens"]) == ("never_seen", 0)


@pytest.mark.parametrize(("query", "status"), [("", "request_id is missing"), ("?request_id=nobody", "'nobody' is not known")])
def test_errors_name_what_is_wrong(server: RunningServer, query: str, status: str) -> None:
    assert status in server.get(f"/cache/explain{query}")["error"]["message"]
