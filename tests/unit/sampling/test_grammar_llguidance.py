"""llguidance behind the protocol: what it lets through, what it refuses and in which words. On a vocabulary of bytes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from radixserve.errors import InvalidRequestError
from radixserve.sampling.grammar import Matcher, find_backend
from radixserve.sampling.grammar_llguidance import LLGuidance
from radixserve.sampling_params import Grammar
from radixserve.text.tokenizer import Tokenizer
from tests.tiny_models import EOS_ID, VOCAB_SIZE


@pytest.fixture(scope="module")
def tokenizer(tiny_model_dir: Path) -> Tokenizer:
    return Tokenizer.load(tiny_model_dir)


@pytest.fixture(scope="module")
def backend(tokenizer: Tokenizer) -> LLGuidance:
    return LLGuidance(tokenizer, VOCAB_SIZE, frozenset({EOS_ID}))


def allowed(matcher: Matcher) -> set[int]:
    mask = np.zeros(-(-VOCAB_SIZE // 32), dtype=np.int32)
    matcher.fill_mask(mask)
    return set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist())


def follow(backend: LLGuidance, tokenizer: Tokenizer, grammar: Grammar, text: str, **options: Any) -> Matcher | None:
    """The matcher after the text, None if a token of it was not allowed."""
    matcher = backend.compile(grammar).matcher(**{"ignore_eos": False, **options})
    for token_id in tokenizer.encode_plain(text):
        if token_id not in allowed(matcher):
            return None
        assert matcher.accept(token_id)
    return matcher


SCHEMA = Grammar("json_schema", json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}))


@pytest.mark.parametrize(
    ("grammar", "text", "ends"),
    [
        (Grammar("regex", "^ab+$"), "abb", True),
        (Grammar("regex", "ab+"), "a", False),
        (Grammar("choice", '["red", "re\\"d"]'), 're"d', True),
        (Grammar("choice", '["<|im_end|>"]'), "<|im_end|>", True),
        (Grammar("ebnf", 'root ::= "a" digit\ndigit ::= [0-9]+'), "a12", True),
        (Grammar("ebnf", 'start: "a" DIGIT\nDIGIT: /[0-9]+/'), "a12", True),
        (Grammar("json_object"), '{"x": [1, true, {}]}', True),
        (Grammar("json_schema", "true"), "12", True),
        (SCHEMA, '{"a": 1}', True),
        (SCHEMA, '{"a": 1', False),
    ],
)
def test_an_answer_ends_where_its_language_lets_it(
    backend: LLGuidance, tokenizer: Tokenizer, grammar: Grammar, text: str, ends: bool
) -> None:
    matcher = follow(backend, tokenizer, grammar, text)
    assert matcher is not None
    assert (matcher.finished or EOS_ID in allowed(matcher)) == ends


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        (Grammar("regex", "ab+"), "b"),
        (Grammar("choice", '["red"]'), "rex"),
        (Grammar("json_object"), "[1]"),
        (Grammar("json_object"), "{  "),
        (SCHEMA, '{"a": "1'),
        (SCHEMA, "{\n"),
    ],
)
def test_nothing_else_is_let_through(backend: LLGuidance, tokenizer: Tokenizer, grammar: Grammar, text: str) -> None:
    assert follow(backend, tokenizer, grammar, text) is None


@pytest.mark.parametrize(
    ("grammar", "word"),
    [
        (Grammar("regex", "["), "unclosed"),
        (Grammar("regex", "a(?=b)"), "look"),
        (Grammar("ebnf", 'root ::= "a" b'), "b"),
        (Grammar("ebnf", 'start: "a" b'), "b"),
        (Grammar("choice", "[]"), "at least one"),
        (Grammar("choice", "[1]"), "texts"),
        (Grammar("json_schema", "{"), "not JSON"),
        (Grammar("json_schema", "[]"), "object"),
        (Grammar("json_schema", "[" * 100_000), "not JSON"),
        (Grammar("json_schema", '{"$ref": "#/$defs/none"}'), "$defs/none"),
        (Grammar("json_schema", '{"$ref": "http://example.org/schema"}'), "example.org"),
        (Grammar("json_schema", '{"properties": {"a": "x"}}'), "object or boolean"),
        (Grammar("json_schema", '{"type": "whole"}'), "whole"),
        (Grammar("json_schema", '{"type": "string", "pattern": "["}'), "unclosed"),
        (Grammar("json_schema", '{"not": {}, "x-guidance": {"lenient": true}}'), "not"),
        (Grammar("json_schema", '{"properties": {"a": {"uniqueItems": true}}}'), "uniqueItems"),
    ],
)
def test_what_is_wrong_or_cannot_be_enforced_is_refused_by_name(backend: LLGuidance, grammar: Grammar, word: str) -> None:
    with pytest.raises(InvalidRequestError, match=r".") as caught:
        backend.compile(grammar)
    assert word in caught.value.message
    assert caught.value.param == "grammar"
    assert len(caught.value.message) < 1000


def test_ignore_eos_goes_on_while_anything_else_can_come(backend: LLGuidance, tokenizer: Tokenizer) -> None:
    open_end = follow(backend, tokenizer, Grammar("regex", "a+"), "a", ignore_eos=True)
    assert open_end is not None
    assert allowed(open_end) == set(tokenizer.encode_plain("a"))
    closed = follow(backend, tokenizer, Grammar("regex", "a"), "a", ignore_eos=True)
    assert closed is not None
    assert closed.finished


def test_matchers_of_one_grammar_do_not_share_their_place(backend: LLGuidance, tokenizer: Tokenizer) -> None:
    compiled = backend.compile(Grammar("choice", '["ax", "by"]'))
    one, other = compiled.matcher(ignore_eos=False), compiled.matcher(ignore_eos=False)
    a, b, x, y = tokenizer.encode_plain("abxy")
    assert one.accept(a)
    assert other.accept(b)
    assert allowed(one) == {x}
    assert allowed(other) == {y}
    assert not one.accept(y)
    assert allowed(one) == {x}


def test_a_grammar_that_grows_too_costly_allows_nothing_and_says_so(backend: LLGuidance, tokenizer: Tokenizer) -> None:
    matcher = backend.compile(Grammar("regex", "(.*a.{40}b|.*b.{40}c|.*c.{40}a)*")).matcher(ignore_eos=False)
    for token_id in tokenizer.encode_plain("abc" * 2000):
        if not allowed(matcher) or not matcher.accept(token_id):
            break
    if matcher.fault:
        assert not allowed(matcher)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(Exception, match="choose llguidance"):
        find_backend("other")
