"""`python -m benchmarks.adapters` on a tiny model: what it reports, not how fast it is."""

import json
from pathlib import Path

import pytest

from benchmarks.adapters import AdapterBenchOptions, run
from radixserve.errors import ConfigError


def test_a_row_for_the_base_and_for_each_number_of_adapters(
    tiny_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "result.json"
    options = AdapterBenchOptions(
        model=str(tiny_model_dir), device="cpu", rank=2, num_requests=5, prompt_len=9, output_len=3, rounds=1, output_file=file
    )
    assert run(options) == 0
    assert "base alone" in capsys.readouterr().out
    rows = json.loads(file.read_text())["runs"]
    assert [row["num_adapters"] for row in rows] == [0, 1, 4, 16]
    assert rows[0]["decode_share"] == 1
    assert all(row["prefill_tokens_per_s"] > 0 < row["decode_tokens_per_s"] for row in rows)


def test_nonsense_is_refused() -> None:
    with pytest.raises(ConfigError, match="--rank is 129: must be between 1 and 128"):
        run(AdapterBenchOptions(rank=129))
    with pytest.raises(ConfigError, match="--output-len is 1: must be at least 2"):
        run(AdapterBenchOptions(output_len=1))
