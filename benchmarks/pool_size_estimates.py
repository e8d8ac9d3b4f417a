"""The gauges of other pools against simulations with such pools, on the traffic of a real server that records.

Run: python benchmarks/pool_size_estimates.py --num-slots 2000 --dataset mt-bench-101 --dataset-path subset.jsonl --num-prompts 30
What is not known here goes to `radixserve bench serve`. Prints the hit rates since the start: what the server gave, what its
gauges say of each size, what `radixserve simulate` gets there on the recording, and the difference.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

SIZES = (0.5, 1.0, 2.0, 4.0, 8.0)
PROGRAM = (sys.executable, "-m", "radixserve.cli")


@contextmanager
def served(num_slots: int, recording: Path) -> Iterator[str]:
    """The address of a server of the default model."""
    command = [*PROGRAM, "serve", "--port", "0", "--num-slots", str(num_slots), "--record", str(recording), "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield next(line.strip() for line in process.stdout if "http://" in line)
        process.terminate()


def gauges(url: str) -> dict[str, float]:
    """Hit rates by pool as a server estimates them, and `real`, what it gave."""
    text = httpx.get(f"{url}/metrics").text
    found = {pool: float(rate) for pool, rate in re.findall(r'radixserve_estimated_hit_rate\{pool="(\w.*)"\} (\S+)', text)}
    cached, prompt = (float(re.findall(rf"^radixserve_{name}_tokens_total (\S+)", text, re.M)[0]) for name in ("cached", "prompt"))
    return found | {"real": cached / prompt}


def simulated(recording: Path, num_slots: int) -> dict[str, float]:
    """The same by simulation."""
    sizes = ",".join(str(int(size * num_slots)) for size in SIZES)
    out = subprocess.run(
        [*PROGRAM, "simulate", recording, "--num-slots", sizes, "--json"], check=True, stdout=subprocess.PIPE
    ).stdout
    predictions = json.loads(out)["predictions"]
    rates = {f"{size:g}x": p["hit_rate"] for size, p in zip(SIZES, predictions, strict=True)}
    return rates | {"infinite": predictions[0]["infinite_hit_rate"]}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-slots", type=int, default=2000)
    options, load = parser.parse_known_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder) / "run.jsonl"
        with served(options.num_slots, recording) as url:
            subprocess.run([*PROGRAM, "bench", "serve", "--base-url", url, *load], check=True)
            told = gauges(url)
        computed = simulated(recording, options.num_slots)
    table = Table("pool", "gauge", "simulated", "points apart", title=f"the server gave {told['real']:.1%}", title_justify="left")
    for pool, rate in computed.items():
        table.add_row(pool, f"{told[pool]:.1%}", f"{rate:.1%}", f"{100 * (told[pool] - rate):+.1f}")
    Console().print(table)


main(sys.argv[1:])
