"""Products, norms, heads and MLP at every level against float64, and their bits against themselves: alone, batched, threaded."""

from collections.abc import Callable

import pytest
import torch
from torch.nn.functional import silu

from radixserve import kernels

if kernels.NOT_BUILT is not None:
    pytest.skip(kernels.NOT_BUILT, allow_module_level=True)

from radixserve.kernels import _native
from radixserve.models.native_operations import interleave_gate_up
from radixserve.models.operations import LinearWeights

pytestmark = pytest.mark.usefixtures("level")
ROWS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 63, 64, 65, 257]
SHAPES = [(96, 64), (300, 64), (64, 128), (30, 2), (34, 130), (960, 576), (576, 1536)]
"""Outputs, inputs."""


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def poisoned(rows: int, outputs: int) -> tuple[torch.Tensor, Callable[[], None]]:
    """A result full of NaN between two guards, and a check that the guards were not written to."""
    memory = torch.full((rows + 2, outputs), torch.nan)
    memory[0] = memory[-1] = 12345.0

    def check() -> None:
        assert (memory[0] == 12345.0).all()
        assert (memory[-1] == 12345.0).all()

    return memory[1:-1], check


def normed(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMS norm in float64, rounded once to bfloat16 and given back as float64."""
    wide = x.double()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.double()).bfloat16().double()


def add_product(x: torch.Tensor, y: torch.Tensor, linear: _native.Linear) -> None:
    """x += linear(y): an MLP of zeros adds nothing more."""
    gate_up, down = (_native.Linear(torch.zeros(shape).bfloat16()) for shape in ((32, linear.outputs), (linear.outputs, 16)))
    _native.add_and_mlp(x, y, linear, _native.RmsNorm(torch.ones(linear.outputs), 1e-5), gate_up, down)


@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_a_product_is_added_and_has_the_bits_of_each_row_alone(outputs: int, inputs: int) -> None:
    weight, bias = random(outputs, inputs).bfloat16(), random(outputs, seed=1)
    linear = _native.Linear(weight, bias)
    x, stream = random(257, inputs, seed=2).bfloat16(), random(257, outputs, seed=3)
    alone = []
    for row in range(257):
        y, check = poisoned(1, outputs)
        y.copy_(stream[row])
        add_product(y, x[row : row + 1], linear)
        check()
        alone.append(y)
    expected = stream.double() + x.double() @ weight.double().T + bias.double()
    torch.testing.assert_close(torch.cat(alone).double(), expected, rtol=0, atol=2e-6 * inputs)
    for rows in ROWS:
        for threads in (1, 2, 3):
            _native.set_num_threads(threads)
            y, check = poisoned(rows, outputs)
            y.copy_(stream[:rows])
            add_product(y, x[:rows], linear)
            check()
            assert torch.equal(y, torch.cat(alone[:rows]))


@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_a_normed_product_overwrites_and_has_the_bits_of_each_row_alone(outputs: int, inputs: int) -> None:
    weight, scale = random(outputs, inputs).bfloat16(), random(inputs, seed=1)
    linear, norm = _native.Linear(weight), _native.RmsNorm(scale, 1e-5)
    x = random(65, inputs, seed=2) * 30
    alone = torch.full((65, outputs), torch.nan)
    for row in range(65):
        _native.norm_linear(x[row : row + 1], norm, linear, alone[row : row + 1])
    expected = normed(x, scale, 1e-5) @ weight.double().T
    torch.testing.assert_close(alone.double(), expected, rtol=0, atol=0.01 * inputs**0.5)  # an input may round the other way
    for rows in (2, 4, 5, 9, 64, 65):
        for threads in (1, 2):
            _native.set_num_threads(threads)
            y, check = poisoned(rows, outputs)
            _native.norm_linear(x[:rows], norm, linear, y)
            check()
            assert torch.equal(y, alone[:rows])


@pytest.mark.parametrize(("hidden", "intermediate"), [(64, 128), (62, 16), (576, 1536)])
@pytest.mark.parametrize("biased", [False, True])
def test_mlp(hidden: int, intermediate: int, biased: bool) -> None:
    gate, up = random(intermediate, hidden).bfloat16() / 8, random(intermediate, hidden, seed=1).bfloat16() / 8
    down, scale = random(hidden, intermediate, seed=2).bfloat16() / 8, random(hidden, seed=3)
    biases = (random(intermediate, seed=4), random(intermediate, seed=5)) if biased else (None, None)
    fused = interleave_gate_up(LinearWeights(gate, biases[0]), LinearWeights(up, biases[1]))
    nothing = torch.zeros(65, 2).bfloat16()
    output = _native.Linear(torch.zeros(hidden, 2).bfloat16())
    parts = output, _native.RmsNorm(scale, 1e-6), _native.Linear(fused.weight, fused.bias), _native.Linear(down)
    x = random(65, hidden, seed=6)

    n = normed(x, scale, 1e-6)
    gates, ups = (n @ weight.double().T + (0 if bias is None else bias) for weight, bias in ((gate, biases[0]), (up, biases[1])))
    expected = x.double() + (silu(gates) * ups).bfloat16().double() @ down.double().T
    alone = x.clone()
    for row in range(65):
        _native.add_and_mlp(alone[row : row + 1], nothing[:1], *parts)
    error = (alone - expected).abs().max() / expected.abs().max()
    assert error < 1e-3, f"relative error {error}"
    for rows in (2, 4, 5, 9, 65):
        for threads in (1, 2):
            _native.set_num_threads(threads)
            y = x[:rows].clone()
            _native.add_and_mlp(y, nothing[:rows], *parts)
            assert torch.equal(y, alone[:rows])


def test_silu_of_huge_gates_is_the_gate_or_zero() -> None:
    ones = torch.ones(16, 2).bfloat16()
    gate_up, down = interleave_gate_up(LinearWeights(ones), LinearWeights(ones)).weight, torch.ones(2, 16).bfloat16()
    for size, expected in ((3e4, 16.0 * (3e4 * 2) ** 2), (-3e4, 0.0)):
        x = torch.tensor([[1.0, 1.0]])
        norm, output = _native.RmsNorm(torch.full((2,), size), 0.0), _native.Linear(torch.zeros(2, 2).bfloat16())
        _native.add_and_mlp(x, torch.zeros(1, 2).bfloat16(), output, norm, _native.Linear(gate_up), _native.Linear(down))
        torch.testing.assert_close(x, torch.full((1, 2), expected + 1), rtol=0.02, atol=0)


def test_a_row_that_is_not_a_number_stays_alone() -> None:
    linear = _native.Linear(random(96, 64).bfloat16())
    x, norm = random(9, 64), _native.RmsNorm(torch.ones(64), 1e-5)
    x[4] = torch.nan
    y = torch.empty(9, 96)
    _native.norm_linear(x, norm, linear, y)
    assert y[4].isnan().all()
    assert not y[[0, 1, 2, 3, 5, 6, 7, 8]].isnan().any()


@pytest.mark.parametrize("head_dim", [2, 16, 24, 64, 80, 128, 256])
@pytest.mark.parametrize("tokens", [1, 7, 65])
@pytest.mark.parametrize("with_norm", [False, True])
def test_heads_are_projected_normed_rotated_and_stored(head_dim: int, tokens: int, with_norm: bool) -> None:
    num_q, num_kv, half = 4, 2, head_dim // 2
    x, angles = random(tokens, 64), random(100, half, seed=1) * 10
    positions = torch.arange(99, 99 - tokens, -1)
    linear = _native.Linear(random((num_q + 2 * num_kv) * head_dim, 64, seed=5).bfloat16())
    norm = _native.RmsNorm(torch.ones(64), 1e-5)
    qkv = torch.empty(tokens, linear.outputs)
    _native.norm_linear(x, norm, linear, qkv)
    weights = (random(head_dim, seed=2), random(head_dim, seed=3)) if with_norm else (None, None)
    slots = torch.randperm(100, generator=torch.Generator().manual_seed(4))[:tokens]
    q, k, v = torch.split(qkv.double().view(tokens, -1, head_dim), (num_q, num_kv, num_kv), dim=1)

    def rotated(heads: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        if weight is not None:
            heads = heads * torch.rsqrt(heads.square().mean(-1, keepdim=True) + 1e-6) * weight.double()
        a, b, angle = heads[..., :half], heads[..., half:], angles[positions, None]
        cos, sin = angle.cos().double(), angle.sin().double()
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    for threads in (1, 2):
        _native.set_num_threads(threads)
        pools = torch.full((2, 100, num_kv, head_dim), torch.nan).bfloat16()
        out = torch.full((tokens, num_q, head_dim), torch.nan).bfloat16()
        q_norm, k_norm = (None if weight is None else _native.RmsNorm(weight, 1e-6) for weight in weights)
        step_positions = _native.StepPositions(angles.cos(), angles.sin(), positions, slots)
        _native.qkv_rope_store(x, norm, linear, q_norm, k_norm, step_positions, pools[0], pools[1], out)
        for ours, expected in ((out, rotated(q, weights[0])), (pools[0][slots], rotated(k, weights[1])), (pools[1][slots], v)):
            torch.testing.assert_close(ours.double(), expected, rtol=2**-8, atol=1e-4)
        untouched = torch.ones(100, dtype=torch.bool)
        untouched[slots] = False
        assert pools[:, untouched].isnan().all()


def test_embedding_rows_are_widened() -> None:
    table, ids = random(30, 70).bfloat16(), torch.tensor([29, 0, 7, 7])
    x = torch.empty(4, 70)
    _native.embed(table, ids, x)
    assert torch.equal(x, table[ids].float())


def test_a_step_without_rows_is_nothing() -> None:
    y = torch.empty(0, 96)
    _native.norm_linear(torch.empty(0, 64), _native.RmsNorm(torch.ones(64), 1e-5), _native.Linear(random(96, 64).bfloat16()), y)


BF16 = torch.zeros(2, 64).bfloat16()
ONE = torch.tensor([1])
ZEROS = torch.zeros(5, 8)


def test_a_wrapped_tensor_is_the_tensor() -> None:
    table, ids = random(30, 70).bfloat16(), torch.tensor([3, 4])
    x = torch.empty(2, 70)
    wrapped = _native.Wrapped(x)
    del x
    _native.embed(_native.Wrapped(table), ids, wrapped)
    y = torch.empty(2, 96)
    linear, norm = _native.Linear(random(96, 70).bfloat16()), _native.RmsNorm(torch.ones(70), 1e-5)
    _native.norm_linear(wrapped, norm, linear, y)
    expected = torch.empty(2, 96)
    _native.norm_linear(table[ids].float(), norm, linear, expected)
    assert torch.equal(y, expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: _native.Linear(torch.zeros(4, 4)), "weight is of dtype float32: must be bfloat16"),
        (lambda: _native.Linear(torch.zeros(4).bfloat16()), r"weight has shape \[4\]: must be \[any, any\]"),
        (lambda: _native.Linear(torch.zeros(4, 3).bfloat16()), "weight has 3 inputs: must be even"),
        (lambda: _native.Linear(torch.zeros(4, 4).bfloat16().T[:, ::2]), "weight must be contiguous"),
        (lambda: _native.Linear(torch.zeros(4, 4).bfloat16(), torch.zeros(3)), r"bias has shape \[3\]: must be \[4\]"),
        (
            lambda: add_product(torch.zeros(2, 96), BF16, _native.Linear(torch.zeros(96, 32).bfloat16())),
            r"y has shape \[2, 64\]",
        ),
        (
            lambda: add_product(torch.zeros(3, 96), BF16, _native.Linear(torch.zeros(96, 64).bfloat16())),
            r"x has shape \[3, 96\]",
        ),
        (lambda: _native.embed(BF16, torch.tensor([2]), torch.zeros(1, 64)), "token 2 is outside of the vocabulary of 2"),
        (lambda: _native.embed(BF16, torch.tensor([-1]), torch.zeros(1, 64)), "token -1 is outside"),
        (lambda: _native.embed(BF16, torch.tensor([1], dtype=torch.int32), torch.zeros(1, 64)), "ids is of dtype int32"),
        (lambda: _native.embed(_native.Wrapped(ZEROS), torch.tensor([1]), torch.zeros(1, 8)), "table is of dtype float32"),
        (lambda: _native.embed(_native.Wrapped(BF16.T), torch.tensor([1]), torch.zeros(1, 2)), "table must be contiguous"),
        (lambda: _native.StepPositions(ZEROS, ZEROS, torch.tensor([5]), ONE), "position 5 is outside of the rotations of 5"),
        (lambda: _native.StepPositions(ZEROS, ZEROS, torch.tensor([1, 2]), ONE), r"slots has shape \[1\]: must be \[2\]"),
        (lambda: _native.set_num_threads(0), "n is 0: must be at least 1"),
        (lambda: _native.choose_level("sse9"), "level is 'sse9'"),
    ],
)
def test_what_does_not_fit_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("slot", "message"), [(-1, "slot -1 is negative"), (10, "slot 10 is outside of the pool of 10")])
def test_a_slot_outside_of_the_pool_is_refused(slot: int, message: str) -> None:
    pool, angles = torch.zeros(10, 1, 4).bfloat16(), torch.zeros(1, 2)
    norm, linear = _native.RmsNorm(torch.ones(2), 1e-5), _native.Linear(torch.zeros(12, 2).bfloat16())
    q = torch.zeros(1, 1, 4).bfloat16()

    def store() -> None:
        step_positions = _native.StepPositions(angles, angles, torch.tensor([0]), torch.tensor([slot]))
        _native.qkv_rope_store(torch.zeros(1, 2), norm, linear, None, None, step_positions, pool, pool.clone(), q)

    with pytest.raises(ValueError, match=message):
        store()
