"""/generate, as SGLang's clients send it and read its replies."""

from itertools import pairwise
from typing import Any

import pytest

from tests.server.running import RunningServer, frames

GREEDY = {"temperature": 0, "max_new_tokens": 6, "ignore_eos": True}


def ask(server: RunningServer, **body: Any) -> Any:
    reply = server.post("/generate", **{"sampling_params": GREEDY} | body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_one_prompt(server: RunningServer) -> None:
    reply = ask(server, text="Once")
    expected = server.post(
        "/v1/completions", prompt="Once", max_tokens=6, temperature=0, ignore_eos=True, return_token_ids=True
    ).json()["choices"][0]
    assert set(reply) == {"text", "output_ids", "meta_info"}
    assert (reply["text"], reply["output_ids"]) == (expected["text"], expected["token_ids"])
    meta = reply["meta_info"]
    assert meta["finish_reason"] == {"type": "length", "length": 6}
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (4, 6)
    ids = server.post("/tokenize", prompt="Once").json()["tokens"]
    assert ask(server, input_ids=ids)["meta_info"]["cached_tokens"] == 3
    assert ask(server, input_ids=[ids])[0]["text"] == expected["text"]


def test_several_prompts_with_parameters_of_their_own(server: RunningServer) -> None:
    params = [GREEDY | {"max_new_tokens": 2}, GREEDY | {"max_new_tokens": 5}]
    replies = ask(server, text=["ab", "cd"], sampling_params=params, rid=["one", "two"])
    assert [len(reply["output_ids"]) for reply in replies] == [2, 5]
    assert [reply["meta_info"]["id"] for reply in replies] == ["one", "two"]
    choices = ask(server, text="ab", sampling_params={"n": 3, "max_new_tokens": 4, "sampling_seed": 1, "ignore_eos": True})
    assert len({choice["text"] for choice in choices}) == 3


@pytest.mark.parametrize("text", ["Once", ["Once", "cd"]])
def test_a_stream_repeats_all_in_every_frame(server: RunningServer, text: str | list[str]) -> None:
    whole = ask(server, text=text, return_logprob=True)
    *chunks, done = frames(server.post("/generate", text=text, sampling_params=GREEDY, stream=True, return_logprob=True).text)
    assert done == "[DONE]"
    for number, expected in enumerate(whole if isinstance(whole, list) else [whole]):
        own = [chunk for chunk in chunks if chunk.get("index", 0) == number]
        last = own[-1]
        assert (last["text"], last["output_ids"]) == (expected["text"], expected["output_ids"])
        assert last["meta_info"]["finish_reason"] == {"type": "length", "length": 6}
        assert last["meta_info"]["output_token_logprobs"] == expected["meta_info"]["output_token_logprobs"]
        assert all(chunk["meta_info"]["finish_reason"] is None for chunk in own[:-1])
        assert [len(chunk["output_ids"]) for chunk in own] == list(range(1, 7))
        assert all(after["text"].startswith(before["text"]) for before, after in pairwise(own))


def test_logprobs(server: RunningServer) -> None:
    ids = server.post("/tokenize", prompt="Trees are tall").json()["tokens"]
    fields = {"return_logprob": True, "top_logprobs_num": 2, "return_text_in_logprobs": True, "text": "Trees are tall"}
    meta = ask(server, **fields, logprob_start_len=5)["meta_info"]
    echo = server.post("/v1/completions", prompt="Trees are tall", echo=True, logprobs=2, max_tokens=0).json()["choices"][0]
    assert meta["input_token_logprobs"][0] == [None, ids[5], " "]
    assert [item[1] for item in meta["input_token_logprobs"]] == ids[5:]
    assert [item[0] for item in meta["input_token_logprobs"][1:]] == pytest.approx(echo["logprobs"]["token_logprobs"][6:], abs=1e-5)
    assert meta["input_top_logprobs"][0] is None
    assert {len(top) for top in meta["input_top_logprobs"][1:]} == {2}
    for own, top in zip(meta["output_token_logprobs"], meta["output_top_logprobs"], strict=True):
        assert own == top[0]  # greedy
    answer_only = ask(server, text="Trees are tall", return_logprob=True)["meta_info"]
    assert answer_only["input_token_logprobs"] == [[None, ids[-1], None]]
    assert len(answer_only["output_token_logprobs"]) == 6
    assert "output_top_logprobs" not in answer_only


def test_stops(server: RunningServer) -> None:
    full = ask(server, text="Once", sampling_params=GREEDY | {"max_new_tokens": 20})
    by_token = ask(server, text="Once", sampling_params=GREEDY | {"stop_token_ids": [full["output_ids"][2]]})
    assert by_token["meta_info"]["finish_reason"] == {"type": "stop", "matched": full["output_ids"][2]}
    stop = full["text"][4:6]
    by_text = ask(server, text="Once", sampling_params=GREEDY | {"max_new_tokens": 20, "stop": stop})
    assert by_text["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    assert by_text["text"] == full["text"][: full["text"].index(stop)]


def test_a_regex_constrains(server: RunningServer) -> None:
    reply = ask(server, text="Once", sampling_params={"regex": "(yes|no)", "max_new_tokens": 9})
    assert reply["text"] in ("yes", "no")


@pytest.mark.parametrize(
    ("body", "param", "holds"),
    [
        ({}, "text", "either text or input_ids"),
        ({"text": "a", "input_ids": [1]}, "text", "either text or input_ids"),
        ({"text": ""}, "text", "no tokens"),
        ({"text": []}, "text", "empty list"),
        ({"input_ids": [300]}, "input_ids", "token id 300"),
        ({"text": "a", "sampling_params": {"max_new_tokens": 900}}, "max_new_tokens", "900"),
        ({"text": "a", "sampling_params": {"max_new_tokens": -1}}, "max_new_tokens", "max_new_tokens is -1"),
        ({"text": "a", "sampling_params": {"temperature": -1}}, "temperature", "-1"),
        ({"text": "a", "sampling_params": {"regex": "a", "ebnf": "b"}}, "ebnf", "send one of them"),
        ({"text": "a", "sampling_params": {"regex": "["}}, "regex", "regex: "),
        ({"text": ["a", "b"], "sampling_params": [{}, {"regex": "["}]}, "regex", "regex: "),
        ({"text": ["a", "b"], "sampling_params": [{"regex": "a"}, {"ebnf": "["}]}, "sampling_params", "the ebnf can't"),
        ({"text": "a", "sampling_params": {"stop_regex": "a"}}, "stop_regex", "not supported"),
        ({"text": "a", "sampling_params": [{}, {}]}, "sampling_params", "2 entries for 1 prompts"),
        ({"text": ["a", "b"], "sampling_params": [{}, {"n": 2}]}, "n", "differs"),
        ({"text": "a", "return_logprob": True, "top_logprobs_num": 99}, "top_logprobs_num", "99"),
        ({"text": "a", "return_logprob": True, "logprob_start_len": 1}, "logprob_start_len", "below the prompt's 1 tokens"),
        ({"text": "a", "image_data": "x"}, "image_data", "not supported"),
        ({"text": "a", "extra_key": ""}, "extra_key", "empty"),
        ({"text": "a", "extra_key": "a" * 257}, "extra_key", "257 characters: at most 256"),
        ({"text": "a", "rid": "a" * 129}, "rid", "129 characters: at most 128"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_wrong_is_named(server: RunningServer, body: dict[str, Any], param: str, holds: str) -> None:
    reply = server.post("/generate", **body)
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert (error["param"], holds in error["message"]) == (param, True), error
