"""`radixserve simulate`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from radixserve.simulator.command import run
from radixserve.simulator.options import SimulateOptions


def simulate(
    file: Path,
    /,
    *,
    options: Annotated[SimulateOptions, Parameter(name="*")] = SimulateOptions(),  # noqa: B008 (frozen)
) -> int:
    """Simulates and prints; returns the exit code.

    Parameters
    ----------
    file
        A recording of `radixserve serve --record`, or a trace in Mooncake's form.
    """
    return run(file, options)
