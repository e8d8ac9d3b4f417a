"""`radixserve bench tree`, `serve`, `load`, `compare`, `structured`, `adapters` and `profile`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from radixserve.bench import adapters as adapter_batches
from radixserve.bench import compare as comparing
from radixserve.bench import profile as profiling
from radixserve.bench import structured as structured_output
from radixserve.bench import under_load
from radixserve.bench.adapters import AdapterBenchOptions
from radixserve.bench.compare_options import CompareOptions
from radixserve.bench.serve import ServeBenchOptions, run
from radixserve.bench.structured import StructuredBenchOptions
from radixserve.bench.tree import bench_tree, print_rows
from radixserve.bench.under_load import LoadBenchOptions
from radixserve.cli.options import EngineFlags, JsonFlag
from radixserve.config import EngineConfig


def tree(*, mooncake: Path | None = None, as_json: JsonFlag = False) -> None:
    """Measures and prints.

    Parameters
    ----------
    mooncake
        A Mooncake trace (JSONL) to send through the whole cycle of match, acquire, extend, publish and release.
    """
    print_rows(bench_tree(mooncake), as_json)


def serve(*, options: Annotated[ServeBenchOptions, Parameter(name="*")] = ServeBenchOptions()) -> int:  # noqa: B008 (frozen)
    """Runs the workload against the server; returns the exit code."""
    return run(options)


def load(*, options: Annotated[LoadBenchOptions, Parameter(name="*")] = LoadBenchOptions()) -> int:  # noqa: B008 (frozen)
    """Runs the streams against the server; returns the exit code."""
    return under_load.run(options)


def compare(*, options: Annotated[CompareOptions, Parameter(name="*")]) -> int:
    """Runs the workloads on all servers in turn; returns the exit code."""
    return comparing.run(options)


def profile(
    *,
    output: Path = Path("costs.json"),
    as_json: JsonFlag = False,
    engine: EngineFlags = EngineConfig(),  # noqa: B008 (frozen)
) -> None:
    """Measures, fits, writes and prints.

    Parameters
    ----------
    output
        The file to write, for `radixserve simulate --cost-model`.
    """
    profiling.profile(engine, output, as_json=as_json)


def structured(*, options: Annotated[StructuredBenchOptions, Parameter(name="*")] = StructuredBenchOptions()) -> int:  # noqa: B008
    """Runs the four engines in turn; returns the exit code."""
    return structured_output.run(options)


def adapters(*, options: Annotated[AdapterBenchOptions, Parameter(name="*")] = AdapterBenchOptions()) -> int:  # noqa: B008 (frozen)
    """Runs the base, then growing numbers of adapters; returns the exit code."""
    return adapter_batches.run(options)
