"""What a model asks of attention over the pool. Backends: torch (every device, the oracle) and cpu (the native kernel).

A backend reads K and V in place, through the slot table; the model's operations have stored the new ones there before. A decode is
an extend of length 1: there is one entry point.
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

    def attend(self, q: torch.Tensor, layer: int, batch: ForwardBatch, *, scale: float, window: int | None = None) -> torch.Tensor:
        """Attends causally over the pool, K and V of this step included: whoever computes them has stored them before.

        `q`: [T, num_heads, head_dim]; query head h reads KV head h // (num_heads // num_kv_heads). `scale` multiplies the scores.
        With a `window` a token sees itself and the window - 1 tokens before it. Returns [T, num_heads, head_dim] in q's dtype.
        K and V of this very step are read back from the pool, in its dtype, so that a reused token and a computed one are alike.
        """
