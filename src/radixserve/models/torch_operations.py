"""A decoder's operations by torch: every device and dtype, rounded as transformers rounds."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch.nn.functional import silu

from radixserve.attention.backend import AttentionBackend
from radixserve.attention.torch_backend import TorchBackend
from radixserve.batch import ForwardBatch
from radixserve.cache.kv_pool import KVPool
from radixserve.models.config import ModelConfig
from radixserve.models.layers import Linear, RMSNorm
from radixserve.models.low_rank import LayerAdditions, LowRank
from radixserve.models.operations import Affine, Attend, Embed, FeedForward, Head, Norm, Prepare, Reduce, side_by_side
from radixserve.models.rope import Rotation, inverse_frequencies, rotate, rotation

Addition = Callable[[torch.Tensor], torch.Tensor]


class Additions(NamedTuple):
    """What an adapter adds to the four products of a layer."""

    qkv: Addition | None
    output: Addition | None
    gate_up: Addition | None
    down: Addition | None


class Runs(NamedTuple):
    """The same for a step: (addition, first row, row after the last) of each adapter's rows."""

    qkv: list[tuple[Addition, int, int]]
    output: list[tuple[Addition, int, int]]
    gate_up: list[tuple[Addition, int, int]]
    down: list[tuple[Addition, int, int]]


NO_RUNS = Runs([], [], [], [])


class TorchOperations:
    """See `Operations`. The stream has the model's dtype."""

    name = "torch"

    def __init__(self, reduce: Reduce | None = None) -> None:
        """`reduce`: sums over the ranks what their parts of `output` and `down` gave; None where these are whole."""
        self._reduce = reduce

    def backend(self, pool: KVPool) -> AttentionBackend:
        return TorchBackend(pool)

    def prepare(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> Prepare:
        frequencies = inverse_frequencies(config.rope, config.head_dim).to(device)
        return lambda batch: rotation(batch.positions, frequencies, config.rope.attention_factor, dtype)

    def embedding(self, table: torch.Tensor) -> Embed:
        return lambda ids: table[ids]

    def head(self, norm: Norm, linear: Affine) -> Head:
        normed, projected = RMSNorm(*norm), Linear(*linear)
        return lambda x, rows: projected(normed(x[rows]))

    def attention(
        self, config: ModelConfig, layer: int, norm: Norm, qkv: Affine, q_norm: Norm | None, k_norm: Norm | None
    ) -> Attend:
        num_q, num_kv, head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        normed, projected = RMSNorm(*norm), Linear(*qkv)
        qk_norm = _joint_norm(q_norm, k_norm, num_q, num_kv) if q_norm and k_norm else None

        def attend(
            x: torch.Tensor, by: Rotation, attention: AttentionBackend, batch: ForwardBatch, added: Runs | None
        ) -> torch.Tensor:
            n = normed(x)
            heads = _plus(projected(n), n, (added or NO_RUNS).qkv).view(-1, num_q + 2 * num_kv, head_dim)
            qk, v = torch.split_with_sizes(heads, (num_q + num_kv, num_kv), dim=1)
            if qk_norm is not None:
                qk = qk_norm(qk)
            q, k = torch.split_with_sizes(rotate(qk, by), (num_q, num_kv), dim=1)
            attention.pool.store(layer, batch.out_slots, k, v)
            attended = attention.attend(q, layer, batch, scale=head_dim**-0.5, window=config.windows[layer])
            return attended.reshape(-1, num_q * head_dim)

        return attend

    def feed_forward(self, output: Affine, norm: Norm, gate: Affine, up: Affine, down: Affine) -> FeedForward:
        add_output, add_mlp = Linear(*output), Linear(*down)
        total = self._reduce or _itself
        normed, gate_up = RMSNorm(*norm), Linear(*side_by_side(gate, up))

        def feed_forward(x: torch.Tensor, attended: torch.Tensor, added: Runs | None) -> torch.Tensor:
            runs = added or NO_RUNS
            x = x + total(_plus(add_output(attended), attended, runs.output))
            n = normed(x)
            gate, up = _plus(gate_up(n), n, runs.gate_up).chunk(2, dim=-1)
            activated = silu(gate) * up
            return x + total(_plus(add_mlp(activated), activated, runs.down))

        return feed_forward

    def additions(self, layer: LayerAdditions) -> Additions:
        gate_up = None
        if layer.gate_up is not None:
            gate, up = layer.gate_up
            gate_up = _addition(LowRank(gate.a, torch.cat((gate.b, up.b))))
        return Additions(_addition(layer.qkv), _addition(layer.output), gate_up, _addition(layer.down))

    def add(self, runs: Sequence[tuple[Additions, int, int]], num_tokens: int) -> Runs:
        products: list[list[tuple[Addition, int, int]]] = [[], [], [], []]
        for additions, begin, end in runs:
            for product, addition in zip(products, additions, strict=True):
                if addition is not None:
                    product.append((addition, begin, end))
        return Runs(*products)


def _itself(x: torch.Tensor) -> torch.Tensor:
    return x


def _addition(low_rank: LowRank | None) -> Addition | None:
    if low_rank is None:
        return None
    a, b = Linear(low_rank.a), Linear(low_rank.b)
    return lambda x: b(a(x))


def _plus(y: torch.Tensor, x: torch.Tensor, runs: list[tuple[Addition, int, int]]) -> torch.Tensor:
    """Adds to some rows of `y`, in place, what belongs to those of its inputs `x`."""
    for addition, begin, end in runs:
        y[begin:end] += addition(x[begin:end])
    return y


def _joint_norm(q_norm: Norm, k_norm: Norm, num_q: int, num_kv: int) -> RMSNorm:
    """One norm for the heads of q and k together: weight [num_heads + num_kv_heads, head_dim]."""
    weight = torch.cat((q_norm.weight.expand(num_q, -1), k_norm.weight.expand(num_kv, -1)))
    return RMSNorm(weight, q_norm.eps)
