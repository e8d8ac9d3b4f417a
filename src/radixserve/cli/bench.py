"""`radixserve bench serve` and `profile`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from radixserve.bench import profile as profiling
from radixserve.bench.serve import ServeBenchOptions, run
from radixserve.cli.options import EngineFlags, JsonFlag
from radixserve.config import EngineConfig


def serve(*, options: Annotated[ServeBenchOptions, Parameter(name="*")] = ServeBenchOptions()) -> int:  # noqa: B008 (frozen)
    """Runs the workload against the server; returns the exit code."""
    return run(options)


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
