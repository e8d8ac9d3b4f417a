"""A decoder's operations by the native kernels: bfloat16 weights and KV on a CPU, everything between two products in float32.

A product's inputs are rounded to bfloat16 once and its sums kept in float32, so logits are float32 that were never rounded to less.
Every result is bitwise a function of the token's prefix, the weights and the kernels' level; `docs/design/cpu-kernels.md` says why.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from radixserve import kernels
from radixserve.batch import ForwardBatch
from radixserve.cache.kv_pool import KVPool
from radixserve.models.config import ModelConfig
from radixserve.models.low_rank import LayerLowRanks, LowRank
from radixserve.models.operations import Embed, Head, Layer, LayerWeights, LinearWeights, Norm, Reduce
from radixserve.models.rope import inverse_frequencies, rotation

if kernels.NOT_BUILT is None:
    from radixserve.kernels import _native

GATES = 16
"""Gates that lie together before their ups in the fused weight."""
MAX_HEAD_DIM = 256
FIRST_POSITIONS = 4096
"""Positions whose rotations are computed when a model is loaded; twice as many whenever a longer context comes."""


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


class Stream(NamedTuple):
    """The stream of a step, float32 [T, hidden_size]."""

    tensor: torch.Tensor
    wrapped: "_native.Wrapped"


class Memory(NamedTuple):
    """Of a step, between two calls: bfloat16 [T, num_heads, head_dim] each. `flat`: `attended` as [T, num_heads * head_dim]."""

    q: "_native.Wrapped"
    attended: "_native.Wrapped"
    flat: "_native.Wrapped"


class Step(NamedTuple):
    """What the layers of a step share."""

    positions: "_native.StepPositions"
    attention: "_native.AttentionStep"
    memory: Memory
    pool: "Pool"


class Pool:
    """The KV pool as the kernels take it. Raises ValueError unless it is bfloat16, on the CPU, of a head_dim that they know."""

    def __init__(self, pool: KVPool) -> None:
        self.layers = [(_native.Wrapped(k), _native.Wrapped(v)) for k, v in pool.layers]
        self.attention = _native.AttentionPool(pool.k_buffer, pool.v_buffer)


class Steps:
    """Prepares the steps of one model over one pool. Memory is wrapped once, and kept for the next step of as many tokens."""

    def __init__(self, config: ModelConfig, pool: KVPool) -> None:
        self._config = config
        self._num_positions = FIRST_POSITIONS
        self._rotations = _rotations(config, FIRST_POSITIONS)
        self._tokens, self._memory = 0, _memory(config, 0)
        self.pool = Pool(pool)

    def __call__(self, batch: ForwardBatch) -> Step:
        """Raises ValueError for positions, lengths or rows that don't fit the pool or the slot table."""
        while max(batch.seq_lens) > self._num_positions:
            self._num_positions *= 2
            self._rotations = _rotations(self._config, self._num_positions)
        if len(batch.input_ids) != self._tokens:
            self._tokens = len(batch.input_ids)
            self._memory = _memory(self._config, self._tokens)
        return Step(
            _native.StepPositions(*self._rotations, batch.positions, batch.out_slots),
            _native.AttentionStep(batch.slot_table, batch.rows, batch.seq_lens, batch.extend_lens),
            self._memory,
            self.pool,
        )


class AdapterLayer(NamedTuple):
    """What an adapter adds to the four products of a layer."""

    qkv: "_native.LowRank | None"
    output: "_native.LowRank | None"
    gate_up: "_native.LowRank | None"
    down: "_native.LowRank | None"


class Added(NamedTuple):
    """What all adapters of a step add to the four products of a layer."""

    qkv: "_native.LoraBatch | None"
    output: "_native.LoraBatch | None"
    gate_up: "_native.LoraBatch | None"
    down: "_native.LoraBatch | None"


NOTHING_ADDED = Added(None, None, None, None)


