"""`radixserve bench profile` on a tiny model: it writes a file that a simulation reads."""

from pathlib import Path

import pytest

from radixserve.cli import main
from radixserve.simulator.cost import StepShape, load


def test_the_fitted_file_is_a_cost_model(tiny_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "costs.json"
    with pytest.raises(SystemExit, match="0"):
        main(["bench", "profile", "--model", str(tiny_model_dir), "--num-slots", "2048", "--output", str(output)])
    costs = load(output)
    assert costs.seconds(StepShape(1, 10, 10)) > 0
    assert str(tiny_model_dir) in costs.source
    assert f"written to {output}" in capsys.readouterr().out.replace("\n", "")
