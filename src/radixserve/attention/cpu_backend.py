"""Attention over the pool by the native kernel: CPUs, bfloat16 pools.

A token's result depends on its query and on the K and V of its prefix, to the last bit: not on how the prefix was computed or
cached, on the batch, on the chunk, on where its slots lie or on the number of threads. `docs/design/cpu-attention.md` says why.
"""

import torch

from radixserve.batch import ForwardBatch
from radixserve.cache.kv_pool import KVPool
from radixserve.kernels import _native


class CpuBackend:
    """An `AttentionBackend`. Queries are float32 or bfloat16; the kernel rounds them to bfloat16."""

    def __init__(self, pool: KVPool) -> None:
        """Raises ValueError when the kernel can't read the pool: bfloat16 on the CPU, head_dim a multiple of 8 up to 256."""
        self.pool = pool
        self.layers = [(_native.Wrapped(k), _native.Wrapped(v)) for k, v in pool.layers]
        """K and V of each layer, for who stores them."""
        self._attention = _native.AttentionPool(pool.k_buffer, pool.v_buffer)

    def plan(self, batch: ForwardBatch) -> None:
        """See `AttentionBackend`. Raises ValueError for lengths or rows that don't fit the slot table."""
        batch.attention = _native.AttentionStep(batch.slot_table, batch.rows, batch.seq_lens, batch.extend_lens)

    def attend(self, q: torch.Tensor, layer: int, batch: ForwardBatch, *, scale: float, window: int | None = None) -> torch.Tensor:
        """See `AttentionBackend`."""
        q = q.contiguous()
        out = torch.empty_like(q)
        self.attend_into(_native.Wrapped(out), _native.Wrapped(q), layer, batch, scale, window)
        return out

    def attend_into(
        self, out: _native.Wrapped, q: _native.Wrapped, layer: int, batch: ForwardBatch, scale: float, window: int | None
    ) -> None:
        """`attend`, written to memory that is there: a step's layers share it."""
        self._attention.attend(batch.attention, layer, q, out, scale, window or 0)
