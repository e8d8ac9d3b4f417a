"""A decoder's operations by the native kernels: bfloat16 weights and KV on a CPU, everything between two products in float32.

A product's inputs are rounded to bfloat16 once and its sums kept in float32, so logits are float32 that were never rounded to less.
Every result is bitwise a function of the token's prefix, the weights and the kernels' level; `docs/design/cpu-kernels.md` says why.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from radixserve import kernels
from radixserve.attention.backend import AttentionBackend
from radixserve.batch import ForwardBatch
from radixserve.cache.kv_pool import KVPool
from radixserve.models.config import ModelConfig
from radixserve.models.low_rank import LayerAdditions, LowRank
from radixserve.models.operations import Affine, Attend, Embed, FeedForward, Head, Norm, Prepare, Reduce
from radixserve.models.rope import inverse_frequencies, rotation

if kernels.NOT_BUILT is None:
    from radixserve.attention.cpu_backend import CpuBackend
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


class Prepared(NamedTuple):
    """What the layers share in a step. `q`, `attended`: memory for bfloat16 [T, num_heads, head_dim].

    `flat`: `attended` as [T, num_heads * head_dim].
    """

    positions: "_native.StepPositions"
    q: "_native.Wrapped"
    attended: "_native.Wrapped"
    flat: "_native.Wrapped"


class Additions(NamedTuple):
    """What an adapter adds to the four products of a layer."""

    qkv: "_native.LowRank | None"
    output: "_native.LowRank | None"
    gate_up: "_native.LowRank | None"
    down: "_native.LowRank | None"


class Runs(NamedTuple):
    """The same in a step, by all of its adapters."""

    qkv: "_native.LoraBatch | None"
    output: "_native.LoraBatch | None"
    gate_up: "_native.LoraBatch | None"
    down: "_native.LoraBatch | None"


NO_RUNS = Runs(None, None, None, None)


class NativeOperations:
    """See `Operations`. The stream is float32 and is written in place.

    What a step needs memory for is made and wrapped once, and kept for the next step of as many tokens.
    With `int8`, the products of the layers are computed in int8; embedding, attention and head stay bfloat16.
    """

    def __init__(self, int8: bool = False, reduce: Reduce | None = None) -> None:
        """`reduce`: sums over the ranks what their parts of `output` and `down` gave; None where these are whole."""
        self._reduce = reduce
        self.name = f"native {kernels.level()}{', int8' if int8 else ''}"
        self._int8 = int8

    def backend(self, pool: KVPool) -> AttentionBackend:
        return CpuBackend(pool)

    def prepare(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> Prepare:
        num_positions, rotations = FIRST_POSITIONS, _rotations(config, FIRST_POSITIONS)
        tokens, memory = 0, _memory(config, 0)

        def prepare(batch: ForwardBatch) -> Prepared:
            nonlocal num_positions, rotations, tokens, memory
            while max(batch.seq_lens) > num_positions:
                num_positions *= 2
                rotations = _rotations(config, num_positions)
            if len(batch.input_ids) != tokens:
                tokens = len(batch.input_ids)
                memory = _memory(config, tokens)
            return Prepared(_native.StepPositions(*rotations, batch.positions, batch.out_slots), *memory)

        return prepare

    def embedding(self, table: torch.Tensor) -> Embed:
        rows, stream = _native.Wrapped(table), _stream(0, table.shape[1])

        def embed(ids: torch.Tensor) -> Stream:
            nonlocal stream
            if len(ids) != len(stream.tensor):
                stream = _stream(len(ids), table.shape[1])
            _native.embed(rows, ids, stream.wrapped)
            return stream

        return embed

    def head(self, norm: Norm, linear: Affine) -> Head:
        normed, packed = _norm(norm), _linear(linear)

        def project(x: Stream, rows: torch.Tensor) -> torch.Tensor:
            y = torch.empty(len(rows), packed.outputs)
            _native.norm_linear(x.tensor[rows], normed, packed, y)
            return y

        return project

    def attention(
        self, config: ModelConfig, layer: int, norm: Norm, qkv: Affine, q_norm: Norm | None, k_norm: Norm | None
    ) -> Attend:
        scale, window = config.head_dim**-0.5, config.windows[layer]
        weights = _norm(norm), _linear(qkv, self._int8), _norm(q_norm) if q_norm else None, _norm(k_norm) if k_norm else None

        def attend(
            x: Stream, step: Prepared, attention: "CpuBackend", batch: ForwardBatch, added: Runs | None
        ) -> "_native.Wrapped":
            _native.qkv_rope_store(x.wrapped, *weights, step.positions, *attention.layers[layer], step.q, (added or NO_RUNS).qkv)
            attention.attend_into(step.attended, step.q, layer, batch, scale, window)
            return step.flat

        return attend

    def feed_forward(self, output: Affine, norm: Norm, gate: Affine, up: Affine, down: Affine) -> FeedForward:
        first, gate_up, last = (_linear(affine, self._int8) for affine in (output, interleaved(gate, up), down))
        normed = _norm(norm)
        if self._reduce is not None:
            return _in_halves(first, normed, gate_up, last, self._reduce)

        def feed_forward(x: Stream, attended: "_native.Wrapped", added: Runs | None) -> Stream:
            _, *runs = added or NO_RUNS
            _native.add_and_mlp(x.wrapped, attended, first, normed, gate_up, last, *runs)
            return x

        return feed_forward

    def additions(self, layer: LayerAdditions) -> Additions:
        gate_up = None
        if layer.gate_up is not None:
            gate, up = layer.gate_up
            gate_up = LowRank(gate.a, interleaved(Affine(gate.b), Affine(up.b)).weight)
        return Additions(*map(_low_rank, (layer.qkv, layer.output, gate_up, layer.down)))

    def add(self, runs: Sequence[tuple[Additions, int, int]], num_tokens: int) -> Runs:
        products: list[list[tuple[_native.LowRank, int, int]]] = [[], [], [], []]
        for additions, begin, end in runs:
            for product, low_rank in zip(products, additions, strict=True):
                if low_rank is not None:
                    product.append((low_rank, begin, end))
        return Runs(*(_native.LoraBatch(product, num_tokens) if product else None for product in products))


def _in_halves(
    output: "_native.Linear", norm: "_native.RmsNorm", gate_up: "_native.Linear", down: "_native.Linear", reduce: Reduce
) -> FeedForward:
    """A rank's feed forward: the ranks sum what each half gives before it is added to the stream."""

    def feed_forward(x: Stream, attended: "_native.Wrapped", added: Runs | None) -> Stream:
        _, to_output, *to_mlp = added or NO_RUNS
        part = torch.empty_like(x.tensor)
        wrapped = _native.Wrapped(part)
        _native.linear(attended, output, wrapped, to_output)
        x.tensor.add_(reduce(part))
        _native.mlp(x.wrapped, norm, gate_up, down, wrapped, *to_mlp)
        x.tensor.add_(reduce(part))
        return x

    return feed_forward


