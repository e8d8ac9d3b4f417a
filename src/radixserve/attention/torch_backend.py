"""Attention over the pool by torch's `scaled_dot_product_attention`: every device, every float dtype, the oracle of all others.

K and V of a group are gathered out of the pool, and the query heads that share a KV head become rows of one matrix, which on a
CPU is several times faster than SDPA's own `enable_gqa`. `docs/design/torch-attention.md` has the figures.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention

from radixserve.attention.torch_plan import Group, StepPlan
from radixserve.batch import ForwardBatch
from radixserve.cache.kv_pool import KVPool


class TorchBackend:
    """An `AttentionBackend`. The workspace that K and V are gathered into is kept: fresh memory costs as much as attention."""

    def __init__(self, pool: KVPool) -> None:
        self.pool = pool
        self._workspace = pool.k_buffer.new_empty((2, 0, *pool.k_buffer.shape[2:]))

    def plan(self, batch: ForwardBatch) -> StepPlan:
        """See `AttentionBackend`. The step's groups are made when its first layer asks: they depend on the layer's window."""
        return StepPlan(batch)

    def store(self, layer: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        self.pool.store(layer, slots, k, v)

    def attend(self, q: torch.Tensor, layer: int, plan: StepPlan, *, scale: float, window: int | None = None) -> torch.Tensor:
        """See `AttentionBackend`. On a CPU a request's result depends on its batch mates by rounding alone."""
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        for group in plan.groups(window, q.shape[1] // self.pool.k_buffer.shape[2], q.dtype):
            keys, values = self._gather(layer, group, q.dtype)
            for block in group.blocks():
                k, v = keys[:, : block.num_keys], values[:, : block.num_keys]
                out.index_copy_(0, block.tokens, attend(q.index_select(0, block.tokens), k, v, block.mask, scale))
        return out

    def _gather(self, layer: int, group: Group, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of a group, [B, num_keys, num_kv_heads, head_dim] of `dtype`, valid until the next call."""
        count = len(group.slots)
        if count > (size := self._workspace.shape[1]):  # by half at least: a prompt needs a chunk more at each step
            self._workspace = self._workspace.new_empty((2, 0, *self._workspace.shape[2:]))  # the old one goes first
            self._workspace = self._workspace.new_empty((2, max(count, size + size // 2), *self._workspace.shape[2:]))
        keys, values = self._workspace[:, :count]
        torch.index_select(self.pool.k_buffer[layer], 0, group.slots, out=keys)
        torch.index_select(self.pool.v_buffer[layer], 0, group.slots, out=values)
        return keys.unflatten(0, (-1, group.num_keys)).to(dtype), values.unflatten(0, (-1, group.num_keys)).to(dtype)


def attend(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, scale: float) -> torch.Tensor:
    """Attention of B requests with equally many tokens n and keys S. Returns [B * n, num_heads, head_dim].

    `q` [B * n, num_heads, head_dim]; `keys`, `values` [B, S, num_kv_heads, head_dim]; `mask` as in `Group`.
    """
    batch_size, _, num_kv_heads, head_dim = keys.shape
    grouped = q.view(batch_size, -1, num_kv_heads, q.shape[1] // num_kv_heads, head_dim).transpose(1, 2)
    out = scaled_dot_product_attention(
        grouped.flatten(2, 3), keys.transpose(1, 2), values.transpose(1, 2), attn_mask=mask, scale=scale
    )
    return out.view(grouped.shape).transpose(1, 2).reshape(q.shape)