class NativeOperations:
    """See `Operations`. The stream is float32 and is written in place.

    With `int8`, the products of the layers are computed in int8; embedding, attention and head stay bfloat16.
    """

    def __init__(self, int8: bool = False, reduce: Reduce | None = None) -> None:
        """`reduce`: sums over the ranks what their parts of `output` and `down` gave; None where these are whole."""
        self._reduce = reduce
        self.name = f"native {kernels.level()}{', int8' if int8 else ''}"
        self._int8 = int8

    def embedding(self, table: torch.Tensor) -> Embed[Stream]:
        rows, stream = _native.Wrapped(table), _stream(0, table.shape[1])

        def embed(ids: torch.Tensor) -> Stream:
            nonlocal stream
            if len(ids) != len(stream.tensor):
                stream = _stream(len(ids), table.shape[1])
            _native.embed(rows, ids, stream.wrapped)
            return stream

        return embed

    def layer(self, config: ModelConfig, index: int, weights: LayerWeights) -> Layer[Stream, Step, Added]:
        norm, qkv = _norm(weights.attention_norm), self._linear(weights.qkv)
        q_norm, k_norm = (_norm(norm) if norm else None for norm in (weights.q_norm, weights.k_norm))
        scale, window = config.head_dim**-0.5, config.windows[index] or 0
        output_and_mlp = self._output_and_mlp(weights)

        def layer(x: Stream, step: Step, added: Added | None) -> Stream:
            added = added or NOTHING_ADDED
            memory, pool = step.memory, step.pool
            _native.qkv_rope_store(x.wrapped, norm, qkv, q_norm, k_norm, step.positions, *pool.layers[index], memory.q, added.qkv)
            pool.attention.attend(step.attention, index, memory.q, memory.attended, scale, window)
            output_and_mlp(x, memory.flat, added)
            return x

        return layer

    def head(self, norm: Norm, linear: LinearWeights) -> Head[Stream]:
        normed, packed = _norm(norm), _linear(linear)

        def project(x: Stream, rows: torch.Tensor) -> torch.Tensor:
            y = torch.empty(len(rows), packed.outputs)
            _native.norm_linear(x.tensor[rows], normed, packed, y)
            return y

        return project

    def tensor_of(self, x: Stream) -> torch.Tensor:
        return x.tensor

    def steps(self, config: ModelConfig, pool: KVPool, dtype: torch.dtype) -> Steps:
        return Steps(config, pool)

    def adapter_layer(self, low_ranks: LayerLowRanks) -> AdapterLayer:
        gate_up = None
        if low_ranks.gate_up is not None:
            gate, up = low_ranks.gate_up
            gate_up = LowRank(gate.a, interleave_gate_up(LinearWeights(gate.b), LinearWeights(up.b)).weight)
        return AdapterLayer(*map(_low_rank, (low_ranks.qkv, low_ranks.output, gate_up, low_ranks.down)))

    def add(self, runs: Sequence[tuple[AdapterLayer, int, int]], num_tokens: int) -> Added:
        products: list[list[tuple[_native.LowRank, int, int]]] = [[], [], [], []]
        for adapter, begin, end in runs:
            for product, low_rank in zip(products, adapter, strict=True):
                if low_rank is not None:
                    product.append((low_rank, begin, end))
        return Added(*(_native.LoraBatch(product, num_tokens) if product else None for product in products))

    def _output_and_mlp(self, weights: LayerWeights) -> "Callable[[Stream, _native.Wrapped, Added], None]":
        """What follows attention in a layer, in one call: both are added to the stream in place."""
        output, gate_up, down = map(self._linear, (weights.output, interleave_gate_up(weights.gate, weights.up), weights.down))
        norm, reduce = _norm(weights.mlp_norm), self._reduce

        def whole(x: Stream, attended: "_native.Wrapped", added: Added) -> None:
            _native.add_and_mlp(x.wrapped, attended, output, norm, gate_up, down, added.output, added.gate_up, added.down)

        if reduce is None:
            return whole

        def of_rank(x: Stream, attended: "_native.Wrapped", added: Added) -> None:
            """The ranks sum what each half gives before it is added."""
            part = torch.empty_like(x.tensor)
            wrapped = _native.Wrapped(part)
            _native.linear(attended, output, wrapped, added.output)
            x.tensor.add_(reduce(part))
            _native.mlp(x.wrapped, norm, gate_up, down, wrapped, added.gate_up, added.down)
            x.tensor.add_(reduce(part))

        return of_rank

    def _linear(self, weights: LinearWeights) -> "_native.Linear":
        return _linear(weights, self._int8)


def interleave_gate_up(gate: LinearWeights, up: LinearWeights) -> LinearWeights:
    """Outputs are GATES gates, then the ups that belong to them, and so on."""

    def mixed(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        pairs = torch.stack((gate, up)).view(2, -1, GATES, *gate.shape[1:])
        return pairs.transpose(0, 1).flatten(0, 2)

    bias = None if gate.bias is None or up.bias is None else mixed(gate.bias, up.bias)
    return LinearWeights(mixed(gate.weight, up.weight), bias)


def _rotations(config: ModelConfig, num_positions: int) -> "tuple[_native.Wrapped, _native.Wrapped]":
    """cos and sin of the positions 0 .. num_positions - 1, [num_positions, head_dim / 2] each."""
    frequencies = inverse_frequencies(config.rope, config.head_dim)
    cos, sin = rotation(torch.arange(num_positions), frequencies, config.rope.attention_factor, torch.float32)
    return _native.Wrapped(cos.squeeze(1)), _native.Wrapped(sin.squeeze(1))


def _memory(config: ModelConfig, tokens: int) -> Memory:
    q, attended = (torch.empty(tokens, config.num_heads, config.head_dim, dtype=torch.bfloat16) for _ in range(2))
    return Memory(_native.Wrapped(q), _native.Wrapped(attended), _native.Wrapped(attended.flatten(1)))


def _stream(tokens: int, hidden_size: int) -> Stream:
    tensor = torch.empty(tokens, hidden_size)
    return Stream(tensor, _native.Wrapped(tensor))


def _linear(weights: LinearWeights, int8: bool = False) -> "_native.Linear":
    weight, bias = weights
    return _native.Linear(weight.contiguous(), None if bias is None else bias.float(), int8)


def _low_rank(low_rank: LowRank | None) -> "_native.LowRank | None":
    """An odd rank gets a zero more: the kernels take inputs two by two."""
    if low_rank is None:
        return None
    a, b = low_rank
    if len(a) % 2:
        a, b = torch.cat((a, torch.zeros_like(a[:1]))), torch.cat((b, torch.zeros_like(b[:, :1])), dim=1)
    return _native.LowRank(a.contiguous(), b.contiguous())


def _norm(norm: Norm) -> "_native.RmsNorm":
    return _native.RmsNorm(norm.weight.float(), norm.eps)
