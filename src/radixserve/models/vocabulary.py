"""Embedding and head of which each rank has a part of the vocabulary, around the operations that compute everything."""

from collections.abc import Sequence
from typing import Any

import torch

from radixserve.attention.backend import AttentionBackend
from radixserve.cache.kv_pool import KVPool
from radixserve.models.config import ModelConfig
from radixserve.models.low_rank import LayerAdditions
from radixserve.models.operations import Affine, Attend, Embed, FeedForward, Head, Norm, Operations, Prepare
from radixserve.models.sharding import Collectives, Shard


class SplitVocabulary:
    """`Operations` whose table and head are a rank's `shard.vocab`. Both are exact: what they give has the bits of the whole."""

    def __init__(self, inner: Operations, ranks: Collectives, shard: Shard) -> None:
        self.name = inner.name
        self._inner = inner
        self._ranks = ranks
        self._own = shard.vocab
        self._widths = [len(Shard(shard.whole, rank, shard.size).vocab) for rank in range(shard.size)]

    def backend(self, pool: KVPool) -> AttentionBackend:
        return self._inner.backend(pool)

    def prepare(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> Prepare:
        return self._inner.prepare(config, dtype, device)

    def embedding(self, table: torch.Tensor) -> Embed:
        """Each rank embeds the tokens that it has; the others' are zeros, to which the sum adds."""
        embed, own = self._inner.embedding(table), self._own

        def embed_all(ids: torch.Tensor) -> Any:
            x = embed((ids - own.start).clamp(0, len(own) - 1))
            tensor = x if isinstance(x, torch.Tensor) else x.tensor
            self._ranks.sum(tensor.masked_fill_(((ids < own.start) | (ids >= own.stop))[:, None], 0))
            return x

        return embed_all

    def head(self, norm: Norm, linear: Affine) -> Head:
        """On rank 0 the logits of the whole vocabulary, on the others those of their part, which nobody looks at."""
        head = self._inner.head(norm, linear)
        return lambda x, rows: self._ranks.gather(head(x, rows), self._widths)

    def attention(
        self, config: ModelConfig, layer: int, norm: Norm, qkv: Affine, q_norm: Norm | None, k_norm: Norm | None
    ) -> Attend:
        return self._inner.attention(config, layer, norm, qkv, q_norm, k_norm)

    def feed_forward(self, output: Affine, norm: Norm, gate: Affine, up: Affine, down: Affine) -> FeedForward:
        return self._inner.feed_forward(output, norm, gate, up, down)

    def additions(self, layer: LayerAdditions) -> Any:
        return self._inner.additions(layer)

    def add(self, runs: Sequence[tuple[Any, int, int]], num_tokens: int) -> Any:
        return self._inner.add(runs, num_tokens)
