"""Grammars by llguidance: a lexer and an Earley parser that walk the vocabulary's trie at each step.

It refuses what it can't enforce, and limits what a grammar may cost by counting work, not time, so that a hostile grammar ends
with an error at the same place on every machine. JSON is written in one form, that of Python's `json.dumps` (", " and ": ", no
other whitespace): so keys and punctuation are forced, and no model can go on in blanks for ever.
"""

import json
import re
from typing import TYPE_CHECKING

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, StructTag, TokenizerWrapper
from llguidance.gbnf_to_lark import any_to_lark

from radixserve.errors import InvalidRequestError
from radixserve.sampling.grammar_sources import read_choices, read_schema, read_structural_tag, refused_keyword
from radixserve.sampling_params import Grammar
from radixserve.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

_JSON_FORM: "JsonCompileOptions" = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "lenient": False,
    "coerce_one_of": False,
}
"""Of all JSON; comes after whatever a schema says of itself in `x-guidance`."""


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
        limits = LLParserLimits(verbose_errors=False)
        matcher = LLMatcher(self._tokenizer, self._translate(grammar), log_level=0, limits=limits)
        if matcher.is_error():
            raise _refused(grammar, matcher.get_error())
        return LLGuidanceGrammar(matcher, self._eos_ids)

    def _translate(self, grammar: Grammar) -> str:
        """The same in llguidance's terms. Raises InvalidRequestError for what is no grammar of its kind."""
        match grammar.kind:
            case "json_object":
                return LLMatcher.grammar_from_json_schema({"type": "object"}, overrides=_JSON_FORM)
            case "json_schema":
                return LLMatcher.grammar_from_json_schema(read_schema(grammar.source), overrides=_JSON_FORM)
            case "regex":
                return LLMatcher.grammar_from_regex(grammar.source)
            case "choice":
                texts = " | ".join(json.dumps(choice) for choice in read_choices(grammar.source))
                return LLMatcher.grammar_from_lark(f"start: CHOICE\nCHOICE: {texts}")
            case "ebnf":
                try:
                    return LLMatcher.grammar_from_lark(any_to_lark(grammar.source))
                except Exception as error:  # its parser raises plain Exception too
                    raise _refused(grammar, str(error)) from error
            case "structural_tag":
                return self._structural_tag(grammar.source)

    def _structural_tag(self, source: str) -> str:
        tags = [
            StructTag(trigger=tag.trigger, begin=tag.begin, grammar=tag.schema | {"x-guidance": dict(_JSON_FORM)}, end=tag.end)
            for tag in read_structural_tag(source)
        ]
        special = {tag.trigger in self._special_tokens for tag in tags}
        if len(special) > 1:
            raise InvalidRequestError(
                "the structural_tag mixes triggers that are special tokens with others: use one kind", param="grammar"
            )
        return StructTag.to_grammar(tags, assume_special=special == {True})


class LLGuidanceGrammar:
    """A compiled grammar. Copies of a matcher share what its compilation and all their steps have found out."""

    def __init__(self, matcher: LLMatcher, eos_ids: frozenset[int]) -> None:
        self._first = matcher
        self._eos_ids = eos_ids

    def matcher(self, *, ignore_eos: bool) -> "LLGuidanceMatcher":
        return LLGuidanceMatcher(self._first.deep_copy(), self._eos_ids if ignore_eos else frozenset())


class LLGuidanceMatcher:
    """One answer's place in its grammar."""

    def __init__(self, matcher: LLMatcher, unwanted_ids: frozenset[int]) -> None:
        self._matcher = matcher
        self._unwanted_ids = unwanted_ids

    @property
    def finished(self) -> bool:
        return self._matcher.is_stopped() and not self._matcher.is_error()

    @property
    def fault(self) -> str:
        return self._matcher.get_error().partition("\n")[0]

    def fill_mask(self, mask: np.ndarray) -> None:
        self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if self._matcher.is_error():  # a matcher in error would allow the end of the answer
            mask.fill(0)
        if self._unwanted_ids:
            _ban_unless_alone(mask, self._unwanted_ids)

    def accept(self, token_id: int) -> bool:
        return self._matcher.try_consume_tokens([token_id]) == 1

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


def _refused(grammar: Grammar, message: str) -> InvalidRequestError:
    """llguidance's words in one line. A keyword that it does not know how to enforce is named, with its place."""
    if grammar.kind == "json_schema" and (unknown := re.search(r"Unimplemented keys: (\[.*?\])", message)):
        return refused_keyword(read_schema(grammar.source), frozenset(json.loads(unknown[1])))
    if "oneOf constraints" in message:
        return refused_keyword(read_schema(grammar.source), frozenset({"oneOf"}))
    if "recursion limit" in message or "recursion depth" in message:
        return InvalidRequestError(f"the {grammar.kind} is nested too deeply: make it flatter", param="grammar")
    detail = re.search(r"^error: (.*)", message, re.MULTILINE)
    reason = detail[1] if detail else message.partition("\n")[0]
    return InvalidRequestError(f"the {grammar.kind} can't be enforced: {reason:.300}", param="grammar")
