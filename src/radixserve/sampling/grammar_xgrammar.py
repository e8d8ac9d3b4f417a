"""Grammars by xgrammar, which looks most of a mask up that it made when it compiled.

Masks cost less than llguidance's, compiling costs more. It forces text, not tokens, so that what is forced is tokenized here.
JSON is written in the one form that llguidance is given too: ", " and ": " and no other whitespace.
"""

import json
import re
from typing import Any

import numpy as np
import xgrammar

from radixserve.errors import InvalidRequestError
from radixserve.sampling.grammar import ban_unless_alone
from radixserve.sampling.grammar_sources import read_choices, read_schema, read_structural_tag
from radixserve.sampling.xgrammar_schema import check_schema
from radixserve.sampling_params import Grammar
from radixserve.text.tokenizer import Tokenizer


class XGrammar:
    """The backend."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_ids: frozenset[int]) -> None:
        """Raises InvalidRequestError for a model without an end: no answer could be whole."""
        if not eos_ids:
            raise InvalidRequestError("the model has no token that ends an answer: grammars need one", param="grammar")
        special = tokenizer.special_ids | eos_ids
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_ids = eos_ids
        # A token without bytes never matches text.
        tokens = [b"" if token_id in special else tokenizer.token_bytes[token_id] for token_id in range(vocab_size)]
        info = xgrammar.TokenizerInfo(
            tokens, vocab_type=xgrammar.VocabType.RAW, vocab_size=vocab_size, stop_token_ids=sorted(eos_ids)
        )
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def compile(self, grammar: Grammar) -> "XGrammarGrammar":
        try:
            compiled = self._compile(grammar)
        except (RuntimeError, ValueError) as error:
            raise _refused(grammar, str(error)) from error
        return XGrammarGrammar(compiled, self._tokenizer, self._vocab_size, self._eos_ids)

    def _compile(self, grammar: Grammar) -> xgrammar.CompiledGrammar:
        match grammar.kind:
            case "json_object":
                return self._compile_schema({"type": "object"})
            case "json_schema":
                return self._compile_schema(read_schema(grammar.source))
            case "regex":
                return self._compiler.compile_regex(grammar.source)
            case "choice":
                texts = (json.dumps(choice) for choice in read_choices(grammar.source))
                return self._compiler.compile_grammar("root ::= " + " | ".join(texts))
            case "ebnf" if "::=" in grammar.source:
                return self._compiler.compile_grammar(grammar.source)
            case "ebnf":
                return self._compiler.compile_lark(grammar.source)
            case "structural_tag":
                return self._compiler.compile_structural_tag(json.dumps(_structural_tag(grammar.source)))

    def _compile_schema(self, schema: dict[str, Any]) -> xgrammar.CompiledGrammar:
        check_schema(schema)
        return self._compiler.compile_json_schema(
            json.dumps(schema), any_whitespace=False, separators=(", ", ": "), strict_mode=False
        )


class XGrammarGrammar:
    """A compiled grammar."""

    def __init__(self, compiled: xgrammar.CompiledGrammar, tokenizer: Tokenizer, vocab_size: int, eos_ids: frozenset[int]) -> None:
        self._compiled = compiled
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_ids = eos_ids

    def matcher(self, *, ignore_eos: bool) -> "XGrammarMatcher":
        matcher = xgrammar.GrammarMatcher(self._compiled)
        return XGrammarMatcher(matcher, self._tokenizer, self._vocab_size, self._eos_ids, ignore_eos=ignore_eos)


class XGrammarMatcher:
    """One answer's place in its grammar."""

    def __init__(
        self,
        matcher: xgrammar.GrammarMatcher,
        tokenizer: Tokenizer,
        vocab_size: int,
        eos_ids: frozenset[int],
        *,
        ignore_eos: bool,
    ) -> None:
        self._matcher = matcher
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_ids = eos_ids
        self._ignore_eos = ignore_eos

    @property
    def finished(self) -> bool:
        if self._matcher.is_terminated():
            return True
        if not self._matcher.is_completed():
            return False
        mask = np.zeros(-(-self._vocab_size // 32), dtype=np.int32)
        self._matcher.fill_next_token_bitmask(mask[None])
        allowed = np.unpackbits(mask.view(np.uint8), count=self._vocab_size, bitorder="little")
        return int(allowed.sum()) == int(allowed[sorted(self._eos_ids)].sum())

    @property
    def fault(self) -> str:
        return ""

    def fill_mask(self, mask: np.ndarray) -> None:
        self._matcher.fill_next_token_bitmask(mask[None])
        if self._ignore_eos:
            ban_unless_alone(mask, self._eos_ids)

    def accept(self, token_id: int) -> bool:
        return self._matcher.accept_token(token_id)

    def forced(self) -> list[int]:
        """All tokens of the forced text but the last, which might reach further."""
        text = "" if self._matcher.is_terminated() else self._matcher.find_jump_forward_string()
        return self._tokenizer.encode_inner(text)[:-1] if text else []


def _structural_tag(source: str) -> dict[str, Any]:
    """In the terms of xgrammar, which has a language of its own for what may stand where."""
    tags = read_structural_tag(source)
    for tag in tags:
        check_schema(tag.schema)
    parts = [{"begin": tag.begin, "content": {"type": "json_schema", "json_schema": tag.schema}, "end": tag.end} for tag in tags]
    triggers = sorted({tag.trigger for tag in tags})
    return {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": triggers, "tags": parts}}


def _refused(grammar: Grammar, message: str) -> InvalidRequestError:
    """Its words without the place in its sources."""
    reason = re.sub(r"^\[[\d:]+\] \S+: ", "", message).partition("\n")[0]
    return InvalidRequestError(f"the {grammar.kind} can't be enforced: {reason:.300}", param="grammar")
