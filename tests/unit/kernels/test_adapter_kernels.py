"""Low-rank additions at every level against float64, and their bits: alone, in runs of others, by any number of threads."""

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

INPUTS, INNER = 64, 48
"""Of the product under test (an output projection to INPUTS), and of the MLP behind it."""


def random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) / shape[-1] ** 0.5


class Weights:
    """One layer's feed-forward, and for each adapter number the additions to its three products."""

    def __init__(self, ranks: dict[int, int]) -> None:
        self.shapes = {"output": (INPUTS, 34), "gate_up": (2 * INNER, INPUTS), "down": (INPUTS, INNER)}
        self.base = {name: random(*shape, seed=i).bfloat16() for i, (name, shape) in enumerate(self.shapes.items())}
        self.low_rank = {
            number: {
                name: (random(rank, inputs, seed=number).bfloat16(), random(outputs, rank, seed=number + 9).bfloat16())
                for name, (outputs, inputs) in self.shapes.items()
            }
            for number, rank in ranks.items()
        }
        self._linears = {name: _native.Linear(self._laid_out(name, weight)) for name, weight in self.base.items()}
        self._native = {
            number: {name: _native.LowRank(a, self._laid_out(name, b)) for name, (a, b) in of.items()}
            for number, of in self.low_rank.items()
        }

    @staticmethod
    def _laid_out(name: str, weight: torch.Tensor) -> torch.Tensor:
        return (
            interleave_gate_up(LinearWeights(weight[:INNER]), LinearWeights(weight[INNER:])).weight if name == "gate_up" else weight
        )

    def run(self, x: torch.Tensor, y: torch.Tensor, runs: list[tuple[int, int, int]]) -> torch.Tensor:
        """x after the layer; `runs`: (adapter, first row, row after the last)."""
        x = x.clone()
        additions = [
            _native.LoraBatch([(self._native[number][name], begin, end) for number, begin, end in runs], len(x)) if runs else None
            for name in self.shapes
        ]
        norm = _native.RmsNorm(torch.ones(INPUTS), 1e-5)
        output, gate_up, down = self._linears.values()
        _native.add_and_mlp(x, y, output, norm, gate_up, down, *additions)
        return x

    def exact(self, x: torch.Tensor, y: torch.Tensor, number: int) -> torch.Tensor:
        """The same in float64, with what enters a product rounded to bfloat16, for rows of one adapter."""

        def product(name: str, v: torch.Tensor) -> torch.Tensor:
            a, b = (half.double() for half in self.low_rank[number][name])
            return v @ self.base[name].double().T + (v @ a.T).bfloat16().double() @ b.T

        x = x.double() + product("output", y.double())
        n = (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)).bfloat16().double()
        gate, up = product("gate_up", n).chunk(2, dim=-1)
        return x + product("down", (silu(gate) * up).bfloat16().double())


@pytest.mark.parametrize("rows", [1, 5, 40])
def test_additions_are_those_of_float64(rows: int) -> None:
    weights = Weights({1: 6})
    x, y = random(rows, INPUTS, seed=20) * 8, (random(rows, 34, seed=21) * 6).bfloat16()
    found = weights.run(x, y, [(1, 0, rows)])
    torch.testing.assert_close(found.double(), weights.exact(x, y, 1), rtol=0, atol=0.02)
    assert (found - weights.run(x, y, [])).abs().max() > 0.5


def test_no_bit_of_a_row_depends_on_the_other_runs_or_on_threads() -> None:
    weights = Weights({1: 2, 2: 34, 3: 128})
    x, y = random(31, INPUTS, seed=20) * 8, (random(31, 34, seed=21) * 6).bfloat16()
    owners = {0: (0, 4), 1: (4, 5), 2: (5, 20), 3: (22, 31)}  # rows 20 and 21 are the base's, between two adapters
    alone = weights.run(x, y, [])
    for number in (1, 2, 3):
        begin, end = owners[number]
        for row in range(begin, end):
            alone[row] = weights.run(x[row : row + 1], y[row : row + 1], [(number, 0, 1)])[0]
    for threads in (1, 2, 3, 5):
        _native.set_num_threads(threads)
        found = weights.run(x, y, [(number, *owners[number]) for number in (1, 2, 3)])
        assert torch.equal(found, alone)


