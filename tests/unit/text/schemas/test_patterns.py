"""Patterns in another dialect never match what they do not match in their own."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator
from llguidance import LLMatcher, LLTokenizer

from radixserve.text.schemas.formats import PATTERNS
from radixserve.text.schemas.patterns import portable

BYTES = LLTokenizer("byte")
ESCAPES = [r"\s", r"\S", r"\d", r"\D", r"\w", r"\W"]
PIECES = st.sampled_from([".", "a", "é", r"\.", r"\n", r"\u0041", *ESCAPES])
IN_BRACKETS = st.lists(st.sampled_from(["a-c", "&&", "[", "~", r"\]", ".", *ESCAPES]), min_size=1, max_size=3)
CLASSES = st.tuples(st.sampled_from(["[", "[^"]), IN_BRACKETS).map(lambda parts: parts[0] + "".join(parts[1]) + "]")
CHARS = st.sampled_from("a bB0&~[].\n\r\t\x0b\x1c\x85\xa0\u2028\u2029\ufeff٣é😀_-\u200d")


def rust(pattern: str, text: str) -> bool:
    """Whether the grammar library lets the text through."""
    matcher = LLMatcher(BYTES, LLMatcher.grammar_from_regex(pattern), log_level=0)
    token_ids = BYTES.tokenize_str(text)
    return bool(matcher.try_consume_tokens(token_ids) == len(token_ids) and matcher.is_accepting())


def ecma(pattern: str, text: str) -> bool:
    return Draft202012Validator({"pattern": pattern}).is_valid(text)


@given(pattern=PIECES | CLASSES, char=CHARS)
def test_what_matches_in_one_dialect_matches_in_all(pattern: str, char: str) -> None:
    if rust(portable(pattern), char):
        assert ecma(f"^{pattern}$", char)


@pytest.mark.parametrize("name", sorted(PATTERNS))
@given(data=st.data())
def test_formats_match_nothing_that_a_validator_refuses(name: str, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(re.compile(PATTERNS[name][:-1] + r"\Z", re.ASCII)))
    assert Draft202012Validator({"format": name}, validate_formats=True).is_valid(text)


@pytest.mark.parametrize("pattern", [r"\A", r"\cA", "(?i)a", "(?=a)", "[]", "[^]", "[a--b]", r"\1", "a\\"])
def test_what_dialects_read_differently_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        portable(pattern)
