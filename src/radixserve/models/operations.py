"""What a decoder computes with. There are two sets of operations: torch's, for every device and dtype, and the native kernels'.

A decoder hands each layer's weights over once, as the table `LayerWeights`, and gets back the layer as a function. A set keeps the
weights in the layout it likes, and chooses the form of what goes from layer to layer: only it looks into the stream, the step and
what adapters add. It may write into the stream that it is given and return it.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import torch

from radixserve.batch import ForwardBatch
from radixserve.cache.kv_pool import KVPool
from radixserve.models.config import ModelConfig
from radixserve.models.low_rank import LayerLowRanks


class LinearWeights(NamedTuple):
    """x W^T + b: `weight` [outputs, inputs], `bias` [outputs] or None."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None


class Norm(NamedTuple):
    """RMS norm over the last dimension: `weight` [size]."""

    weight: torch.Tensor
    eps: float


class LayerWeights(NamedTuple):
    """A layer, in the order in which it computes: attention and MLP, each behind a norm and added to the stream."""

    attention_norm: Norm
    qkv: LinearWeights
    """To the heads of q, k and v, in this order."""
    q_norm: Norm | None
    k_norm: Norm | None
    """Of each head, [head_dim], before its rotation."""
    output: LinearWeights
    """From what the heads attended, back to the stream."""
    mlp_norm: Norm
    gate: LinearWeights
    up: LinearWeights
    down: LinearWeights


def concat(*parts: LinearWeights) -> LinearWeights:
    """One linear whose outputs are those of `parts`, one after another; all or none have a bias."""
    biases = [part.bias for part in parts if part.bias is not None]
    return LinearWeights(torch.cat([part.weight for part in parts]), torch.cat(biases) if biases else None)


Reduce = Callable[[torch.Tensor], torch.Tensor]
"""What all ranks' tensors come to: written to each rank's own, which is returned."""

Stream = TypeVar("Stream")
"""What goes from layer to layer: [T, hidden_size]. T is the number of tokens of a step."""
Step = TypeVar("Step")
"""What the layers of a step share: the rotation of its tokens, the plan of its attention, the pool."""
AdapterLayer = TypeVar("AdapterLayer")
"""What one adapter adds in one layer."""
Added = TypeVar("Added")
"""What all adapters add in one layer of a step."""

Embed = Callable[[torch.Tensor], Stream]
"""Token ids, int64 [T]."""
Layer = Callable[[Stream, Step, Added | None], Stream]
Head = Callable[[Stream, torch.Tensor], torch.Tensor]
"""The stream, and rows of it, int64 [R], to their logits, [R, vocab_size]."""


class Operations(Protocol[Stream, Step, AdapterLayer, Added]):
    """Makes the parts of a decoder from their weights."""

    name: str
    """What computes, for people: "torch", or "native" and its level."""

    def embedding(self, table: torch.Tensor) -> Embed[Stream]:
        """`table`: [vocab_size, hidden_size]."""

    def layer(self, config: ModelConfig, index: int, weights: LayerWeights) -> Layer[Stream, Step, Added]:
        """Norms and rotates q and k, stores K and V in the pool, attends; then x + output(...), and that y + mlp(norm(y))."""

    def head(self, norm: Norm, linear: LinearWeights) -> Head[Stream]:
        """linear(norm(x)) of the rows that are asked for."""

    def tensor_of(self, x: Stream) -> torch.Tensor:
        """The memory of a stream, for what ranks write into it: [T, hidden_size]."""

    def steps(self, config: ModelConfig, pool: KVPool, dtype: torch.dtype) -> Callable[[ForwardBatch], Step]:
        """What prepares each step of a model over one pool, once for all of its layers."""

    def adapter_layer(self, low_ranks: LayerLowRanks) -> AdapterLayer:
        """What an adapter adds in a layer, in the form that `add` takes."""

    def add(self, runs: Sequence[tuple[AdapterLayer, int, int]], num_tokens: int) -> Added:
        """What a layer of a step takes of its adapters: (weights, first row, row after the last) of each adapter's rows."""


AnyOperations = Operations[Any, Any, Any, Any]
"""One of them: which is decided when a model is loaded."""
