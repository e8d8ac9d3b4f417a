"""A decoder's operations by torch: every device and dtype, rounded as transformers rounds."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.functional import silu

from radixserve.attention.backend import AttentionBackend
from radixserve.attention.torch_backend import TorchBackend
from radixserve.batch import ForwardBatch
from radixserve.cache.kv_pool import KVPool
from radixserve.models.config import ModelConfig
from radixserve.models.layers import Linear, RMSNorm
from radixserve.models.low_rank import LayerLowRanks, LowRank
from radixserve.models.operations import Embed, Head, Layer, LayerWeights, LinearWeights, Norm, Reduce, concat
from radixserve.models.rope import Rotation, inverse_frequencies, rotate, rotation

Addition = Callable[[torch.Tensor], torch.Tensor]


class AdapterLayer(NamedTuple):
    """What an adapter adds to the four products of a layer."""

    qkv: Addition | None
    output: Addition | None
    gate_up: Addition | None
    down: Addition | None


class Added(NamedTuple):
    """What all adapters of a step add to them: (addition, first row, row after the last) of each one's rows."""

    qkv: list[tuple[Addition, int, int]]
    output: list[tuple[Addition, int, int]]
    gate_up: list[tuple[Addition, int, int]]
    down: list[tuple[Addition, int, int]]


NOTHING_ADDED = Added([], [], [], [])


class Step(NamedTuple):
    """What the layers of a step share. `plan` is the backend's own."""

    rotation: Rotation
    slots: torch.Tensor
    attention: AttentionBackend[Any]
    plan: Any


class TorchOperations:
    """See `Operations`. The stream has the model's dtype."""

    name = "torch"

    def __init__(self, reduce: Reduce | None = None, attention: Callable[[KVPool], AttentionBackend[Any]] = TorchBackend) -> None:
        """`reduce`: sums over the ranks what their parts of `output` and `down` gave; None where these are whole."""
        self._reduce = reduce or _itself
        self._attention = attention

    def embedding(self, table: torch.Tensor) -> Embed[torch.Tensor]:
        return lambda ids: table[ids]

    def layer(self, config: ModelConfig, index: int, weights: LayerWeights) -> Layer[torch.Tensor, Step, Added]:
        attend, mlp = _attention(config, index, weights), _mlp(weights)
        output, total = Linear(*weights.output), self._reduce

        def layer(x: torch.Tensor, step: Step, added: Added | None) -> torch.Tensor:
            added = added or NOTHING_ADDED
            attended = attend(x, step, added)
            x = x + total(_plus(output(attended), attended, added.output))
            return x + total(mlp(x, added))

        return layer

    def head(self, norm: Norm, linear: LinearWeights) -> Head[torch.Tensor]:
        normed, projected = RMSNorm(*norm), Linear(*linear)
        return lambda x, rows: projected(normed(x[rows]))

    def tensor_of(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def steps(self, config: ModelConfig, pool: KVPool, dtype: torch.dtype) -> Callable[[ForwardBatch], Step]:
        attention = self._attention(pool)
        frequencies = inverse_frequencies(config.rope, config.head_dim).to(pool.k_buffer.device)

        def begin(batch: ForwardBatch) -> Step:
            by = rotation(batch.positions, frequencies, config.rope.attention_factor, dtype)
            return Step(by, batch.out_slots, attention, attention.plan(batch))

        return begin

    def adapter_layer(self, low_ranks: LayerLowRanks) -> AdapterLayer:
        gate_up = None
        if low_ranks.gate_up is not None:
            gate, up = low_ranks.gate_up
            gate_up = _addition(LowRank(gate.a, torch.cat((gate.b, up.b))))
        return AdapterLayer(_addition(low_ranks.qkv), _addition(low_ranks.output), gate_up, _addition(low_ranks.down))

    def add(self, runs: Sequence[tuple[AdapterLayer, int, int]], num_tokens: int) -> Added:
        products: list[list[tuple[Addition, int, int]]] = [[], [], [], []]
        for adapter, begin, end in runs:
            for product, addition in zip(products, adapter, strict=True):
                if addition is not None:
                    product.append((addition, begin, end))
        return Added(*products)


def _attention(config: ModelConfig, index: int, weights: LayerWeights) -> Callable[[torch.Tensor, Step, Added], torch.Tensor]:
    """The stream to what the heads attended, [T, num_heads * head_dim]; K and V go to the pool."""
    num_q, num_kv, head_dim = config.num_heads, config.num_kv_heads, config.head_dim
    norm, qkv = RMSNorm(*weights.attention_norm), Linear(*weights.qkv)
    qk_norm = _joint_norm(weights.q_norm, weights.k_norm, num_q, num_kv) if weights.q_norm and weights.k_norm else None

    def attend(x: torch.Tensor, step: Step, added: Added) -> torch.Tensor:
        n = norm(x)
        heads = _plus(qkv(n), n, added.qkv).view(-1, num_q + 2 * num_kv, head_dim)
        qk, v = torch.split_with_sizes(heads, (num_q + num_kv, num_kv), dim=1)
        if qk_norm is not None:
            qk = qk_norm(qk)
        q, k = torch.split_with_sizes(rotate(qk, step.rotation), (num_q, num_kv), dim=1)
        step.attention.store(index, step.slots, k, v)
        attended = step.attention.attend(q, index, step.plan, scale=head_dim**-0.5, window=config.windows[index])
        return attended.reshape(-1, num_q * head_dim)

    return attend


def _mlp(weights: LayerWeights) -> Callable[[torch.Tensor, Added], torch.Tensor]:
    """The stream to down(silu(gate(n)) * up(n)), where n is norm(x)."""
    norm, gate_up, down = RMSNorm(*weights.mlp_norm), Linear(*concat(weights.gate, weights.up)), Linear(*weights.down)

    def mlp(x: torch.Tensor, added: Added) -> torch.Tensor:
        n = norm(x)
        gate, up = _plus(gate_up(n), n, added.gate_up).chunk(2, dim=-1)
        activated = silu(gate) * up
        return _plus(down(activated), activated, added.down)

    return mlp


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
