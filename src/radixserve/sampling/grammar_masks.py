"""Masks of the grammars in one batch, and their application to its logits."""

from collections.abc import Sequence

import numpy as np
import torch

from radixserve.req import Req


class GrammarMasks:
    """Which tokens the grammars of a batch allow next, for the rows that have one. Known before their logits are."""

    def __init__(self, reqs: Sequence[Req], vocab_size: int) -> None:
        """`reqs`: [R], the batch's `sampled`. Asks every matcher, some 100 us each."""
        self._rows = [row for row, req in enumerate(reqs) if req.matcher is not None]
        self._masks = np.zeros((len(self._rows), -(-vocab_size // 32)), dtype=np.int32)
        for mask, row in zip(self._masks, self._rows, strict=True):
            matcher = reqs[row].matcher
            assert matcher is not None
            matcher.fill_mask(mask)

    def apply(self, logits: torch.Tensor) -> None:
        """Bans every token that is not allowed: `logits` [R, V] of these rows become -inf there, in place."""
        allowed = np.unpackbits(self._masks.view(np.uint8), axis=1, count=logits.shape[1], bitorder="little")
        banned = torch.from_numpy(allowed == 0).to(logits.device)
        if len(self._rows) == len(logits):
            logits.masked_fill_(banned, -torch.inf)
        else:
            index = torch.tensor(self._rows, device=logits.device)
            logits[index] = logits[index].masked_fill_(banned, -torch.inf)
