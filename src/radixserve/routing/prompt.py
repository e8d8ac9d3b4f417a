"""A prompt as a router sees it: names of its prefixes, and how many tokens it has.

A name stands for a whole prefix, from the namespace on: two prompts have one in common only when they are equal up to there, under
the same adapter and salt. Names are the same in every process: they leave out which load of an adapter it is, since every replica
counts its own. A replica that unloads one evicts all that was cached under it, and reports that.
"""

from dataclasses import dataclass

from radixserve.cache.fingerprints import Point, go_on, start
from radixserve.tokens import SHARED, ExtraKey, token_len

PAGE_LEN = 64
"""Tokens from one name to the next: what is shared is known so finely."""


def start_of(extra_key: ExtraKey) -> Point:
    """The empty prefix of a namespace, as every replica names it."""
    return start(extra_key._replace(adapter_load=0))


@dataclass(frozen=True, slots=True)
class Prompt:
    """`pages[i]` names the first (i + 1) * PAGE_LEN tokens; what is left at the end has no name."""

    pages: list[int]
    num_tokens: int

    @classmethod
    def of(cls, tokens: bytes, extra_key: ExtraKey = SHARED) -> "Prompt":
        """The prompt of int32 `tokens`. About 10 ns a token."""
        fingerprints, _ = go_on(start_of(extra_key), tokens)
        return cls(fingerprints[PAGE_LEN - 1 :: PAGE_LEN].tolist(), token_len(tokens))

    def num_missing(self, num_held: int) -> int:
        """Tokens to compute where the first `num_held` pages are held; the last token always is."""
        return max(self.num_tokens - num_held * PAGE_LEN, 1)
