"""What a decoder computes with. There are two sets of operations: torch's, for every device and dtype, and the native kernels'.

Weights are handed over once, when a model is loaded, and each set keeps them in the layout it likes. The stream `x`
[T, hidden_size] belongs to the operations, and so does what the heads attended: only they look into them, they choose the dtype,
and may write into the one they are given and return it.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch

from radixserve.attention.backend import AttentionBackend
from radixserve.batch import ForwardBatch
from radixserve.cache.kv_pool import KVPool
from radixserve.models.config import ModelConfig
from radixserve.models.low_rank import LayerAdditions


class Affine(NamedTuple):
    """x W^T + b: `weight` [outputs, inputs], `bias` [outputs] or None."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None


class Norm(NamedTuple):
    """RMS norm over the last dimension: `weight` [size]."""

    weight: torch.Tensor
    eps: float


def side_by_side(*parts: Affine) -> Affine:
    """One Affine whose outputs are those of `parts`, one after another; all or none have a bias."""
    biases = [part.bias for part in parts if part.bias is not None]
    return Affine(torch.cat([part.weight for part in parts]), torch.cat(biases) if biases else None)


Reduce = Callable[[torch.Tensor], torch.Tensor]
"""What all ranks' tensors come to: written to each rank's own, which is returned."""

Prepare = Callable[[ForwardBatch], Any]
Embed = Callable[[torch.Tensor], Any]
Attend = Callable[[Any, Any, Any, ForwardBatch, Any], Any]
FeedForward = Callable[[Any, Any, Any], Any]
Head = Callable[[Any, torch.Tensor], torch.Tensor]


class Operations(Protocol):
    """Makes the parts of a decoder from their weights. T is the number of tokens of a step."""

    name: str
    """What computes, for people: "torch", or "native" and its level."""

    def backend(self, pool: KVPool) -> AttentionBackend:
        """The attention backend that `attention` works with."""

    def prepare(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> Prepare:
        """A step to what all layers need of it in `attention`, such as the rotation of its tokens."""

    def embedding(self, table: torch.Tensor) -> Embed:
        """Token ids int64 [T] to the stream; `table` is [vocab_size, hidden_size]."""

    def head(self, norm: Norm, linear: Affine) -> Head:
        """(x, rows int64 [R]) to linear(norm(x)) of these rows of the stream, [R, vocab_size]."""

    def attention(
        self, config: ModelConfig, layer: int, norm: Norm, qkv: Affine, q_norm: Norm | None, k_norm: Norm | None
    ) -> Attend:
        """(x, what `prepare` gave, the backend, the step, additions) to what the heads attended, [T, num_heads * head_dim].

        The additions are what `add` gave for this layer and step, or None. `qkv` gives the heads of q, k and v, in this order.
        Norms and rotates q and k, stores K and V in the pool, attends.
        """

    def feed_forward(self, output: Affine, norm: Norm, gate: Affine, up: Affine, down: Affine) -> FeedForward:
        """(x, attended, additions) to y + down(silu(gate(n)) * up(n)), where y is x + output(attended), and n norm(y)."""

    def additions(self, layer: LayerAdditions) -> Any:
        """What an adapter adds in a layer, in the form that `add` takes."""

    def add(self, runs: Sequence[tuple[Any, int, int]], num_tokens: int) -> Any:
        """The additions to a layer of a step: (what `additions` gave, first row, row after the last) of each adapter's rows."""
