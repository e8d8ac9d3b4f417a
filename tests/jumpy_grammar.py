"""A grammar for HashRunner: after some tokens it forces others. What a request is answered under it is known."""

import numpy as np

from radixserve.sampling_params import Grammar
from tests.hash_runner import VOCAB, prefix_hashes

JUMPY = Grammar("regex", "jumpy")
JUMPY_LEN = 30
"""Tokens after which an answer is whole."""


def run_after(token_id: int) -> list[int]:
    """What is forced after a token that the model chose."""
    return [(token_id * 7 + i) % VOCAB for i in range(token_id % 4)]


def jumpy_solo(prompt: list[int], max_tokens: int) -> tuple[list[int], int]:
    """What a request is answered alone, and how many of these tokens are chosen."""
    tokens, num_chosen = list(prompt), 0
    end = len(prompt) + min(max_tokens, JUMPY_LEN)
    while len(tokens) < end:
        tokens.append(prefix_hashes(tokens)[-1] % VOCAB)
        num_chosen += 1
        tokens += run_after(tokens[-1])
    return tokens[len(prompt) : end], num_chosen


class CountingMatcher:
    """Is finished after `length` tokens. It allows every token, and where it is `jumpy` none but those that it forces."""

    fault = ""

    def __init__(self, length: int, *, jumpy: bool) -> None:
        self.left = length
        self.jumpy = jumpy
        self.run: list[int] = []

    @property
    def finished(self) -> bool:
        return self.left == 0

    def fill_mask(self, mask: np.ndarray) -> None:
        mask.fill(0 if self.run else -1)
        for token_id in self.run[:1]:
            mask.view(np.uint32)[token_id // 32] = 1 << token_id % 32

    def accept(self, token_id: int) -> bool:
        if self.left == 0 or self.run[:1] not in ([], [token_id]):
            return False
        self.left -= 1
        if self.jumpy:
            self.run = self.run[1:] if self.run else run_after(token_id)
        return True

    def forced(self) -> list[int]:
        return list(self.run)


class JumpyGrammar:
    """JUMPY, compiled."""

    def matcher(self, *, ignore_eos: bool) -> CountingMatcher:
        return CountingMatcher(JUMPY_LEN, jumpy=True)
