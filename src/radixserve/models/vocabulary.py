"""Embedding and head of which each rank has a part of the vocabulary, around the operations that compute everything."""

from collections.abc import Callable, Sequence
from typing import Generic

import torch

from radixserve.batch import ForwardBatch
from radixserve.cache.kv_pool import KVPool
from radixserve.models.config import ModelConfig
from radixserve.models.low_rank import LayerLowRanks
from radixserve.models.operations import (
    AdapterLayer,
    Added,
    Embed,
    Head,
    Layer,
    LayerWeights,
    LinearWeights,
    Norm,
    Operations,
    Step,
    Stream,
)
from radixserve.models.sharding import Collectives, Shard


class SplitVocabulary(Generic[Stream, Step, AdapterLayer, Added]):
    """`Operations` whose table and head are a rank's `shard.vocab`. Both are exact: what they give has the bits of the whole."""

    def __init__(self, inner: Operations[Stream, Step, AdapterLayer, Added], ranks: Collectives, shard: Shard) -> None:
        self.name = inner.name
        self._inner = inner
        self._ranks = ranks
        self._own = shard.vocab
        self._widths = [len(Shard(shard.whole, rank, shard.size).vocab) for rank in range(shard.size)]

    def embedding(self, table: torch.Tensor) -> Embed[Stream]:
        """Each rank embeds the tokens that it has; the others' are zeros, to which the sum adds."""
        embed, own = self._inner.embedding(table), self._own

        def embed_all(ids: torch.Tensor) -> Stream:
            x = embed((ids - own.start).clamp(0, len(own) - 1))
            tensor = self._inner.tensor_of(x)
            self._ranks.sum(tensor.masked_fill_(((ids < own.start) | (ids >= own.stop))[:, None], 0))
            return x

        return embed_all

    def head(self, norm: Norm, linear: LinearWeights) -> Head[Stream]:
        """On rank 0 the logits of the whole vocabulary, on the others those of their part, which nobody looks at."""
        head = self._inner.head(norm, linear)
        return lambda x, rows: self._ranks.gather(head(x, rows), self._widths)

    def layer(self, config: ModelConfig, index: int, weights: LayerWeights) -> Layer[Stream, Step, Added]:
        return self._inner.layer(config, index, weights)

    def tensor_of(self, x: Stream) -> torch.Tensor:
        return self._inner.tensor_of(x)

    def steps(self, config: ModelConfig, pool: KVPool, dtype: torch.dtype) -> Callable[[ForwardBatch], Step]:
        return self._inner.steps(config, pool, dtype)

    def adapter_layer(self, low_ranks: LayerLowRanks) -> AdapterLayer:
        return self._inner.adapter_layer(low_ranks)

    def add(self, runs: Sequence[tuple[AdapterLayer, int, int]], num_tokens: int) -> Added:
        return self._inner.add(runs, num_tokens)
