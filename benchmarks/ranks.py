"""What splitting a model over ranks costs and gives on one machine: the same load on one rank and on two, one server at a time.

    python benchmarks/ranks.py [--model smollm2-135m] > benchmarks/results/ranks-DATE.json

A run takes as many cores as ranks times threads. Two ranks of a thread against one of two threads is what ranks cost on the same
cores; against one of one thread, what a second core gives by a rank. The table of docs/design/tensor-parallel.md goes to stderr.
"""

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from radixserve.bench.report import environment

CONFIGURATIONS = ((1, 1), (1, 2), (2, 1))
"""(ranks, threads of each)."""
LOADS = {
    "one at a time": ["--max-concurrency", "1", "--gsp-num-groups", "2", "--gsp-prompts-per-group", "4"],
    "eight at a time": ["--max-concurrency", "8", "--gsp-num-groups", "4", "--gsp-prompts-per-group", "8"],
}
FIGURES = {"ttft_median_s": "to the first token", "gap_median_s": "between tokens"}
"""Of a summary of `bench serve`: medians, in seconds."""


@contextlib.contextmanager
def serving(model: str, ranks: int, threads: int) -> Iterator[str]:
    """The address of a server, which ends with the block."""
    settings = ["--tensor-parallel", str(ranks), "--num-threads", str(threads), "--num-slots", "20000", "--log-level", "warning"]
    command = ["radixserve", "serve", "--model", model, "--port", "0", *settings]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield next(found[0] for line in server.stdout if (found := re.search(r"http://\S+", line)))
        finally:
            server.terminate()


def measure(url: str, load: list[str]) -> dict[str, Any]:
    """The summary of a load on an empty cache, the second time: the first warms what is warmed once."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        command = ["radixserve", "bench", "serve", "--base-url", url, "--flush-cache", "--output-file", str(file), *load]
        for _ in range(2):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        summary: dict[str, Any] = json.loads(file.read_text())["summary"]
        return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    options = parser.parse_args()
    rows = []
    heads = [f"{load}, {what}" for load in LOADS for what in FIGURES.values()]
    print(f"| ranks x threads | {' | '.join(heads)} |\n{'|---' * (len(heads) + 1)}|", file=sys.stderr)
    for ranks, threads in CONFIGURATIONS:
        cells = []
        with serving(options.model, ranks, threads) as url:
            for name, load in LOADS.items():
                summary = measure(url, load)
                for figure, what in FIGURES.items():
                    value = summary[figure] * 1000
                    cells.append(f"{value:.1f} ms")
                    rows.append({"name": f"{ranks} x {threads}, {name}, {what}", "value": value, "unit": "ms"})
        print(f"| {ranks} x {threads} | {' | '.join(cells)} |", file=sys.stderr)
    command = ["python", "benchmarks/ranks.py", *sys.argv[1:]]
    print(json.dumps({**environment(command), "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
