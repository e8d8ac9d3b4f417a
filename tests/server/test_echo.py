"""Prompts given back with what the model gives to their tokens, whole and streamed, cold and warm."""

from typing import Any

import pytest

from tests.server.running import RunningServer, frames

ROUTE = "/v1/completions"
PROMPT = "Why my code throws errors, and how it came to be so."
FIELDS = {"temperature": 0, "ignore_eos": True, "echo": True}
LISTS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


@pytest.fixture
def flushed(server: RunningServer) -> RunningServer:
    server.wait_idle()
    assert server.post("/flush_cache").status_code == 200
    return server


def ask(server: RunningServer, **body: Any) -> dict[str, Any]:
    reply = server.post(ROUTE, **FIELDS | body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def check_lists(choice: dict[str, Any], prompt: str, max_tokens: int) -> None:
    shown = choice["logprobs"]
    assert {len(shown[name]) for name in LISTS} == {len(prompt) + max_tokens}
    assert "".join(shown["tokens"][: len(prompt)]) == prompt
    assert shown["token_logprobs"][0] is shown["top_logprobs"][0] is None
    assert all(value <= 0 for value in shown["token_logprobs"][1:])
    for name, own, top in zip(shown["tokens"][1:], shown["token_logprobs"][1:], shown["top_logprobs"][1:], strict=True):
        assert top[name] == own
        assert 2 <= len(top) <= 3
    assert shown["text_offset"][: len(prompt) + 1] == list(range(len(prompt) + 1))[: len(shown["tokens"])]


@pytest.mark.parametrize("max_tokens", [0, 1, 5])
@pytest.mark.parametrize("as_ids", [False, True])
def test_cold_and_warm(flushed: RunningServer, max_tokens: int, as_ids: bool) -> None:
    """Case: echo with max_tokens 0 and logprobs crashed."""
    prompts = [PROMPT, PROMPT[:20] + "!"]
    ids = [flushed.post("/tokenize", prompt=prompt).json()["tokens"] for prompt in prompts]
    cold, warm = (ask(flushed, prompt=ids if as_ids else prompts, max_tokens=max_tokens, logprobs=2) for _ in range(2))
    for prompt, before, after in zip(prompts, cold["choices"], warm["choices"], strict=True):
        check_lists(before, prompt, max_tokens)
        assert before["text"].startswith(prompt)
        assert after["text"] == before["text"]
        assert after["logprobs"]["tokens"] == before["logprobs"]["tokens"]
        assert after["logprobs"]["token_logprobs"][1:] == pytest.approx(before["logprobs"]["token_logprobs"][1:], abs=1e-5)
        assert (before["text"] == prompt) is (max_tokens == 0)
        assert before["finish_reason"] == "length"
    usage = cold["usage"] | {"prompt_tokens_details": None}
    assert usage == {
        "prompt_tokens": len(PROMPT) + 21,
        "completion_tokens": 2 * max_tokens,
        "total_tokens": len(PROMPT) + 21 + 2 * max_tokens,
        "prompt_tokens_details": None,
    }
    assert warm["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}  # all of it was computed again


@pytest.mark.parametrize("max_tokens", [0, 6])
@pytest.mark.parametrize("n", [1, 3])
def test_streamed_as_whole(server: RunningServer, max_tokens: int, n: int) -> None:
    body = {"prompt": [PROMPT, "ab"], "max_tokens": max_tokens, "logprobs": 2, "n": n, "seed": 5, "temperature": 1.0}
    whole = ask(server, **body)["choices"]
    *chunks, done = frames(server.post(ROUTE, **FIELDS | body, stream=True).text)
    assert done == "[DONE]"
    for number, choice in enumerate(whole):
        news = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == number]
        assert "".join(part["text"] for part in news) == choice["text"]
        check_lists(choice, (PROMPT, "ab")[number // n], max_tokens)
        for name in LISTS:
            assert [item for part in news if part["logprobs"] for item in part["logprobs"][name]] == choice["logprobs"][name]
        assert [part["finish_reason"] for part in news if part["finish_reason"]] == [choice["finish_reason"]]


def test_a_cached_prompt_s_other_choices_wait_for_its_scores(server: RunningServer) -> None:
    """The others reuse the prompt and are faster than the first, which computes it again, in several chunks."""
    body = {"prompt": "x" * 200, "max_tokens": 3, "logprobs": 0, "n": 3, "stream": True}
    for _ in range(2):
        *chunks, _ = frames(server.post(ROUTE, **FIELDS | body).text)
        first_news = {chunk["choices"][0]["index"]: chunk["choices"][0] for chunk in reversed(chunks)}
        assert [len(first_news[number]["logprobs"]["tokens"]) for number in range(3)] == [200, 200, 200]


def test_logprobs_as_the_evaluation_harness_reads_them(server: RunningServer) -> None:
    """It sends the tokens of question and answer, and takes the answer's from the lists; the last is the one generated token."""
    question, answer = "Trees are", " tall"
    ids = server.post("/tokenize", prompt=question + answer).json()["tokens"]
    shown = ask(server, prompt=[ids], max_tokens=1, logprobs=1, seed=1234)["choices"][0]["logprobs"]
    ours = slice(len(question), -1)
    assert "".join(shown["tokens"][ours]) == answer
    # Scored one by one: each token as the single alternative of a prompt that ends before it.
    expected = []
    for i, token_id in enumerate(ids[len(question) :], len(question)):
        forced = ask(server, prompt=[ids[:i]], max_tokens=1, logprobs=0, echo=False, logit_bias={str(token_id): 100})
        expected += forced["choices"][0]["logprobs"]["token_logprobs"]
    assert shown["token_logprobs"][ours] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("route", [ROUTE, "/v1/chat/completions"])
def test_prompt_logprobs_as_vllm_words_them(server: RunningServer, route: str) -> None:
    prompt = {"prompt": PROMPT} if route == ROUTE else {"messages": [{"role": "user", "content": PROMPT}]}
    reply = server.post(route, **prompt, max_tokens=1, prompt_logprobs=2, return_token_ids=True).json()
    holder = reply["choices"][0] if route == ROUTE else reply
    first, *entries = holder["prompt_logprobs"]
    assert first is None
    assert len(entries) == reply["usage"]["prompt_tokens"] - 1
    for token_id, entry in zip(holder["prompt_token_ids"][1:], entries, strict=True):
        assert 2 <= len(entry) <= 3
        ranked = sorted(entry.values(), key=lambda item: item["rank"])
        assert [item["rank"] for item in ranked[:2]] == [1, 2]
        assert [item["logprob"] for item in ranked] == sorted((item["logprob"] for item in ranked), reverse=True)
        assert set(entry[str(token_id)]) == {"logprob", "rank", "decoded_token"}


@pytest.mark.parametrize("route", [ROUTE, "/v1/chat/completions"])
def test_token_ids_are_sent_on_demand(server: RunningServer, route: str) -> None:
    prompt = {"prompt": "Once"} if route == ROUTE else {"messages": [{"role": "user", "content": "Once"}]}
    body = prompt | {"max_tokens": 9, "temperature": 0, "ignore_eos": True}
    assert "token_ids" not in server.post(route, **body).text
    whole = server.post(route, **body, return_token_ids=True).json()
    *chunks, _ = frames(server.post(route, **body, return_token_ids=True, stream=True).text)
    ids = whole["choices"][0]["token_ids"]
    assert len(ids) == 9
    assert [token_id for chunk in chunks for token_id in chunk["choices"][0].get("token_ids", [])] == ids
    asked = server.post("/tokenize", **prompt).json()["tokens"]
    assert (whole["choices"][0] if route == ROUTE else whole)["prompt_token_ids"] == asked
    assert (chunks[0]["choices"][0] if route == ROUTE else chunks[0])["prompt_token_ids"] == asked


def test_no_tokens_without_echo_fills_the_cache(flushed: RunningServer) -> None:
    for cached in (0, len(PROMPT) - 1):
        reply = ask(flushed, prompt=PROMPT, max_tokens=0, echo=False)
        assert (reply["choices"][0]["text"], reply["choices"][0]["finish_reason"]) == ("", "length")
        assert reply["usage"]["completion_tokens"] == 0
        assert reply["usage"]["prompt_tokens_details"] == {"cached_tokens": cached}
    assert flushed.post(ROUTE, prompt=PROMPT, max_tokens=-1).status_code == 400
    assert ask(flushed, prompt=PROMPT, echo=False)["usage"]["completion_tokens"] == 16
