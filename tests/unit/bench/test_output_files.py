"""A result that can't be written is refused before the work whose result it is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import adapters
from benchmarks.adapters import AdapterBenchOptions
from benchmarks.compare import run as compare
from benchmarks.compare.options import CompareOptions
from benchmarks.load import run as under_load
from benchmarks.load.run import LoadBenchOptions
from benchmarks.structured import run as structured
from benchmarks.structured.run import StructuredBenchOptions
from radixserve.bench import serve
from radixserve.bench.demo import run as demo
from radixserve.bench.demo.run import DemoOptions
from radixserve.bench.options import ServeBenchOptions
from radixserve.bench.profile import profile
from radixserve.config import EngineConfig
from radixserve.errors import ConfigError

RUNS: dict[str, Callable[[Path], Any]] = {
    "adapters": lambda path: adapters.run(AdapterBenchOptions(model="/nowhere", output_file=path)),
    "compare": lambda path: compare.run(CompareOptions(tokenizer="/nowhere", output_file=path)),
    "demo": lambda path: demo.run(DemoOptions(model="/nowhere", output_file=path)),
    "load": lambda path: under_load.run(LoadBenchOptions(output_file=path)),
    "profile": lambda path: profile(EngineConfig(model="/nowhere"), path, as_json=False),
    "serve": lambda path: serve.run(ServeBenchOptions(output_file=path)),
    "structured": lambda path: structured.run(StructuredBenchOptions(model="/nowhere", output_file=path)),
}


@pytest.mark.parametrize("bench", RUNS)
def test_it_is_refused_before_anything_runs(bench: str, tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none/x.json", f"there is no folder {tmp_path / 'none'}"), (tmp_path, "it is a folder")):
        with pytest.raises(ConfigError, match=f"--output(-file)? {path} can't be written: {reason}"):
            RUNS[bench](path)
