"""Grammars by llguidance: a lexer and an Earley parser that walk the vocabulary's trie at each step.

It refuses what it can't enforce, and limits what a grammar may cost by counting work, not time, so that a hostile grammar ends
with an error at the same place on every machine. JSON is written in one form, that of Python's `json.dumps` (", " and ": ", no
other whitespace): so keys and punctuation are forced, and no model can go on in blanks for ever.
"""

import json
from typing import TYPE_CHECKING

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from llguidance.gbnf_to_lark import any_to_lark

from radixserve.errors import InvalidRequestError
from radixserve.sampling.grammar import ban_unless_alone
from radixserve.sampling.grammar_sources import read_choices, read_schema
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
    """The backend."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_ids: frozenset[int]) -> None:
        if not eos_ids:
            raise InvalidRequestError("the model has no token that ends an answer: grammars need one", param="grammar")
        self._eos_ids = eos_ids
        vocabulary = TokenizerWrapper(_Vocabulary(tokenizer, vocab_size, eos_ids))
        self._tokenizer = LLTokenizer(vocabulary, n_vocab=vocab_size, eos_token=sorted(eos_ids))

    def compile(self, grammar: Grammar) -> "LLGuidanceGrammar":
        matcher = LLMatcher(self._tokenizer, _translate(grammar), log_level=0)
        if matcher.is_error():
            raise _refused(grammar, matcher.get_error())
        return LLGuidanceGrammar(matcher, self._eos_ids)


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
            ban_unless_alone(mask, self._unwanted_ids)

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


def _translate(grammar: Grammar) -> str:
    """The same in llguidance's terms. Raises InvalidRequestError for what is no grammar of its kind."""
    match grammar.kind:
        case "json_object":
            return LLMatcher.grammar_from_json_schema({"type": "object"}, overrides=_JSON_FORM)
        case "json_schema":
            return LLMatcher.grammar_from_json_schema(read_schema(grammar.source), overrides=_JSON_FORM)
        case "regex":
            return LLMatcher.grammar_from_regex(grammar.source)
        case "choice":
            texts = (json.dumps(choice) for choice in read_choices(grammar.source))
            return LLMatcher.grammar_from_lark("start: " + " | ".join(texts))
        case "ebnf":
            try:
                return LLMatcher.grammar_from_lark(any_to_lark(grammar.source))
            except Exception as error:  # its parser raises plain Exception too
                raise _refused(grammar, str(error)) from error
        case "structural_tag":
            raise InvalidRequestError("structural tags are not supported by this engine: use json_schema or ebnf", param="grammar")


def _refused(grammar: Grammar, reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"the {grammar.kind} can't be enforced: {reason}", param="grammar")
