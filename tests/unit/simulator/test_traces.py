"""Reading and writing traces."""

from pathlib import Path

import pytest

from radixserve.errors import ConfigError
from radixserve.simulator.traces import PageIds, TraceRequest, read_trace, write_trace
from radixserve.tokens import token_bytes


def test_what_is_written_is_read(tmp_path: Path) -> None:
    requests = [TraceRequest(700, 3, [0, 1], 5.0), TraceRequest(512, 1, [0], 7.5)]
    write_trace(tmp_path / "trace.jsonl", requests)
    assert read_trace(tmp_path / "trace.jsonl") == requests


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"input_length": 600, "output_length": 1}', "hash_ids"),
        ('{"input_length": 600, "output_length": 1, "hash_ids": [1]}', "one for every 512 tokens, 2"),
        ('{"input_length": 0, "output_length": 1, "hash_ids": []}', "input_length of 0"),
        ("not json", "malformed"),
        ('{"input_length": 5, "output_length": 1, "hash_ids": [1], "other": ' + "[" * 100_000, "nested too deeply"),
        *(
            (f'{{"input_length": 5, "output_length": 1, "hash_ids": [1], "{name}": {value}}}', f"{name} of .*between 0 and")
            for name, values in {
                "output_length": ("1000000000000", "-5", "4194305", "999999999999999999"),
                "input_length": ("-5", "1000000000000"),
                "timestamp": ("-0.5", "1e300"),
                "delay": ("-1", "1e15"),
            }.items()
            for value in values
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"input_length": 5, "output_length": 1, "hash_ids": [1], "session_id": "ignored"}\n\n' + line + "\n")
    with pytest.raises(ConfigError, match=rf"trace\.jsonl is not a Mooncake trace: line 3.*{reason}"):
        read_trace(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a file"):
        read_trace(tmp_path / "none.jsonl")


def test_pages_are_equal_after_an_equal_prefix_only() -> None:
    pages = PageIds(page_len=2)
    first = pages.of(token_bytes([1, 2, 3, 4, 5]))
    assert pages.of(token_bytes([1, 2, 3, 4, 6])) == [*first[:2], 3]
    assert pages.of(token_bytes([3, 4])) == [4]
