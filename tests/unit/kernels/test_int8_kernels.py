"""int8 products at every level against exact whole numbers in NumPy: equal to the last bit, alone, batched and threaded."""

import numpy as np
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
SHAPES = [(96, 64), (300, 64), (64, 130), (30, 2), (34, 30), (960, 576), (576, 1536)]
"""Outputs, inputs: also of no whole groups of 4, 16 and 32."""


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def quantized(x: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers int64 [rows, size] and their scales float32 [rows, 1]."""
    values = x.float().numpy()
    largest = np.abs(values).max(axis=1, keepdims=True)
    inverse = np.float32(127) / np.where(largest == 0, np.float32(np.inf), largest)
    return np.rint(values * inverse).clip(-127, 127).astype(np.int64), largest / np.float32(127)


def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The exact sums, and the scales applied in float32."""
    (a, a_scales), (b, b_scales) = quantized(x), quantized(weight)
    return torch.from_numpy((a @ b.T).astype(np.float32) * (a_scales * b_scales.T))


def add_product(x: torch.Tensor, y: torch.Tensor, linear: _native.Linear) -> None:
    """x += linear(y): an MLP of zeros adds nothing more."""
    gate_up, down = (_native.Linear(torch.zeros(shape).bfloat16()) for shape in ((32, linear.outputs), (linear.outputs, 16)))
    _native.add_and_mlp(x, y, linear, _native.RmsNorm(torch.ones(linear.outputs), 1e-5), gate_up, down)


@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_a_product_is_exact_alone_and_in_every_batch(outputs: int, inputs: int) -> None:
    weight, bias = random(outputs, inputs).bfloat16(), random(outputs, seed=1)
    linear = _native.Linear(weight, bias, int8=True)
    x, stream = random(257, inputs, seed=2).bfloat16() * 20, random(257, outputs, seed=3)
    expected = stream + (product(x, weight) + bias)
    for rows in (*range(1, 10), 12, 13, 16, 17, 65, 257):
        for threads in (1, 2, 3):
            _native.set_num_threads(threads)
            guarded = torch.full((rows + 2, outputs), torch.nan)
            y = guarded[1:-1]
            y.copy_(stream[:rows])
            add_product(y, x[:rows], linear)
            assert torch.equal(y, expected[:rows])
            assert guarded[[0, -1]].isnan().all()
    for row in (0, 7, 256):
        add_product(stream[row : row + 1], x[row : row + 1], linear)
        assert torch.equal(stream[row], expected[row])


def test_the_largest_sums_stay_exact() -> None:
    size = 65536
    weight = torch.cat((torch.full((1, size), 3.0), torch.full((1, size), -3.0))).bfloat16()
    x = torch.cat((torch.full((1, size), 5.0), torch.full((1, size), -5.0))).bfloat16()
    y = torch.zeros(2, 2)
    add_product(y, x, _native.Linear(weight, int8=True))
    assert torch.equal(y, product(x, weight))
    torch.testing.assert_close(y, torch.tensor([[15.0, -15.0], [-15.0, 15.0]]) * size)


def test_rows_of_zeros_tiny_numbers_and_what_is_no_number_stay_alone() -> None:
    weight, x = random(96, 64).bfloat16(), random(9, 64, seed=1).bfloat16()
    x[1], x[2], x[3, 5], x[4, 63], x[5, 0] = 0.0, 1e-38, torch.nan, torch.inf, -torch.inf
    y = torch.zeros(9, 96)
    add_product(y, x, _native.Linear(weight, int8=True))
    assert (y[1:3] == 0).all()
    assert y[3:6].isnan().all()
    assert torch.equal(y[[0, 6, 7, 8]], product(x[[0, 6, 7, 8]], weight))


def test_an_output_of_zeros_is_zero() -> None:
    weight = random(40, 64).bfloat16()
    weight[7] = 0.0
    y = torch.zeros(3, 40)
    add_product(y, random(3, 64, seed=1).bfloat16(), _native.Linear(weight, int8=True))
    assert (y[:, 7] == 0).all()
    assert (y[:, :7] != 0).all()


@pytest.mark.parametrize(("hidden", "intermediate"), [(62, 16), (576, 1536)])
def test_mlp(hidden: int, intermediate: int) -> None:
    gate, up = random(intermediate, hidden).bfloat16() / 8, random(intermediate, hidden, seed=1).bfloat16() / 8
    down, attended = random(hidden, intermediate, seed=2).bfloat16() / 8, random(65, 30, seed=3).bfloat16()
    output, scale = random(hidden, 30, seed=4).bfloat16(), random(hidden, seed=5)
    linears = [
        _native.Linear(w, int8=True) for w in (output, interleave_gate_up(LinearWeights(gate), LinearWeights(up)).weight, down)
    ]
    parts = linears[0], _native.RmsNorm(scale, 1e-6), *linears[1:]
    x = random(65, hidden, seed=6)

    y = x + product(attended, output)
    n = (y.double() * torch.rsqrt(y.double().square().mean(-1, keepdim=True) + 1e-6) * scale.double()).bfloat16()
    expected = y + product((silu(product(n, gate)) * product(n, up)).bfloat16(), down)
    alone = x.clone()
    for row in range(65):
        _native.add_and_mlp(alone[row : row + 1], attended[row : row + 1], *parts)
    error = (alone - expected).abs().max() / expected.abs().max()
    assert error < 5e-3, f"relative error {error}"  # an input may round the other way
    for rows in (2, 5, 9, 16, 17, 65):
        for threads in (1, 2):
            _native.set_num_threads(threads)
            batch = x[:rows].clone()
            _native.add_and_mlp(batch, attended[:rows], *parts)
            assert torch.equal(batch, alone[:rows])


def test_heads_take_int8_projections() -> None:
    """A rotation by nothing leaves the projection, rounded to bfloat16."""
    x, weight = random(20, 64).bfloat16().float(), random(4 * 16, 64, seed=1).bfloat16()
    norm, linear = _native.RmsNorm(torch.ones(64), 1e-5), _native.Linear(weight, int8=True)
    projected = torch.empty(20, 64)
    _native.norm_linear(x, norm, linear, projected)
    pools, q = torch.zeros(2, 20, 1, 16).bfloat16(), torch.empty(20, 2, 16).bfloat16()
    _native.qkv_rope_store(
        x,
        norm,
        linear,
        None,
        None,
        _native.StepPositions(torch.ones(20, 8), torch.zeros(20, 8), torch.arange(20), torch.arange(20)),
        *pools,
        q,
    )
    assert torch.equal(torch.cat((q.flatten(1), *pools.flatten(2)), dim=1), projected.bfloat16())


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (torch.zeros(4, 4), "weight is of dtype float32: must be bfloat16"),
        (torch.zeros(4, 3).bfloat16(), "weight has 3 inputs: must be even"),
        (torch.zeros(1, 65538).bfloat16(), "weight has 65538 inputs: must be at most 65536 in int8"),
    ],
)
def test_a_weight_that_does_not_fit_is_named(weight: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _native.Linear(weight, int8=True)
