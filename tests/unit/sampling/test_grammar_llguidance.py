"""The grammar library behind the protocol, on a vocabulary of bytes: what it lets through, and in which words it refuses."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from radixserve.errors import InvalidRequestError
from radixserve.grammar import CompiledGrammar, Matcher
from radixserve.sampling.grammar_llguidance import LLGuidance, LLGuidanceMatcher
from radixserve.sampling_params import Grammar
from radixserve.text.tokenizer import Tokenizer
from tests.schema_cases import CASES, SchemaCase, closed_object, enforced
from tests.tiny_models import EOS_ID, VOCAB_SIZE
from tests.unit.text.vocabularies import byte_level, write_directory


def allowed(matcher: Matcher) -> set[int]:
    mask = np.zeros(-(-VOCAB_SIZE // 32), dtype=np.int32)
    matcher.fill_mask(mask)
    return set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little", count=VOCAB_SIZE)).tolist())


def follow(compiled: CompiledGrammar, tokenizer: Tokenizer, text: str, **options: Any) -> Matcher | None:
    """The matcher after the text, None if a token of it was not allowed."""
    matcher = compiled.matcher(**{"ignore_eos": False, **options})
    for token_id in tokenizer.encode_plain(text):
        if token_id not in allowed(matcher):
            return None
        assert matcher.accept(token_id)
    return matcher


SCHEMA = Grammar("json_schema", json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}))
TAG = Grammar(
    "structural_tag",
    json.dumps({"structures": [{"begin": "<f>", "schema": {"type": "integer"}, "end": "</f>"}], "triggers": ["<f"]}),
)
NEW_TAG = Grammar(
    "structural_tag",
    json.dumps(
        {
            "type": "structural_tag",
            "format": {
                "type": "triggered_tags",
                "triggers": ["<f"],
                "tags": [{"begin": "<f>", "content": {"type": "json_schema", "json_schema": {"type": "integer"}}, "end": "</f>"}],
            },
        }
    ),
)


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
        (TAG, "well\n<f>12</f>, then", True),
        (TAG, "<f>12", False),
        (NEW_TAG, "so <f>12</f>", True),
    ],
)
def test_an_answer_ends_where_its_language_lets_it(
    compiler: LLGuidance, tokenizer: Tokenizer, grammar: Grammar, text: str, ends: bool
) -> None:
    matcher = follow(compiler.compile(grammar), tokenizer, text)
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
        (TAG, "<f>a"),
    ],
)
def test_nothing_else_is_let_through(compiler: LLGuidance, tokenizer: Tokenizer, grammar: Grammar, text: str) -> None:
    assert follow(compiler.compile(grammar), tokenizer, text) is None


@pytest.mark.parametrize(
    ("grammar", "word"),
    [
        (Grammar("regex", "["), "nclosed"),
        (Grammar("regex", "a(?=b)"), "ook"),
        (Grammar("ebnf", 'root ::= "a" b'), "b"),
        (Grammar("ebnf", 'start: "a" b'), "b"),
        (Grammar("choice", "[]"), "at least one"),
        (Grammar("choice", "[1]"), "texts"),
        (Grammar("structural_tag", "{}"), "structures"),
        (Grammar("structural_tag", '{"structures": [{"begin": "a", "schema": {}, "end": "b"}], "triggers": ["c"]}'), "trigger"),
        (Grammar("structural_tag", '{"format": {"type": "sequence"}}'), "sequence"),
        (Grammar("json_schema", "{"), "not JSON"),
        (Grammar("json_schema", "[]"), "object"),
        (Grammar("json_schema", "[" * 100_000), "not JSON"),
        (Grammar("json_schema", '{"$ref": "#/$defs/none"}'), "$defs"),
        (Grammar("json_schema", '{"$ref": "http://example.org/$ref"}'), "$ref"),
        (Grammar("json_schema", '{"properties": {"a": "x"}}'), "object or bool"),
        (Grammar("json_schema", '{"type": "whole"}'), "whole"),
        (Grammar("json_schema", '{"type": "string", "pattern": "["}'), "nclosed"),
        (Grammar("json_schema", '{"type": "string", "format": "iri"}'), "format"),
        (Grammar("json_schema", '{"type": "string", "format": "date", "pattern": "a", "allOf": 5}'), "allOf"),
        (Grammar("json_schema", '{"type": "string", "pattern": "^(?=a)a", "allOf": 5}'), "allOf"),
        (Grammar("json_schema", '{"not": {}, "x-guidance": {"lenient": true}}'), '"not" at #'),
        (Grammar("json_schema", '{"properties": {"a/b": {"uniqueItems": true}}}'), '"uniqueItems" at #/properties/a~1b'),
    ],
)
def test_what_is_wrong_or_cannot_be_enforced_is_refused_by_name(compiler: LLGuidance, grammar: Grammar, word: str) -> None:
    with pytest.raises(InvalidRequestError, match=r".") as caught:
        compiler.compile(grammar)
    assert word in caught.value.message
    assert caught.value.param == "grammar"
    assert len(caught.value.message) < 600
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.keyword} {json.dumps(case.schema):.60}")
def test_a_schema_is_enforced_or_refused(compiler: LLGuidance, tokenizer: Tokenizer, case: SchemaCase) -> None:
    for value in case.allowed:
        jsonschema.Draft202012Validator(case.schema).validate(value)
    if enforced(compiler, case):
        compiled = compiler.compile(Grammar("json_schema", json.dumps(case.schema)))
        for value in case.allowed:
            assert any(_whole(follow(compiled, tokenizer, text)) for text in case.texts(value)), f"{value!r} can't be said"
        for value in case.forbidden:
            assert not any(_whole(follow(compiled, tokenizer, text)) for text in case.texts(value)), f"{value!r} is let through"


def _whole(matcher: Matcher | None) -> bool:
    return matcher is not None and (matcher.finished or EOS_ID in allowed(matcher))


def test_ignore_eos_goes_on_while_anything_else_can_come(compiler: LLGuidance, tokenizer: Tokenizer) -> None:
    open_end = follow(compiler.compile(Grammar("regex", "a+")), tokenizer, "a", ignore_eos=True)
    assert open_end is not None
    assert allowed(open_end) == set(tokenizer.encode_plain("a"))
    closed = follow(compiler.compile(Grammar("regex", "a")), tokenizer, "a", ignore_eos=True)
    assert closed is not None
    assert closed.finished


def test_matchers_of_one_grammar_do_not_share_their_place(compiler: LLGuidance, tokenizer: Tokenizer) -> None:
    compiled = compiler.compile(Grammar("choice", '["ax", "by"]'))
    one, other = compiled.matcher(ignore_eos=False), compiled.matcher(ignore_eos=False)
    a, b, x, y = tokenizer.encode_plain("abxy")
    assert one.accept(a)
    assert other.accept(b)
    assert allowed(one) == {x}
    assert allowed(other) == {y}
    assert not one.accept(y)
    assert allowed(one) == {x}


def test_what_must_come_is_forced_and_no_more(compiler: LLGuidance, tokenizer: Tokenizer) -> None:
    compiled = compiler.compile(Grammar("choice", '["a long one", "a long road", "b"]'))
    start = follow(compiled, tokenizer, "")
    assert start is not None
    assert start.forced() == []
    matcher = follow(compiled, tokenizer, "a")
    assert matcher is not None
    forced = matcher.forced()
    assert tokenizer.encode_plain(" long ")[: len(forced)] == forced
    assert len(forced) >= len(" long ") - 1
    assert all(matcher.accept(token_id) for token_id in forced)


def test_forced_tokens_are_those_of_the_tokenizer(tmp_path: Path) -> None:
    """Only what is canonical, with tokens of several characters that reach over the ends of what is forced."""
    path = write_directory(tmp_path / "model", byte_level(), eos_token="<|im_end|>", generation={"eos_token_id": [2]})
    tokenizer = Tokenizer.load(path)
    compiler = LLGuidance(tokenizer, tokenizer.vocab_size, frozenset({2}))
    arguments = closed_object(city={"type": "string"}, weather={"enum": ["the cat", "the mat"]})
    schema = closed_object(name={"type": "string"}, arguments=arguments)
    text = '{"name": "get_weather", "arguments": {"city": "Zürich", "weather": "the mat"}}'
    canonical = tokenizer.encode_plain(text)
    matcher = compiler.compile(Grammar("json_schema", json.dumps(schema))).matcher(ignore_eos=False)
    num_forced, at = 0, 0
    while at < len(canonical):
        forced = matcher.forced()
        assert canonical[at : at + len(forced)] == forced
        num_forced += len(forced)
        for token_id in forced or canonical[at : at + 1]:
            assert matcher.accept(token_id)
            at += 1
    assert matcher.finished
    assert num_forced > len(canonical) // 2


def test_deep_schemas_and_wide_repeats_compile_or_are_refused(compiler: LLGuidance, tokenizer: Tokenizer) -> None:
    """Values of any size are no reason to crash."""
    repeat = compiler.compile(Grammar("regex", "[a-z]{2,20000}"))
    assert follow(repeat, tokenizer, "a") is not None
    assert not _whole(follow(repeat, tokenizer, "a"))
    assert _whole(follow(repeat, tokenizer, "ab"))
    nested = compiler.compile(Grammar("regex", "([a-z]{1,129}){1,129}"))
    assert _whole(follow(nested, tokenizer, "abc"))
    deep: dict[str, Any] = {"type": "integer"}
    for _ in range(30):
        deep = {"type": "object", "properties": {"a": deep}, "required": ["a"], "additionalProperties": False}
    assert follow(compiler.compile(Grammar("json_schema", json.dumps(deep))), tokenizer, '{"a": {"a": ') is not None


AMBIGUOUS = "root ::= x\nx ::= x x | [a-z] | x x x"


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar("regex", "(c{1000}){1000}"),
        Grammar("regex", "b{2147483647}"),
        Grammar("regex", "[a-z]{20}(c{1000}){1000}"),
        Grammar("choice", json.dumps(["xy z" * 60_000])),
        Grammar("ebnf", AMBIGUOUS),
        Grammar("ebnf", 'root ::= x\nx ::= [a-z] x [a-z] | [a-z] x | ""'),
        Grammar(
            "structural_tag",
            json.dumps({"structures": [{"begin": f"<{i}>", "schema": {}, "end": ""} for i in range(4000)], "triggers": ["<"]}),
        ),
    ],
    ids=lambda grammar: f"{grammar.kind} {grammar.source[:30]}",
)
def test_the_work_of_a_mask_is_bounded_and_a_dear_grammar_ends_itself(compiler: LLGuidance, grammar: Grammar) -> None:
    """Work is counted, so it is refused, or ends within these tokens, on every machine, and in words that say what to do."""
    try:
        matcher = compiler.compile(grammar).matcher(ignore_eos=True)
    except InvalidRequestError as refusal:
        reason = refusal.message
    else:
        for _ in range(400):
            if not matcher.accept(min(allowed(matcher), default=0)):
                break
        reason = matcher.fault
    assert "it takes more work than is allowed; simplify it" in reason


def test_every_copy_of_a_matcher_says_why_none_can_go_on(compiler: LLGuidance) -> None:
    """One copy ends the lexer that they share while others have their masks already: their tokens are refused for it too."""
    compiled = compiler.compile(Grammar("regex", "[a-z]{20}(c{1000}){1000}"))
    matchers = [compiled.matcher(ignore_eos=False) for _ in range(3)]
    while all(masks := [allowed(matcher) for matcher in matchers]):
        assert all(matcher.accept(min(mask)) for matcher, mask in zip(matchers, masks, strict=True))
    assert any(masks), "none had its mask"
    for matcher, mask in zip(matchers, masks, strict=True):
        assert not mask or not matcher.accept(min(mask))
        assert "it takes more work than is allowed" in matcher.fault


def test_a_token_refused_for_a_lexer_that_a_copy_ended_has_that_reason() -> None:
    """The library refuses it without an error, seen on a large vocabulary, and tells of one with the next mask."""

    class Ended:
        error = ""

        def try_consume_tokens(self, _token_ids: list[int]) -> int:
            return 0

        def is_error(self) -> bool:
            return bool(self.error)

        def get_error(self) -> str:
            return self.error

        def compute_bitmask(self) -> None:
            self.error = "lexer error: too many expressions constructed"

    ended: Any = Ended()
    matcher = LLGuidanceMatcher(ended, np.zeros(1, dtype=np.int32), frozenset())
    assert not matcher.accept(1)
    assert "it takes more work than is allowed" in matcher.fault


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar("choice", json.dumps([f"word number {i * i}" for i in range(4000)])),
        Grammar("json_schema", json.dumps({"enum": [f"word number {i * i}" for i in range(4000)]})),
        Grammar("json_schema", json.dumps({"properties": {f"a{i}": {"type": "string"} for i in range(240)}})),
        Grammar("regex", r"(\p{L}+\s?){1,100}"),
        Grammar("regex", "[a-z]{1,5000}"),
    ],
    ids=lambda grammar: f"{grammar.kind} {grammar.source[:30]}",
)
def test_usual_large_grammars_are_within_the_limits_on_work(compiler: LLGuidance, grammar: Grammar) -> None:
    matcher = compiler.compile(grammar).matcher(ignore_eos=True)
    for _ in range(30):
        if matcher.finished:
            break
        assert matcher.accept(min(allowed(matcher)))
        assert not matcher.fault


@pytest.mark.parametrize(
    "grammar", [SCHEMA, TAG, Grammar("regex", "[a-z]*"), Grammar("ebnf", AMBIGUOUS)], ids=lambda grammar: grammar.kind
)
def test_the_first_mask_is_made_with_the_grammar(
    compiler: LLGuidance, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, grammar: Grammar
) -> None:
    """No step makes it. It is the one that the library gives, and the second follows from the first token."""
    asked: list[int] = []
    compiled = compiler.compile(grammar)
    copy = compiled.matcher(ignore_eos=False)._matcher  # type: ignore[attr-defined]
    expected = np.zeros(-(-VOCAB_SIZE // 32), dtype=np.int32)
    copy.unsafe_compute_mask_ptr(expected.ctypes.data, expected.nbytes)

    class Watched:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            if name == "unsafe_compute_mask_ptr":
                asked.append(1)
            return getattr(self.inner, name)

    matcher = compiled.matcher(ignore_eos=False)
    matcher._matcher = Watched(matcher._matcher)  # type: ignore[attr-defined]
    mask = np.zeros_like(expected)
    matcher.fill_mask(mask)
    assert np.array_equal(mask, expected)
    assert not asked
    assert matcher.accept(min(allowed(matcher)))
    allowed(matcher)
    assert len(asked) == 1


def test_words_of_the_librarys_inside_reach_no_client(compiler: LLGuidance) -> None:
    """An assertion of the library's comes as the text of a panic."""
    schema = {"properties": {f"a{i}": {"type": "integer", "minimum": i} for i in range(9000)}}
    with pytest.raises(InvalidRequestError) as caught:
        compiler.compile(Grammar("json_schema", json.dumps(schema)))
    assert not re.search("panic|assert|symbols|u16|lexer|fuel", caught.value.message)
    assert "can't be enforced" in caught.value.message
