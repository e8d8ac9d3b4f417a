"""Costs of steps: what a step's shape is, and that the fit finds the costs behind measured times."""

from pathlib import Path

import pytest

from radixserve.errors import ConfigError
from radixserve.simulator.cost import CostModel, StepShape, fit, load, shape_of


def test_the_shape_of_a_step_counts_every_attended_token() -> None:
    assert shape_of([3, 1], [5, 10]) == StepShape(tokens=4, pairs=3 + 4 + 5 + 10, context=15)


def test_the_fit_finds_the_costs() -> None:
    true = CostModel(0.01, 0.002, 1e-6, 3e-6)
    shapes = [shape_of([n] * b, [c + n] * b) for n in (1, 16, 128) for b in (1, 4, 8) for c in (0, 100, 900)]
    found = fit(shapes, [true.seconds(shape) for shape in shapes], "test", 1000)
    for name in ("step_s", "token_s", "pair_s", "context_s"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=1e-6)
    assert found.error < 1e-9


def test_no_cost_is_negative() -> None:
    shapes = [StepShape(1, 1, 1), StepShape(2, 4, 2), StepShape(3, 9, 3)]
    found = fit(shapes, [3.0, 2.0, 1.0], "test", 1000)
    assert min(found.step_s, found.token_s, found.pair_s, found.context_s) >= 0


def test_a_default_ships() -> None:
    assert load(None).seconds(StepShape(1, 1, 1)) > 0


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cost.json").write_text("{}")
    with pytest.raises(ConfigError, match="radixserve bench profile"):
        load(tmp_path / "cost.json")
