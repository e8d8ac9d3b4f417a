import json
from pathlib import Path

import pytest

from benchmarks.tree import TreeRow, bench_tree, mooncake_rows, print_rows
from radixserve.errors import ConfigError

ROWS = [TreeRow("match", 8.5, "us"), TreeRow("whole cycle", 36_000.4, "requests/s")]


def test_rows_are_printed_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, as_json=False)
    out = capsys.readouterr().out
    assert "8.5" in out
    assert "36,000" in out
    assert "requests/s" in out


def test_rows_are_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, as_json=True)
    assert json.loads(capsys.readouterr().out)[1] == {"name": "whole cycle", "value": 36_000.4, "unit": "requests/s"}


def test_a_trace_is_replayed_with_its_last_page_cut(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    lines = [(1_024, [1, 2]), (700, [1, 3]), (600, [1, 3])]
    trace.write_text(
        "".join(json.dumps({"input_length": n, "output_length": 1, "hash_ids": ids, "timestamp": 0}) + "\n" for n, ids in lines)
    )
    cycle, hit_rate = mooncake_rows(trace)
    assert cycle.value > 0
    assert hit_rate.value == pytest.approx((512 + 600) / (1_024 + 700 + 600))


def test_a_file_that_is_no_trace_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello\n")
    with pytest.raises(ConfigError, match=r"notes\.txt is not a Mooncake trace"):
        mooncake_rows(tmp_path / "notes.txt")


def test_a_trace_that_is_not_there_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--mooncake .*gone\.jsonl is not a file"):
        bench_tree(tmp_path / "gone.jsonl")
