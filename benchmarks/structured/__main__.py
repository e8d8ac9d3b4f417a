"""`python -m benchmarks.structured`."""

from typing import Annotated

from cyclopts import Parameter

from benchmarks.command import main, make_app
from benchmarks.structured.run import StructuredBenchOptions, run

app = make_app(
    "structured",
    "Make JSON records under a schema, with and without the cache and jump-forward.",
    """  python -m benchmarks.structured
  python -m benchmarks.structured --num-requests 64 --concurrency 16 --output-file structured.json""",
)


@app.default
def structured(*, options: Annotated[StructuredBenchOptions, Parameter(name="*")] = StructuredBenchOptions()) -> int:  # noqa: B008
    """Runs the four engines in turn; returns the exit code."""
    return run(options)


if __name__ == "__main__":
    main(app)
