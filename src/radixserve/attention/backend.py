"""What a model asks of attention over the pool. Backends: torch (every device, the oracle).

A backend reads K and V in place, through the slot table, and writes the new ones where the batch says. A decode is an extend of
length 1: there is one entry point.
"""

from typing import Protocol

import torch

from radixserve.batch import ForwardBatch
from radixserve.cache.kv_pool import KVPool


class AttentionBackend(Protocol):
    """Attention of one model over one KV pool."""

    pool: KVPool

    def plan(self, batch: ForwardBatch) -> None:
        """Prepares what all layers share (masks, gathered slot indices) and keeps it in `batch.attention`. Once a step."""

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer: int,
        batch: ForwardBatch,
        *,
        scale: float,
        window: int | None = None,
    ) -> torch.Tensor:
        """Stores `k`, `v` [T, num_kv_heads, head_dim] into the pool at `batch.out_slots`, then attends causally.

        `q`: [T, num_heads, head_dim]; query head h reads KV head h // (num_heads // num_kv_heads). `scale` multiplies the scores.
        With a `window` a token sees itself and the window - 1 tokens before it. Returns [T, num_heads, head_dim] in q's dtype.
        K and V of this very step are read back from the pool, in its dtype, so that a reused token and a computed one are alike.
        """

    def attend(self, q: torch.Tensor, layer: int, batch: ForwardBatch, *, scale: float, window: int | None = None) -> torch.Tensor:
        """`forward`, for K and V of this step that are in the pool already."""
