"""Whatever schema is enforced: what its grammar lets through satisfies it, by the word of a validator."""

import json
import random
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator

from radixserve.errors import InvalidRequestError
from radixserve.grammar import CompiledGrammar
from radixserve.json_text import read_json
from radixserve.sampling.grammar_llguidance import LLGuidance
from radixserve.sampling_params import Grammar
from radixserve.text.schemas.formats import PATTERNS
from radixserve.text.tokenizer import Tokenizer
from tests.tiny_models import EOS_ID, VOCAB_SIZE

MAX_TOKENS = 120
CLOSING = (b'"', b"}", b"]", b"\\", b"u", b"0", b"a")
"""Tokens that are tried often: they end something, or begin a second spelling of it."""

EDGES = [
    0,
    1,
    -1,
    5,
    2**53,
    2**53 + 1,
    -(2**53) - 1,
    2**60,
    2**63 - 1,
    -(2**63),
    2**63,
    2**64 - 1,
    2**64,
    10**22,
    1234567890123456789,
]
WHOLE = st.sampled_from(EDGES) | st.integers(-1000, 1000)
NUMBERS = WHOLE | st.sampled_from([0.5, -0.1, 1e-7, 1e15, 1e16, 1e22, 1e30, 1e300, 5e-324, 0.30000000000000004, -1e30, 5.0])
KEYS = st.sampled_from(["a", "b", "ab", "é", '"', "\\", "\n", "\x01", "", "a/b"])
TEXTS = st.text(st.sampled_from('ab 0é\n\r\t\u2028\x01\x7f"\\/😀'), max_size=3)
FIXED = (
    st.none() | st.booleans() | NUMBERS | TEXTS | st.lists(NUMBERS | TEXTS, max_size=2) | st.dictionaries(KEYS, NUMBERS, max_size=2)
)
EXPRESSIONS = st.sampled_from(
    [
        "^.$",
        "^.{0,2}$",
        "a",
        "^a|b$",
        "b$",
        "^[^a-c]$",
        "^[^a&&b]$",
        "^[[a]$",
        r"^\s$",
        r"^\S$",
        r"^\d+$",
        r"^\W$",
        r"^[\s\S]$",
        r"^[^\s]$",
        r"^[\w.-]+$",
    ]
)


def some(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of the keywords."""
    return st.fixed_dictionaries({}, optional=keywords)


def typed(name: str, **keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return some(**keywords).map(lambda rest: {"type": name, **rest})


BOUNDS = {"minimum": NUMBERS, "maximum": NUMBERS, "exclusiveMinimum": NUMBERS, "exclusiveMaximum": NUMBERS}
SMALL = st.integers(0, 3)
SCALARS = st.one_of(
    typed("integer", **BOUNDS, multipleOf=st.sampled_from([1, 2, 3, 10, 7.0])),
    typed("number", **BOUNDS, multipleOf=st.sampled_from([0.1, 0.5, 2, 0.01])),
    typed("string", minLength=SMALL, maxLength=SMALL, pattern=EXPRESSIONS),
    st.sampled_from(sorted(PATTERNS)).map(lambda name: {"type": "string", "format": name}),
    some(const=FIXED),
    some(enum=st.lists(FIXED, min_size=1, max_size=3)),
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, True, False, {"type": ["integer", "null"], "minimum": 2**63}]),
)


def composed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = typed(
        "object",
        properties=st.dictionaries(KEYS, inner, max_size=3),
        required=st.lists(KEYS, max_size=2, unique=True),
        additionalProperties=inner,
        patternProperties=st.dictionaries(st.sampled_from(["^a", "b$", "^.$"]), inner, max_size=1),
        minProperties=SMALL,
        maxProperties=SMALL,
        uniqueItems=st.just(False),
    )
    arrays = typed("array", items=inner, prefixItems=st.lists(inner, min_size=1, max_size=2), minItems=SMALL, maxItems=SMALL)
    several = st.lists(inner, min_size=1, max_size=2)
    return objects | arrays | some(anyOf=several) | some(allOf=several) | some(oneOf=several)


SCHEMAS = st.recursive(SCALARS, composed, max_leaves=4).filter(lambda schema: isinstance(schema, dict))


def walk(compiled: CompiledGrammar, tokenizer: Tokenizer, seed: int) -> str | None:
    """A text that the grammar lets through, each token drawn from those allowed; None if it has no end in time."""
    chance = random.Random(seed)
    matcher = compiled.matcher(ignore_eos=False)
    mask = np.zeros(-(-VOCAB_SIZE // 32), dtype=np.int32)
    token_ids: list[int] = []
    while len(token_ids) < MAX_TOKENS and not matcher.finished:
        matcher.fill_mask(mask)
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little", count=VOCAB_SIZE)).tolist()
        if not allowed or (EOS_ID in allowed and chance.random() < 0.5):
            break
        closing = [token_id for token_id in allowed if tokenizer.token_bytes[token_id] in CLOSING]
        chosen = chance.choice(closing if closing and chance.random() < 0.5 else allowed)
        if chosen == EOS_ID:
            break
        assert matcher.accept(chosen)
        token_ids.append(chosen)
    matcher.fill_mask(mask)
    whole = matcher.finished or bool(mask.view(np.uint32)[EOS_ID // 32] >> EOS_ID % 32 & 1)
    return tokenizer.decode(token_ids) if whole else None


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(schema=SCHEMAS, seeds=st.lists(st.integers(0, 2**32), min_size=4, max_size=4))
def test_what_a_grammar_lets_through_satisfies_its_schema(
    compiler: LLGuidance, tokenizer: Tokenizer, schema: dict[str, Any], seeds: list[int]
) -> None:
    try:
        compiled = compiler.compile(Grammar("json_schema", json.dumps(schema)))
    except InvalidRequestError:
        return
    validator = Draft202012Validator(schema, validate_formats=True)
    for seed in seeds:
        text = walk(compiled, tokenizer, seed)
        if text is not None and (value := _read(text)) is not None:
            assert validator.is_valid(value), text


def _read(text: str) -> Any:
    """The value; None where it is null, or holds a number beyond a double, which JSON has and readers have not."""
    try:
        return read_json(text)
    except ValueError:
        return None
