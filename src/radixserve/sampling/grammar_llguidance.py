"""Grammars by llguidance: a lexer and an Earley parser that walk the vocabulary's trie at each step.

It refuses what it can't enforce, and limits what a grammar may cost by counting work, not time, so that a hostile grammar ends
with an error at the same place on every machine, and no step waits for it beyond these limits. JSON is written in one form, that of
Python's `json.dumps` (", " and ": ", no other whitespace): so keys and punctuation are forced, and no model can go on in blanks
for ever.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, StructTag, TokenizerWrapper
from llguidance.gbnf_to_lark import any_to_lark

from radixserve.errors import InvalidRequestError
from radixserve.sampling import embedded_schemas
from radixserve.sampling.json_form import JSON_FORM
from radixserve.sampling_params import Grammar
from radixserve.text.grammar_sources import read_choices, read_schema, read_structural_tag
from radixserve.text.schemas.enforceable import enforceable
from radixserve.text.schemas.walk import shown, walk
from radixserve.text.tokenizer import Tokenizer
from radixserve.text.tools.lark import ANY_OBJECT

ROW_MAX_ITEMS = 1000
"""Of the Earley parser, at one place of a text: an object of 250 optional properties has so many. An ambiguous grammar has
more with each token, and its time for one grows with their cube."""
STEP_MAX_ITEMS = 3000
"""Of the parser, for one mask: those of the places that its tokens lead to."""
STEP_LEXER_FUEL = 200_000
"""Parts of expressions that one mask, or one token, may make: those of a class of all letters, a hundred times, take most of it."""
INITIAL_LEXER_FUEL = 200_000
"""The same for the first mask, which no step waits for: it is made with the grammar."""


class LLGuidance:
    """The compiler of grammars for one vocabulary. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_ids: frozenset[int]) -> None:
        """Raises InvalidRequestError for a model without an end: no answer could be whole."""
        if not eos_ids:
            raise InvalidRequestError("the model has no token that ends an answer: grammars need one", param="grammar")
        self._eos_ids = eos_ids
        vocabulary = TokenizerWrapper(_Vocabulary(tokenizer, vocab_size, eos_ids))
        special_ids = (token_id for token_id in tokenizer.special_ids if token_id < vocab_size)
        self._special_tokens = frozenset(tokenizer.token_bytes[token_id].decode() for token_id in special_ids)
        self._tokenizer = LLTokenizer(vocabulary, n_vocab=vocab_size, eos_token=sorted(eos_ids))

    def compile(self, grammar: Grammar) -> "LLGuidanceGrammar":
        """Makes the first mask too, since it may be the dearest: no step has to."""
        matcher = self._matcher(self._translate(grammar))
        first_mask = np.zeros(-(-self._tokenizer.vocab_size // 32), dtype=np.int32)
        if not matcher.is_error():
            matcher.unsafe_compute_mask_ptr(first_mask.ctypes.data, first_mask.nbytes)
        if matcher.is_error():
            raise self._refused(grammar, matcher.get_error())
        return LLGuidanceGrammar(matcher, first_mask, self._eos_ids)

    def _matcher(self, translated: str) -> LLMatcher:
        limits = LLParserLimits(
            initial_lexer_fuel=INITIAL_LEXER_FUEL,
            step_lexer_fuel=STEP_LEXER_FUEL,
            step_max_items=STEP_MAX_ITEMS,
            max_items_in_row=ROW_MAX_ITEMS,
            verbose_errors=False,
        )
        return LLMatcher(self._tokenizer, translated, log_level=0, limits=limits)

    def _translate(self, grammar: Grammar) -> str:
        """The same in llguidance's terms. Raises InvalidRequestError for what is no grammar of its kind."""
        match grammar.kind:
            case "json_object":
                return _schema_grammar(ANY_OBJECT)
            case "json_schema":
                return _schema_grammar(enforceable(read_schema(grammar.source)))
            case "regex":
                return LLMatcher.grammar_from_regex(grammar.source)
            case "choice":
                texts = " | ".join(json.dumps(choice) for choice in read_choices(grammar.source))
                return LLMatcher.grammar_from_lark(f"start: CHOICE\nCHOICE: {texts}")
            case "ebnf":
                try:
                    return LLMatcher.grammar_from_lark(any_to_lark(embedded_schemas.enforced(grammar.source)))
                except InvalidRequestError:
                    raise
                except Exception as error:  # its parser raises plain Exception too
                    raise InvalidRequestError(f"the ebnf can't be enforced: {_reason(str(error))}", param="grammar") from error
            case "structural_tag":
                return self._structural_tag(grammar.source)

    def _structural_tag(self, source: str) -> str:
        tags = [
            StructTag(
                trigger=tag.trigger,
                begin=tag.begin,
                grammar=enforceable(tag.schema, tag.subject) | {"x-guidance": dict(JSON_FORM)},
                end=tag.end,
            )
            for tag in read_structural_tag(source)
        ]
        special = {tag.trigger in self._special_tokens for tag in tags}
        if len(special) > 1:
            raise InvalidRequestError(
                "the structural_tag mixes triggers that are special tokens with others: use one kind", param="grammar"
            )
        return StructTag.to_grammar(tags, assume_special=special == {True})

    def _refused(self, grammar: Grammar, message: str) -> InvalidRequestError:
        """llguidance's words in one line, with the schema that is at fault where there are several."""
        for subject, schema in _schemas(grammar):
            alone = self._matcher(_schema_grammar(schema))
            if alone.is_error():
                return _refused_schema(subject, schema, alone.get_error())
        return InvalidRequestError(f"the {grammar.kind} can't be enforced: {_reason(message)}", param="grammar")


class LLGuidanceGrammar:
    """A compiled grammar. Copies of a matcher share what its compilation and all their steps have found out, and its lexer's end:
    where one of them came to a limit of the lexer, none can go on.
    """

    def __init__(self, matcher: LLMatcher, first_mask: np.ndarray, eos_ids: frozenset[int]) -> None:
        """`first_mask`: int32 [ceil(V / 32)], of a matcher at its beginning."""
        self._first = matcher
        self._first_mask = first_mask
        self._eos_ids = eos_ids

    def matcher(self, *, ignore_eos: bool) -> "LLGuidanceMatcher":
        return LLGuidanceMatcher(self._first.deep_copy(), self._first_mask, self._eos_ids if ignore_eos else frozenset())


class LLGuidanceMatcher:
    """One answer's place in its grammar."""

    def __init__(self, matcher: LLMatcher, first_mask: np.ndarray, unwanted_ids: frozenset[int]) -> None:
        self._matcher = matcher
        self._first_mask: np.ndarray | None = first_mask
        self._unwanted_ids = unwanted_ids

    @property
    def finished(self) -> bool:
        return self._matcher.is_stopped() and not self._matcher.is_error()

    @property
    def fault(self) -> str:
        error = self._matcher.get_error()
        return _reason(error) if error else ""

    def fill_mask(self, mask: np.ndarray) -> None:
        if self._first_mask is not None:
            mask[:] = self._first_mask
        else:
            self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if self._matcher.is_error():  # a matcher in error would allow the end of the answer
            mask.fill(0)
        if self._unwanted_ids:
            _ban_unless_alone(mask, self._unwanted_ids)

    def accept(self, token_id: int) -> bool:
        self._first_mask = None
        accepted = self._matcher.try_consume_tokens([token_id]) == 1
        if not accepted and not self._matcher.is_error():
            self._matcher.compute_bitmask()  # tells the error, where another copy has ended the lexer that they share
        return accepted

    def forced(self) -> list[int]:
        return self._matcher.compute_ff_tokens()


class _Vocabulary:
    """What llguidance asks of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_ids: frozenset[int]) -> None:
        self.eos_token_id = min(eos_ids)
        self.bos_token_id = tokenizer.bos_id
        self.tokens = [tokenizer.token_bytes[token_id] for token_id in range(vocab_size)]
        self.special_token_ids = sorted(token_id for token_id in tokenizer.special_ids if token_id < vocab_size)
        self._encode = tokenizer.encode_inner

    def __call__(self, text: str | bytes) -> list[int]:
        if isinstance(text, bytes):
            raise TypeError("only whole characters are tokenized")  # llguidance asks which of the two to give
        return self._encode(text)


def _ban_unless_alone(mask: np.ndarray, token_ids: frozenset[int]) -> None:
    """Takes tokens out of a mask, int32 [ceil(V / 32)], in place, unless nothing would be left."""
    kept = mask.copy()
    bits = kept.view(np.uint32)
    for token_id in token_ids:
        bits[token_id // 32] &= ~np.uint32(1 << token_id % 32)
    if kept.any():
        mask[:] = kept


def _schema_grammar(schema: dict[str, Any]) -> str:
    return LLMatcher.grammar_from_json_schema(schema, overrides=JSON_FORM)


def _schemas(grammar: Grammar) -> Iterator[tuple[str, dict[str, Any]]]:
    """The schemas of a grammar, as it was compiled, with what errors call them."""
    match grammar.kind:
        case "json_schema":
            yield "the json_schema", enforceable(read_schema(grammar.source))
        case "structural_tag":
            yield from ((tag.subject, enforceable(tag.schema)) for tag in read_structural_tag(grammar.source))
        case "ebnf":
            for schema in embedded_schemas.schemas(embedded_schemas.enforced(grammar.source)):
                yield embedded_schemas.subject(schema), schema


_UNPLACED = {
    "oneOf constraints": ({"oneOf"}, "more than one of its schemas may hold; use anyOf, or tell them apart by a const"),
    "min/maxProperties": ({"minProperties", "maxProperties"}, "some properties that it counts may be left out; demand them all"),
}
"""Words of llguidance about keywords whose place it does not name, those keywords, and the reason."""


def _refused_schema(subject: str, schema: dict[str, Any], message: str) -> InvalidRequestError:
    for words, (keywords, reason) in _UNPLACED.items():
        if words in message:
            places = [(keyword, place) for place, here in walk(schema) for keyword in here if keyword in keywords]
            keyword = places[0][0] if places else min(keywords)
            where = " or ".join(place for _, place in places[:3])
            return InvalidRequestError(f'"{keyword}" at {shown(where)} of {subject} can\'t be enforced: {reason}', param="grammar")
    return InvalidRequestError(f"{subject} can't be enforced: {_reason(message)}", param="grammar")


_TOO_COSTLY = ("too many", "Too many", "Current row has", "fuel", "too big", "too large")
"""Words of llguidance about its limits."""


def _reason(message: str) -> str:
    """llguidance's words in one line and, where they are about its inside, in ours."""
    if "recursion limit" in message or "recursion depth" in message:
        return "it is nested too deeply; make it flatter"
    if "NoExtension" in message:
        return "no answer can satisfy it; look for a $ref that leads back to itself, and for bounds that exclude each other"
    if "Regex is empty" in message:
        return "no text satisfies its patterns, formats and lengths together"
    if any(words in message for words in _TOO_COSTLY):
        return "it takes more work than is allowed; simplify it"
    if "panic" in message:  # an assertion of the library's
        return "it is too large; send fewer or smaller parts"
    detail = re.search(r"^error: (.*)", message, re.MULTILINE)
    return f"{detail[1] if detail else message.partition(chr(10))[0]:.300}"
