"""Broken recordings: each is an error of one line, whatever is wrong."""

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radixserve.config import EngineConfig
from radixserve.errors import ConfigError, RadixServeError
from radixserve.simulator.whatif import read
from tests.property.test_recorded_runs import recorded_engine
from tests.traffic import Traffic

WRONG: list[Any] = [None, True, -1, 0, 10**9, 10**18, -(10**18), 1e308, "", "lru", [], [[]], {}, {"a": 1}, [[5, 3]], [[-5, -5]]]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The lines of a short run."""
    path = tmp_path_factory.mktemp("recording") / "run.jsonl"
    traffic = Traffic(recorded_engine(EngineConfig(), 256, path))
    for salt in (None, "a"):
        traffic.send([3] * 20, 3, salt=salt)
        traffic.run()
    return [json.loads(line) for line in path.read_text().splitlines()]


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there are values in a value."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*above, key)
        yield from places(value[key], (*above, key))


@settings(max_examples=200)
@given(data=st.data())
def test_any_value_replaced(recording: list[Any], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    lines = copy.deepcopy(recording)
    line = data.draw(st.just(0) | st.integers(0, len(lines) - 1))
    *above, key = data.draw(st.sampled_from(list(places(lines[line]))))
    inner = lines[line]
    for step in above:
        inner = inner[step]
    inner[key] = data.draw(st.sampled_from(WRONG))
    path = tmp_path_factory.getbasetemp() / "broken.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    try:
        read(path)
    except RadixServeError as error:
        message = str(error)
    else:
        return
    assert "\n" not in message


NO_RECORDINGS = [b"", b"\n", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 10_000, b"\x00\xff", b'{"format": NaN}']


@pytest.mark.parametrize("content", NO_RECORDINGS, ids=range(len(NO_RECORDINGS)))
def test_files_that_are_no_recording(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ConfigError) as error:
        read(tmp_path / "x")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["x\0y", "\ud800", "a" * 300, "/dev/zero", "."])
def test_paths_that_are_no_recording(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a file"):
        read(Path(name))


def test_a_pipe_in_place_of_a_recording_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="is not a file"):
        read(tmp_path / "pipe")
