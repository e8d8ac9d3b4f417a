"""`python -m benchmarks.load`."""

from typing import Annotated

from cyclopts import Parameter

from benchmarks.command import main, make_app
from benchmarks.load.run import LoadBenchOptions, run

app = make_app(
    "load",
    "Measure many streams at once, and whether they wait for what other clients do.",
    """  python -m benchmarks.load --pid 1234
  python -m benchmarks.load --streams 16 --output-len 128 --json""",
)


@app.default
def load(*, options: Annotated[LoadBenchOptions, Parameter(name="*")] = LoadBenchOptions()) -> int:  # noqa: B008 (frozen)
    """Runs the streams against the server; returns the exit code."""
    return run(options)


if __name__ == "__main__":
    main(app)
