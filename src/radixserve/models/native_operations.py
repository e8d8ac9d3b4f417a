"""A decoder's operations by the native kernels: bfloat16 weights and KV on a CPU, everything between two products in float32.

A product's inputs are rounded to bfloat16 once and its sums kept in float32, so logits are float32 that were never rounded to less.
Every result is bitwise a function of the token's prefix, the weights and the kernels' level; `docs/design/cpu-kernels.md` says why.
"""

import torch

from radixserve import kernels
from radixserve.attention.backend import AttentionBackend
from radixserve.batch import ForwardBatch
from radixserve.cache.kv_pool import KVPool
from radixserve.models.config import ModelConfig
from radixserve.models.operations import Affine, Apply, Attend, FeedForward, Norm
from radixserve.models.rope import rotation

if kernels.NOT_BUILT is None:
    from radixserve.attention.cpu_backend import CpuBackend
    from radixserve.kernels import _native

GATES = 16
"""Gates that lie together before their ups in the fused weight."""
MAX_HEAD_DIM = 256


def unsupported(config: ModelConfig, dtype: torch.dtype, device: torch.device) -> str | None:
    """Why the native kernels can't run this model, in a few words; None when they can."""
    if device.type != "cpu":
        return f"the device is {device}"
    if dtype != torch.bfloat16:
        return f"the dtype is {str(dtype).removeprefix('torch.')}"
    if kernels.NOT_BUILT is not None:
        return kernels.NOT_BUILT
    if config.head_dim % 8 or config.head_dim > MAX_HEAD_DIM:
        return f"head_dim is {config.head_dim}, not a multiple of 8 up to {MAX_HEAD_DIM}"
    if config.hidden_size % 2 or config.intermediate_size % GATES:
        return f"hidden_size {config.hidden_size} is odd or intermediate_size {config.intermediate_size} not a multiple of {GATES}"
    return None


class NativeOperations:
    """See `Operations`. The stream is float32 and is written in place.

    With `int8`, the products of the layers are computed in int8; embedding, attention and head stay bfloat16.
    """

    def __init__(self, int8: bool = False) -> None:
        self.name = f"native {kernels.level()}{', int8' if int8 else ''}"
        self._int8 = int8

    def backend(self, pool: KVPool) -> AttentionBackend:
        return CpuBackend(pool)

    def rotation(self, batch: ForwardBatch, frequencies: torch.Tensor, scale: float, dtype: torch.dtype) -> "_native.Places":
        return _native.Places(*rotation(batch.positions, frequencies, scale, torch.float32), batch.out_slots)

    def embedding(self, table: torch.Tensor) -> Apply:
        def embed(ids: torch.Tensor) -> torch.Tensor:
            x = torch.empty(len(ids), table.shape[1])
            _native.embed(table, ids, x)
            return x

        return embed

    def head(self, norm: Norm, linear: Affine) -> Apply:
        normed, packed = _norm(norm), _linear(linear)

        def project(x: torch.Tensor) -> torch.Tensor:
            y = torch.empty(len(x), packed.outputs)
            _native.norm_linear(x, normed, packed, y)
            return y

        return project

    def attention(
        self, config: ModelConfig, layer: int, norm: Norm, qkv: Affine, q_norm: Norm | None, k_norm: Norm | None
    ) -> Attend:
        num_q, head_dim, window = config.num_heads, config.head_dim, config.windows[layer]
        weights = _norm(norm), _linear(qkv, self._int8), _norm(q_norm) if q_norm else None, _norm(k_norm) if k_norm else None

        def attend(x: torch.Tensor, places: "_native.Places", attention: AttentionBackend, batch: ForwardBatch) -> torch.Tensor:
            q = torch.empty(len(x), num_q, head_dim, dtype=torch.bfloat16)
            _native.heads(x, *weights, places, *attention.pool.layers[layer], q)
            return attention.attend(q, layer, batch, scale=head_dim**-0.5, window=window).view(-1, num_q * head_dim)

        return attend

    def feed_forward(self, output: Affine, norm: Norm, gate: Affine, up: Affine, down: Affine) -> FeedForward:
        first, gate_up, last = (_linear(affine, self._int8) for affine in (output, interleaved(gate, up), down))
        normed = _norm(norm)

        def feed_forward(x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
            _native.add_and_mlp(x, attended, first, normed, gate_up, last)
            return x

        return feed_forward


def interleaved(gate: Affine, up: Affine) -> Affine:
    """Outputs are GATES gates, then the ups that belong to them, and so on."""

    def mixed(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        pairs = torch.stack((gate, up)).view(2, -1, GATES, *gate.shape[1:])
        return pairs.transpose(0, 1).flatten(0, 2)

    bias = None if gate.bias is None or up.bias is None else mixed(gate.bias, up.bias)
    return Affine(mixed(gate.weight, up.weight), bias)


def _linear(affine: Affine, int8: bool = False) -> "_native.Linear":
    return _native.Linear(affine.weight.contiguous(), None if affine.bias is None else affine.bias.float(), int8)


def _norm(norm: Norm) -> "_native.RmsNorm":
    return _native.RmsNorm(norm.weight.float(), norm.eps)
