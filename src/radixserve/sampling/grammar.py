"""What a grammar backend is: a library that turns a grammar into masks over the vocabulary.

A backend compiles a `Grammar` once; every request that uses it gets a matcher of its own, which follows that request's tokens and
no other's. So the tree may share what a request's prompt computed, and never what its grammar allows.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Protocol

import numpy as np

from radixserve.errors import ConfigError
from radixserve.sampling_params import Grammar
from radixserve.text.tokenizer import Tokenizer


class Matcher(Protocol):
    """Where one answer stands in its grammar."""

    @property
    def finished(self) -> bool:
        """Whether the answer is whole and nothing can follow."""

    @property
    def fault(self) -> str:
        """Why the matcher can't go on: a limit of the library was hit. Empty while it can; then its masks are empty too."""

    def fill_mask(self, mask: np.ndarray) -> None:
        """Writes which tokens may come next: one bit a token, lowest first, into `mask`, int32 [ceil(V / 32)]."""

    def accept(self, token_id: int) -> bool:
        """Moves on by a token; False, and nothing moves, if it may not come next."""

    def forced(self) -> list[int]:
        """The tokens that must come next: those into which the tokenizer would cut the text that must, as far as that is certain.

        What is left of that text is not certain, since a token may reach beyond it. Empty where there is a choice.
        """


class CompiledGrammar(Protocol):
    """A grammar against one vocabulary; never changes, and is shared by all requests that ask for an equal one."""

    def matcher(self, *, ignore_eos: bool) -> Matcher:
        """A matcher at the beginning of an answer. `ignore_eos`: its masks let the answer end only where nothing else can come."""


class GrammarBackend(Protocol):
    """A grammar library, ready for one vocabulary. Safe to use from several threads."""

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        """Raises InvalidRequestError (param "grammar") that names what is wrong, or what can't be enforced."""


BACKENDS = {"llguidance": "LLGuidance", "xgrammar": "XGrammar"}
"""Names of the backends and their classes. Only the one that is asked for is imported: it brings its library."""

LoadBackend = Callable[[Tokenizer, int, frozenset[int]], GrammarBackend]
"""Makes a backend from tokenizer, vocabulary size of the model (V), and the ids that end an answer. Takes a second."""


def ban_unless_alone(mask: np.ndarray, token_ids: frozenset[int]) -> None:
    """Takes tokens out of a mask, int32 [ceil(V / 32)], in place, unless nothing would be left."""
    kept = mask.copy()
    bits = kept.view(np.uint32)
    for token_id in token_ids:
        bits[token_id // 32] &= ~np.uint32(1 << token_id % 32)
    if kept.any():
        mask[:] = kept


def find_backend(name: str) -> LoadBackend:
    """The backend of that name. Raises ConfigError for one that is not installed."""
    try:
        module = import_module(f"radixserve.sampling.grammar_{name}")
    except ModuleNotFoundError as error:
        if error.name not in BACKENDS:
            raise
        raise ConfigError(f"--grammar-backend is {name!r}, which is not installed: pip install 'radixserve[{name}]'") from error
    load: LoadBackend = getattr(module, BACKENDS[name])
    return load
