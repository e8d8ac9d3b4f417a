"""What the engine asks of grammars: to be compiled once, and to say at each token which may come next.

Every request gets a matcher of its own, which follows that request's tokens and no other's. So the tree may share what a request's
prompt computed, and never what its grammar allows.
"""

from typing import Protocol

import numpy as np

from radixserve.sampling_params import Grammar


class Matcher(Protocol):
    """Where one answer stands in its grammar."""

    @property
    def finished(self) -> bool:
        """Whether the answer is whole and nothing can follow."""

    @property
    def fault(self) -> str:
        """Why the matcher can't go on, and a remedy: its work reached a limit. Empty while it can; then its masks are empty too."""

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


class GrammarCompiler(Protocol):
    """Ready for one vocabulary. Safe to use from several threads."""

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        """Raises InvalidRequestError (param "grammar") that names what is wrong, or what can't be enforced."""
