"""What a decoder computes with. There are two sets of operations: torch's, for every device and dtype, and the native kernels'.

Weights are handed over once, when a model is loaded, and each set keeps them in the layout it likes. The stream `x`
[T, hidden_size] belongs to the operations: they choose its dtype, and may write into the one they are given and return it.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch

from radixserve.attention.backend import AttentionBackend
from radixserve.batch import ForwardBatch
from radixserve.cache.kv_pool import KVPool
from radixserve.models.config import ModelConfig
from radixserve.models.rope import Rotation


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


Apply = Callable[[torch.Tensor], torch.Tensor]
AddTo = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Attend = Callable[[torch.Tensor, Rotation, AttentionBackend, ForwardBatch], torch.Tensor]


class Operations(Protocol):
    """Makes the parts of a decoder from their weights. T is the number of tokens of a step."""

    name: str
    """What computes, for people: "torch", or "native" and its level."""

    def rotation_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Of the cos and sin that `attention` takes, in a model of `dtype`."""

    def backend(self, pool: KVPool) -> AttentionBackend:
        """The attention backend that `attention` works with."""

    def embedding(self, table: torch.Tensor) -> Apply:
        """Token ids int64 [T] to the stream; `table` is [vocab_size, hidden_size]."""

    def projection(self, norm: Norm, linear: Affine) -> Apply:
        """The stream to linear(norm(x)), [T, outputs]."""

    def attention(self, config: ModelConfig, layer: int, q_norm: Norm | None, k_norm: Norm | None) -> Attend:
        """q, k and v of all heads side by side, as `projection` gave them, to [T, num_heads * head_dim], what the heads attended.

        Norms and rotates q and k, stores K and V in the pool, attends.
        """

    def residual(self, linear: Affine) -> AddTo:
        """(x, y) to x + linear(y)."""

    def mlp(self, norm: Norm, gate: Affine, up: Affine, down: Affine) -> Apply:
        """The stream to x + down(silu(gate(n)) * up(n)), n being norm(x)."""
