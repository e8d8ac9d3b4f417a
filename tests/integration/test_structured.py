"""Answers of a real model under grammars: whole, of the language, and the same whatever else happens."""

import json
import re
from pathlib import Path

import jsonschema
import pytest

from radixserve import LLM, SamplingParams
from radixserve.errors import AnswerError, InvalidRequestError
from radixserve.sampling_params import Grammar
from tests.tiny_models import EOS_ID

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "colour": {"enum": ["red", "green", "blue"]},
        "sizes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 3},
        "nested": {
            "type": "object",
            "properties": {"yes": {"type": "boolean"}},
            "required": ["yes"],
            "additionalProperties": False,
        },
    },
    "required": ["name", "colour", "sizes", "nested"],
    "additionalProperties": False,
}
JSON = Grammar("json_schema", json.dumps(SCHEMA))
GREEDY = SamplingParams(temperature=0.0, max_tokens=200, grammar=JSON)


def make(model: Path, **settings: object) -> LLM:
    defaults = {"dtype": "float64", "device": "cpu", "num_slots": 3000, "num_threads": 1}
    return LLM(str(model), **{**defaults, **settings})


@pytest.fixture(scope="module")
def llm(tiny_model_dir: Path) -> LLM:
    return make(tiny_model_dir)


def warped(**changes: object) -> SamplingParams:
    return SamplingParams(**{"temperature": 1.0, "seed": 7, "max_tokens": 200, "grammar": JSON, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "params",
    [GREEDY, warped(), warped(top_p=0.9, top_k=50), warped(frequency_penalty=1.0, repetition_penalty=1.2), warped(ignore_eos=True)],
)
def test_every_answer_is_whole_and_valid(llm: LLM, params: SamplingParams) -> None:
    for generation in llm.generate(["one", "two", "three"], params, progress=False):
        jsonschema.validate(json.loads(generation.text), SCHEMA)
        assert generation.choices[0].finish_reason == "stop"
        assert generation.choices[0].stop_reason is None


def test_answers_are_the_same_with_and_without_jump_forward(tiny_model_dir: Path, llm: LLM) -> None:
    plain = make(tiny_model_dir, jump_forward=False)
    prompts = ["one", "two", "three", "one and"]
    each = [GREEDY, warped(), warped(seed=8, frequency_penalty=0.5), warped(seed=9)]
    before = llm.engine.stats()
    jumped = llm.generate(prompts, each, progress=False)
    after = llm.engine.stats()
    stepped = plain.generate(prompts, each, progress=False)
    assert [one.token_ids for one in jumped] == [one.token_ids for one in stepped]
    assert after.forced_tokens - before.forced_tokens > 4 * 40  # the keys and the punctuation
    assert plain.engine.stats().forced_tokens == 0
    assert 2 * (after.num_steps - before.num_steps) < plain.engine.stats().num_steps


def test_one_prefix_under_different_grammars(llm: LLM) -> None:
    prompt = "what do you say? " * 5
    choice, digits = Grammar("choice", '["yes", "no"]'), Grammar("regex", "[0-9]{4}")
    grammars = [choice, digits, JSON, None]
    each = [SamplingParams(temperature=0.0, max_tokens=200, grammar=grammar) for grammar in grammars]
    yes_or_no, number, document, free = llm.generate([prompt] * 4, each, progress=False)
    assert yes_or_no.text in ("yes", "no")
    assert len(number.text) == 4
    assert number.text.isdecimal()
    jsonschema.validate(json.loads(document.text), SCHEMA)
    again = llm.generate(prompt, each[3])
    assert again.cached_tokens > 0
    assert again.token_ids == free.token_ids


def test_each_choice_has_a_place_of_its_own(llm: LLM) -> None:
    choices = llm.generate("pick", warped(n=6)).choices
    for choice in choices:
        jsonschema.validate(json.loads(choice.text), SCHEMA)
    assert len({choice.text for choice in choices}) > 1


def test_a_preempted_request_goes_on_where_it_was(tiny_model_dir: Path, llm: LLM) -> None:
    small = make(tiny_model_dir, num_slots=260, decode_reserve=1)
    prompts = [f"number {number}" for number in range(6)]
    expected = llm.generate(prompts, GREEDY, progress=False)
    got = small.generate(prompts, GREEDY, progress=False)
    assert small.engine.stats().num_preemptions > 0
    assert [one.token_ids for one in got] == [one.token_ids for one in expected]


@pytest.mark.parametrize("jump_forward", [True, False])
def test_logprobs_are_the_models_own_for_every_token(tiny_model_dir: Path, llm: LLM, jump_forward: bool) -> None:
    [choice] = make(tiny_model_dir, jump_forward=jump_forward).generate("one", warped(logprobs=2)).choices
    assert [one.token_id for one in choice.logprobs] == choice.token_ids == llm.generate("one", warped()).token_ids
    assert all(one.logprob <= one.top[0][1] < 0 for one in choice.logprobs)


def test_a_model_that_prefers_blanks_gets_nowhere_with_them(llm: LLM) -> None:
    blanks = dict.fromkeys(llm.tokenizer.encode_plain(" \n\t"), 100.0)
    params = SamplingParams(temperature=0.0, max_tokens=200, logit_bias=blanks, grammar=JSON)
    text = llm.generate("one", params).text
    jsonschema.validate(json.loads(text), SCHEMA)
    assert re.search(r"\s{2}", text.replace(json.loads(text)["name"], "")) is None


def test_lengths_and_stop_strings_cut_inside_what_is_forced(llm: LLM) -> None:
    whole = llm.generate("one", GREEDY)
    cut = llm.generate("one", SamplingParams(temperature=0.0, max_tokens=5, grammar=JSON))
    assert cut.token_ids == whole.token_ids[:5]
    assert cut.choices[0].finish_reason == "length"
    stopped = llm.generate("one", SamplingParams(temperature=0.0, max_tokens=200, grammar=JSON, stop=("me",)))
    assert stopped.text == '{"na'
    assert stopped.choices[0].stop_reason == "me"


def test_min_tokens_hold_where_the_grammar_can_go_on(llm: LLM) -> None:
    def generate(regex: str, **changes: object) -> str:
        return llm.generate("one", warped(max_tokens=50, min_tokens=20, grammar=Grammar("regex", regex), **changes)).text

    assert len(generate("a{3}b*", logit_bias={EOS_ID: 100.0})) == 20
    assert generate("abc") == "abc"
    with pytest.raises(InvalidRequestError, match="min_tokens is 20: the grammar allows only what would end"):
        generate("a[bc]", stop_token_ids=tuple(llm.tokenizer.encode_plain("bc")))


def test_an_open_end_is_the_models_to_take(llm: LLM) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=20, logit_bias={EOS_ID: 100.0}, grammar=Grammar("regex", "ab*"))
    [choice] = llm.generate("one", params).choices
    assert choice.text == "a"
    assert choice.token_ids[-1] == EOS_ID
    assert choice.finish_reason == "stop"


def test_an_answer_that_the_grammar_should_not_have_let_through_is_an_exception(
    tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the grammar is weaker than its schema, the check of the finished answer holds."""
    weak = make(tiny_model_dir)
    monkeypatch.setattr("radixserve.sampling.grammar_llguidance.enforceable", lambda _schema: {"const": "y"})
    monkeypatch.setattr("radixserve.sampling.grammar_trial.GrammarTrial.check", lambda *_: None)
    params = SamplingParams(max_tokens=20, grammar=Grammar("json_schema", '{"enum": ["x", 2]}'))
    with pytest.raises(AnswerError, match='"enum" at # of the json_schema'):
        weak.generate("one", params)
    with pytest.raises(AnswerError, match='"enum" at #'):
        list(weak.stream("one", params))
    assert weak.generate("one", SamplingParams(max_tokens=3, ignore_eos=True)).choices[0].finish_reason == "length"


def test_what_is_no_schema_is_refused_before_it_is_compiled(llm: LLM) -> None:
    with pytest.raises(InvalidRequestError, match='"type" at #/items'):
        llm.generate("one", SamplingParams(grammar=Grammar("json_schema", '{"items": {"type": "whole"}}')))