def interleaved(gate: Affine, up: Affine) -> Affine:
    """Outputs are GATES gates, then the ups that belong to them, and so on."""

    def mixed(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        pairs = torch.stack((gate, up)).view(2, -1, GATES, *gate.shape[1:])
        return pairs.transpose(0, 1).flatten(0, 2)

    bias = None if gate.bias is None or up.bias is None else mixed(gate.bias, up.bias)
    return Affine(mixed(gate.weight, up.weight), bias)


def _rotations(config: ModelConfig, num_positions: int) -> "tuple[_native.Wrapped, _native.Wrapped]":
    """cos and sin of the positions 0 .. num_positions - 1, [num_positions, head_dim / 2] each."""
    frequencies = inverse_frequencies(config.rope, config.head_dim)
    cos, sin = rotation(torch.arange(num_positions), frequencies, config.rope.attention_factor, torch.float32)
    return _native.Wrapped(cos.squeeze(1)), _native.Wrapped(sin.squeeze(1))


def _memory(config: ModelConfig, tokens: int) -> "tuple[_native.Wrapped, _native.Wrapped, _native.Wrapped]":
    """The last three of `Prepared`."""
    q, attended = (torch.empty(tokens, config.num_heads, config.head_dim, dtype=torch.bfloat16) for _ in range(2))
    return _native.Wrapped(q), _native.Wrapped(attended), _native.Wrapped(attended.flatten(1))


def _stream(tokens: int, hidden_size: int) -> Stream:
    tensor = torch.empty(tokens, hidden_size)
    return Stream(tensor, _native.Wrapped(tensor))


def _linear(affine: Affine, int8: bool = False) -> "_native.Linear":
    return _native.Linear(affine.weight.contiguous(), None if affine.bias is None else affine.bias.float(), int8)


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
