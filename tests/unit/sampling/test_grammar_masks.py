"""Masks applied to the logits of a batch."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from radixserve.req import Req
from radixserve.sampling.grammar_masks import GrammarMasks
from radixserve.sampling.sampler import Sampler
from radixserve.sampling.select import NO_TOKEN

MakeReq = Callable[..., Req]


@dataclass
class FixedMatcher:
    """Allows the same tokens always."""

    allowed: list[int]
    finished = False
    fault = ""

    def fill_mask(self, mask: np.ndarray) -> None:
        mask.fill(0)
        for token_id in self.allowed:
            mask.view(np.uint32)[token_id // 32] |= np.uint32(1 << token_id % 32)

    def accept(self, token_id: int) -> bool:
        return True

    def forced(self) -> list[int]:
        return []


@pytest.mark.parametrize("vocab_size", [31, 32, 33, 70])
@pytest.mark.parametrize("rows", [[0], [1, 2], [0, 1, 2]])
def test_only_what_is_allowed_keeps_its_logit(make_req: MakeReq, vocab_size: int, rows: list[int]) -> None:
    reqs = [make_req(row) for row in range(3)]
    allowed = [0, 5, vocab_size - 1]
    for row in rows:
        reqs[row].matcher = FixedMatcher(allowed)
    before = torch.randn(3, vocab_size)
    after = before.clone()
    GrammarMasks(reqs, vocab_size).apply(after)
    for row in range(3):
        if row in rows:
            assert torch.isfinite(after[row]).nonzero()[:, 0].tolist() == allowed
            assert torch.equal(after[row, allowed], before[row, allowed])
        else:
            assert torch.equal(after[row], before[row])


def test_a_row_without_a_token_gets_none_and_the_others_theirs(make_req: MakeReq) -> None:
    reqs = [make_req(0, temperature=0.0), make_req(1, temperature=1.0, top_k=3, seed=1), make_req(2, temperature=0.0, logprobs=1)]
    reqs[0].matcher, reqs[1].matcher, reqs[2].matcher = FixedMatcher([]), FixedMatcher([7]), FixedMatcher([9])
    logits = torch.zeros(3, 40)
    logits[2, 3] = 5.0
    result = Sampler().sample(logits, reqs, GrammarMasks(reqs, 40))
    assert result.token_ids == [NO_TOKEN, 7, 9]
    assert result.logprobs[2] is not None
    assert result.logprobs[2].top[0][0] == 3  # the model's own likeliest, banned or not
