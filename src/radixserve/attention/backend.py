"""What torch's operations ask of attention over the pool. `TorchBackend` serves every device and is the oracle.

A backend reads K and V in place, through the slot table. A decode is an extend of length 1: there is one entry point.
The native operations have their kernel for it and don't come through here (`models/native_operations.py`).
"""

from typing import Protocol, TypeVar

import torch

from radixserve.batch import ForwardBatch

Plan = TypeVar("Plan")
"""What all layers of a step share: masks, gathered slot indices."""


class AttentionBackend(Protocol[Plan]):
    """Attention of one model over one KV pool."""

    def plan(self, batch: ForwardBatch) -> Plan:
        """Prepares a step, once for all of its layers."""

    def store(self, layer: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """Writes `k` and `v`, [T, num_kv_heads, head_dim] each, into the `slots`, int64 [T], of one layer of the pool."""

    def attend(self, q: torch.Tensor, layer: int, plan: Plan, *, scale: float, window: int | None = None) -> torch.Tensor:
        """Attends causally over the pool, where K and V of this step are stored already.

        `q`: [T, num_heads, head_dim]; query head h reads KV head h // (num_heads // num_kv_heads). `scale` multiplies the scores.
        With a `window` a token sees itself and the window - 1 tokens before it. Returns [T, num_heads, head_dim] in q's dtype.
        K and V of this very step are read back from the pool, in its dtype, so that a reused token and a computed one are alike.
        """
