"""How a benchmark of this folder becomes a command: `python -m benchmarks.NAME`."""

import os
import sys
from collections.abc import Sequence

from cyclopts import App, Parameter

from radixserve.errors import RadixServeError


def make_app(name: str, purpose: str, examples: str) -> App:
    """The command line of the benchmark `name`. `examples`: lines to try, the last part of its help."""
    return App(
        name=f"python -m benchmarks.{name}",
        help=purpose,
        help_epilogue=f"Examples:\n\n{examples}",
        help_format="plaintext",
        version_flags=(),
        default_parameter=Parameter(negative_iterable=()),
    )


def main(app: App, args: Sequence[str] | None = None) -> None:
    """Runs the command. Exit codes: what the benchmark returns, 1 for a setting that can't be used, 2 for a wrong command line."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app(sys.argv[1:] if args is None else args)
    except RadixServeError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        sys.exit(1)
