"""Grammars that allow everything: a replay knows the tokens already, and is told by messages when a grammar was ready."""

import numpy as np

from radixserve.engine.grammars import Grammars
from radixserve.grammar import CompiledGrammar
from radixserve.req import Req
from radixserve.sampling_params import Grammar


class FreeGrammar:
    """Backend, grammar and matcher in one; it has no state."""

    @property
    def finished(self) -> bool:
        return False

    @property
    def fault(self) -> str:
        return ""

    def compile(self, grammar: Grammar) -> "FreeGrammar":
        return self

    def matcher(self, *, ignore_eos: bool) -> "FreeGrammar":
        return self

    def fill_mask(self, mask: np.ndarray) -> None:
        mask[:] = -1

    def accept(self, token_id: int) -> bool:
        return True

    def forced(self) -> list[int]:
        return []


class FreeGrammars(Grammars):
    """Keeps and forgets grammars as the recorded engine did, but compiles none and never speaks of its own accord.

    `forced_ids`: the tokens that were forced in the step that is replayed, by arrival number.
    """

    def __init__(self) -> None:
        super().__init__(FreeGrammar)
        self.forced_ids: dict[int, list[int]] = {}

    def forced(self, req: Req) -> list[int]:
        return self.forced_ids.get(req.arrival, [])

    def compile(self, grammar: Grammar) -> None:
        self._made[grammar] = FreeGrammar()

    def give_up(self, grammar: Grammar) -> bool:
        """A recorded message may still tell of its end."""
        return False

    def keep(self, grammar: Grammar) -> CompiledGrammar:
        self._made.setdefault(grammar, FreeGrammar())
        return super().keep(grammar)
