"""`radixserve demo`."""

from typing import Annotated

from cyclopts import Parameter

from radixserve.bench.demo.run import DemoOptions, run


def demo(*, options: Annotated[DemoOptions, Parameter(name="*")] = DemoOptions()) -> int:  # noqa: B008 (frozen)
    """Runs the workloads; returns the exit code."""
    return run(options)
