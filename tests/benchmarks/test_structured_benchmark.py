"""`python -m benchmarks.structured` on a tiny model: what it counts, not how fast it is."""

import json
from pathlib import Path

import jsonschema
import pytest

from benchmarks.structured.run import StructuredBenchOptions, run
from benchmarks.structured.workload import SCHEMA, make_notes
from radixserve.errors import ConfigError
from tests.tiny_models import make_tiny_model


def test_notes_differ_and_their_records_are_valid() -> None:
    notes = make_notes(30, seed=0)
    assert notes == make_notes(30, seed=0)
    assert len({note.text for note in notes}) == 30
    for note in notes:
        jsonschema.validate(note.record, SCHEMA)
        assert note.record["full_name"] in note.text


def test_four_runs_with_valid_and_equal_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = make_tiny_model(tmp_path / "model", max_position_embeddings=4096)
    file = tmp_path / "result.json"
    options = StructuredBenchOptions(
        model=str(model), dtype="float64", num_requests=3, num_examples=1, concurrency=2, max_tokens=500, output_file=file
    )
    assert run(options) == 0
    assert "3/3" in capsys.readouterr().out
    rows = json.loads(file.read_text())["runs"]
    assert [(row["prefix_cache"], row["jump_forward"]) for row in rows] == [
        (False, False),
        (False, True),
        (True, False),
        (True, True),
    ]
    assert all(row["valid"] == row["equal"] == 3 for row in rows)
    assert [row["cached_tokens"] > 0 for row in rows] == [False, False, True, True]
    assert [row["forced_tokens"] > 0 for row in rows] == [False, True, False, True]
    assert rows[3]["steps"] < rows[2]["steps"]
    assert rows[3]["computed_tokens"] < rows[1]["computed_tokens"]


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(ConfigError, match="--num-requests is 0"):
        run(StructuredBenchOptions(num_requests=0))
