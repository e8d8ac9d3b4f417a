"""The offline API on a tiny model."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from radixserve import LLM, SamplingParams
from radixserve.errors import BusyError, InvalidRequestError, ModelError
from radixserve.llm import generate_all
from tests.tiny_adapters import make_tiny_adapter
from tests.tiny_models import make_tiny_model

GREEDY = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(tiny_model_dir: Path) -> LLM:
    return LLM(str(tiny_model_dir), device="cpu", dtype="float64", num_slots=3000, num_threads=1)


def test_generate_answers_in_order(llm: LLM) -> None:
    prompts = ["one two", "three", "one two three"]
    together = llm.generate(prompts, GREEDY)
    assert [g.token_ids for g in together] == [llm.generate(prompt, GREEDY).token_ids for prompt in prompts]
    assert [g.prompt_tokens for g in together] == [len(llm.tokenizer.encode(prompt)) for prompt in prompts]


def test_choices_share_one_prefill(llm: LLM) -> None:
    llm.flush()
    before = llm.engine.stats().computed_tokens
    prompt = np.arange(64, dtype=np.int32)
    generation = llm.generate(prompt, SamplingParams(n=8, max_tokens=3, temperature=1.0, seed=3, ignore_eos=True))
    assert len(generation.choices) == 8
    assert generation.cached_tokens == 0
    assert llm.engine.stats().computed_tokens - before == 64 + 7 * 1 + 8 * 2
    again = llm.generate(prompt, SamplingParams(n=8, max_tokens=3, temperature=1.0, seed=3, ignore_eos=True))
    assert [c.token_ids for c in again.choices] == [c.token_ids for c in generation.choices]
    assert again.cached_tokens == 63


def test_chat_reuses_the_turn_before(llm: LLM) -> None:
    messages = [{"role": "user", "content": "Tell me of the sea."}]
    first = llm.chat(messages, GREEDY)
    messages += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "And of the shore."}]
    second = llm.chat(messages, GREEDY)
    assert second.cached_tokens >= first.prompt_tokens
    assert [g.token_ids for g in llm.chat([messages, messages], GREEDY)] == [second.token_ids] * 2


def test_stream_joins_to_the_answer(llm: LLM) -> None:
    pieces = list(llm.stream("Once upon a time", GREEDY))
    assert "".join(piece.text for piece in pieces) == llm.generate("Once upon a time", GREEDY).text
    assert pieces[-1].finish_reason == "length"


def test_a_stream_that_is_closed_early_frees_everything(llm: LLM) -> None:
    stream = llm.stream("Once upon a time", SamplingParams(max_tokens=100, ignore_eos=True))
    next(stream)
    stream.close()
    llm.engine.step()
    assert not llm.engine.has_work
    assert llm.engine.stats().request_slots == 0


def test_branches_share_their_prefix_and_go_their_own_way(llm: LLM) -> None:
    trunk = llm.branch("A long thought that several continuations share")
    trunk.generate(GREEDY)
    left, right = trunk.fork(2)
    left.append(" on the one hand")
    right.append(" on the other hand")
    generations = generate_all([left, right], GREEDY)
    assert min(g.cached_tokens for g in generations) >= len(trunk.token_ids) - 1
    assert left.text != right.text
    assert left.token_ids[: len(trunk.token_ids)].tolist() == trunk.token_ids.tolist()


def test_a_bad_prompt_of_a_list_is_refused_before_any_runs(llm: LLM) -> None:
    steps = llm.engine.stats().num_steps
    with pytest.raises(InvalidRequestError, match="no tokens"):
        llm.generate(["fine", ""], GREEDY)
    assert llm.engine.stats().num_steps == steps
    assert not llm.engine.has_work


def test_streams_side_by_side_lose_nothing(llm: LLM) -> None:
    prompts = ["Once upon a time", "There was a house", "Nobody knew"]
    expected = [llm.generate(prompt, GREEDY).text for prompt in prompts]
    streams = [llm.stream(prompt, GREEDY) for prompt in prompts]
    texts = ["", "", ""]
    for pieces in zip(*streams, strict=True):
        texts = [text + piece.text for text, piece in zip(texts, pieces, strict=True)]
    assert texts == expected


def test_a_flush_beside_an_open_stream_is_refused_and_the_stream_unharmed(llm: LLM) -> None:
    stream = llm.stream("Once upon a time", GREEDY)
    text = next(stream).text
    with pytest.raises(BusyError, match="1 requests run"):
        llm.flush()
    assert text + "".join(piece.text for piece in stream) == llm.generate("Once upon a time", GREEDY).text


def test_params_for_each_prompt(llm: LLM) -> None:
    short, long = SamplingParams(max_tokens=2, ignore_eos=True), SamplingParams(max_tokens=5, n=2, ignore_eos=True)
    first, second = llm.generate(["one", "two"], [short, long])
    assert [len(c.token_ids) for c in first.choices] == [2]
    assert [len(c.token_ids) for c in second.choices] == [5, 5]
    with pytest.raises(InvalidRequestError, match="2 prompts and 1 params"):
        llm.generate(["one", "two"], [short])


def test_forks_with_a_seed_differ(llm: LLM) -> None:
    seeded = SamplingParams(max_tokens=8, temperature=1.0, seed=1, ignore_eos=True)
    texts = {generation.text for generation in generate_all(llm.branch("Once").fork(3), seeded)}
    assert len(texts) == 3


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([1, 2, 3], "a prompt is 1: must be a text or a row of token ids"),
        ([[1.7, 2.0]], "must be a text or a row of token ids"),
        (np.zeros((2, 2), dtype=np.int32), "must be a text or a row of token ids"),
        ([[5, 2**40]], f"token id {2**40}: ids must be between 0 and"),
        ([[]], "has no tokens"),
    ],
)
def test_a_prompt_that_is_no_row_of_ids_is_refused(llm: LLM, prompts: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        llm.generate(prompts, GREEDY)


def test_a_misspelt_or_empty_salt_is_refused(llm: LLM) -> None:
    misspelt: Any = {"cache_slat": "a"}
    with pytest.raises(TypeError, match=r"'cache_slat': choose from .*cache_salt"):
        llm.generate("one", GREEDY, **misspelt)
    with pytest.raises(InvalidRequestError, match="cache_salt is empty"):
        llm.generate("one", GREEDY, cache_salt="")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (SamplingParams(max_tokens="4"), "max_tokens is '4': expected int | null, got str"),  # type: ignore[arg-type]
        (SamplingParams(logit_bias={1: "x"}), "logit_bias"),  # type: ignore[dict-item]
        ({"max_tokens": 4}, "params is a dict"),
    ],
)
def test_parameters_of_another_type_are_refused_by_name(llm: LLM, params: SamplingParams, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(message)):
        llm.generate("a", params)


def test_a_chat_with_a_string_says_what_it_takes(llm: LLM) -> None:
    with pytest.raises(InvalidRequestError, match="list of messages"):
        llm.chat("hi")  # type: ignore[call-overload]


def test_a_branch_goes_on_from_before_the_token_that_stopped_it(llm: LLM) -> None:
    tokens = llm.branch("Once").generate(GREEDY).token_ids
    branch = llm.branch("Once")
    before = len(branch.token_ids)
    branch.generate(SamplingParams(max_tokens=6, temperature=0, ignore_eos=True, stop_token_ids=(tokens[3],)))
    grown = branch.token_ids[before:].tolist()
    assert grown == tokens[: tokens.index(tokens[3])]


def test_adapters_answer_by_name_and_come_and_go(tiny_model_dir: Path, tmp_path: Path) -> None:
    sql = make_tiny_adapter(tmp_path / "sql", tiny_model_dir)
    llm = LLM(str(tiny_model_dir), adapters={"sql": sql}, num_slots=500, dtype="float32", device="cpu", num_threads=1)
    params = SamplingParams(max_tokens=6, temperature=0.0)
    base, by_sql = (llm.generate("Once upon", params, adapter=name) for name in (None, "sql"))
    assert by_sql.token_ids != base.token_ids
    assert by_sql.cached_tokens == 0
    with pytest.raises(InvalidRequestError, match="adapter 'poet' is not loaded: loaded are 'sql'"):
        llm.generate("Once upon", params, adapter="poet")
    assert "rank 4, 14 modules" in llm.load_adapter("poet", sql)
    stream = llm.stream("Once upon", params, adapter="poet")
    first = next(stream)
    llm.unload_adapter("poet")  # an open request ends with the weights that it began with
    with pytest.raises(InvalidRequestError, match="adapter 'poet' is not loaded"):
        llm.generate("Once upon", params, adapter="poet")
    assert [*first.token_ids, *(token for output in stream for token in output.token_ids)] == by_sql.token_ids


def test_sampling_defaults_of_the_model_count_without_params(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path)
    stated = {"temperature": 0.0, "repetition_penalty": 1.3}
    (tmp_path / "generation_config.json").write_text(json.dumps(stated))
    llm = LLM(str(model), device="cpu", dtype="float64", num_slots=500, num_threads=1)
    own, neutral = SamplingParams(**stated), SamplingParams(temperature=0.0)  # type: ignore[arg-type]
    assert llm.default_params() == own
    assert llm.default_params(temperature=1.0, max_tokens=5) == SamplingParams(repetition_penalty=1.3, max_tokens=5)
    assert llm.generate("one two").token_ids == llm.generate("one two", own).token_ids
    assert llm.generate("one two", neutral).token_ids != llm.generate("one two", own).token_ids
    assert llm.branch("one two").generate().token_ids == llm.generate("one two", own).token_ids
    assert [token for output in llm.stream("one two") for token in output.token_ids] == llm.generate("one two", own).token_ids


def test_neutral_sampling_defaults_read_nothing(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"temperature": "hot"}')
    with pytest.raises(ModelError, match="temperature 'hot'"):
        LLM(str(model), device="cpu", num_slots=500, num_threads=1)
    llm = LLM(str(model), device="cpu", num_slots=500, num_threads=1, sampling_defaults="neutral")
    assert llm.default_params() == SamplingParams()
