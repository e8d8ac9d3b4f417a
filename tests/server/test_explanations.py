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
    assert told["nearest_branch"] == {"num_tokens": len("prompt of all."), "hit_count": 0, "admissions_ago": 1}
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


def test_what_another_prompt_says_is_told_to_whoever_may_see_prompts(flushed: RunningServer) -> None:
    complete(flushed, "The first prompt of all.")
    request_id = complete(flushed, "The first question.").headers["x-request-id"]
    (told,) = flushed.get(f"/cache/explain?request_id={request_id}")["explanations"]
    assert told["nearest_branch"]["text"].startswith("prompt of")


def test_top_ranks_what_was_saved_and_counts_what_was_not_used(flushed: RunningServer) -> None:
    for end in ("one", "two", "three"):
        complete(flushed, "A prefix that all share, then " + end)
    complete(flushed, "Alone.", cache_salt="secret")
    top = flushed.get("/cache/top?count=2")
    best = top["prefixes"][0]
    assert best["text"].endswith("A prefix that all share, then ")
    assert (best["start"], best["hits"], best["saved_tokens"]) == (0, 2, 2 * best["tokens"])
    shared, salted = sorted(top["namespaces"], key=lambda held: held["tokens"], reverse=True)
    assert shared["saved_tokens"] >= best["saved_tokens"]
    assert salted["unused_tokens"] == salted["tokens"] > 0
    assert "secret" not in str(top)
    assert "between 1 and" in flushed.get("/cache/top?count=0")["error"]["message"]


@pytest.mark.parametrize(("query", "status"), [("", "request_id is missing"), ("?request_id=nobody", "'nobody' is not known")])
def test_errors_name_what_is_wrong(server: RunningServer, query: str, status: str) -> None:
    assert status in server.get(f"/cache/explain{query}")["error"]["message"]