def shared(own: list[tuple[int, int]], outputs: list[int], seed: int) -> torch.Tensor:
    """A `b` of modules that share a product: each has weights for its own inputs alone. `own`: inputs first to last."""
    b = torch.zeros(sum(outputs), max(last for _, last in own), dtype=torch.bfloat16)
    row = 0
    for (first, last), size in zip(own, outputs, strict=True):
        b[row : row + size, first:last] = random(size, last - first, seed=seed).bfloat16()
        row += size
    return b


@pytest.mark.parametrize("rows", [1, 2, 13, 60])
@pytest.mark.parametrize(
    ("own", "outputs"),
    [
        ([(0, 4), (4, 8), (8, 12)], [48, 16, 16]),  # each group of outputs has one range of inputs
        ([(0, 3), (3, 6), (6, 9)], [34, 10, 20]),  # odd borders inside of groups
        ([(0, 0), (0, 6)], [40, 24]),  # nothing for the first
        ([(0, 0)], [64]),  # nothing at all, as an adapter that was never trained
    ],
)
def test_zeros_of_a_shared_product_need_not_be_kept(own: list[tuple[int, int]], outputs: list[int], rows: int) -> None:
    b = shared(own, outputs, seed=3)
    b = torch.cat((b, b.new_zeros(len(b), b.shape[1] % 2 or 2)), dim=1)
    a, base = random(b.shape[1], 34, seed=4).bfloat16(), random(sum(outputs), 34, seed=5).bfloat16()
    x, y = torch.zeros(rows, sum(outputs)), (random(rows, 34, seed=6) * 6).bfloat16()
    runs = _native.LoraBatch([(_native.LowRank(a, b), 0, rows)], rows)
    _native.linear(y, _native.Linear(base), x, runs)
    hidden = (y.double() @ a.double().T).bfloat16().double()
    expected = y.double() @ base.double().T + hidden @ b.double().T
    torch.testing.assert_close(x.double(), expected, rtol=1e-5, atol=1e-4)


def test_what_does_not_fit_is_refused() -> None:
    def low_rank(outputs: int, inputs: int) -> _native.LowRank:
        return _native.LowRank(random(2, inputs, seed=0).bfloat16(), random(outputs, 2, seed=0).bfloat16())

    with pytest.raises(ValueError, match="a has rank 4 and b 2"):
        _native.LowRank(random(4, 8, seed=0).bfloat16(), random(8, 2, seed=0).bfloat16())
    with pytest.raises(ValueError, match="a has 7 inputs: must be even"):
        _native.LowRank(random(2, 7, seed=0).bfloat16(), random(8, 2, seed=0).bfloat16())
    with pytest.raises(ValueError, match="runs is empty"):
        _native.LoraBatch([], 3)
    for begin, end in ((2, 2), (0, 4), (-1, 2)):
        with pytest.raises(ValueError, match=f"run {begin}:{end} is empty, out of order or beyond 3 rows"):
            _native.LoraBatch([(low_rank(8, 8), begin, end)], 3)
    with pytest.raises(ValueError, match="differ in shape"):
        _native.LoraBatch([(low_rank(8, 8), 0, 1), (low_rank(8, 6), 1, 2)], 3)
    weights = Weights({})
    x, y = random(3, INPUTS, seed=0), random(3, 34, seed=0).bfloat16()
    norm, linears = _native.RmsNorm(torch.ones(INPUTS), 1e-5), weights._linears.values()
    with pytest.raises(ValueError, match=r"additions are for 2 rows of a weight \[64, 34\]: must be 3 of \[64, 34\]"):
        _native.add_and_mlp(x, y, *[*linears][:1], norm, *[*linears][1:], _native.LoraBatch([(low_rank(64, 34), 0, 1)], 2))
