"""`python -m benchmarks.load`: many streams at once, and what could make one wait for another.

The same streams run several times: alone, and alongside clients that keep the server busy with something other than tokens of the
model (`background_load.py`) or read too slowly. The gaps between a stream's tokens tell whether it waited. At the end all streams
disconnect in the middle, and the tokens that were made for clients already gone are counted.
"""

import asyncio
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import uvloop
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.load.background_load import BACKGROUND_LOADS, Act, background_load
from benchmarks.load.client_disconnects import Disconnects, disconnect_all
from radixserve.bench import report
from radixserve.bench.client import BenchClient, RequestShape
from radixserve.bench.record import Record
from radixserve.config import check_at_least, check_can_write
from radixserve.errors import ConfigError

REFERENCE_TOKENS_PER_S = 300
"""The rate at which the HTTP side's share of a core is told."""


@dataclass(frozen=True, kw_only=True)
class LoadBenchOptions:
    """Whom to ask, and how much."""

    base_url: str = "http://127.0.0.1:8000"
    """The server, with or without /v1; nobody else may use it."""

    pid: int | None = None
    """Process id of `radixserve serve`, on this machine: tells what CPU time its HTTP side takes."""

    model: str | None = None
    """Model to ask for; by default the first that the server lists."""

    api_key: str | None = None
    """Sent as a bearer token."""

    streams: int = 64
    """Streams open at once."""

    output_len: int = 64
    """Tokens of each answer."""

    json: bool = False
    """Print one JSON object instead of the table."""

    output_file: Path | None = None
    """Write the JSON here too."""


@dataclass(frozen=True)
class LoadRun:
    """All streams once, beside one disturbance. Times in seconds, over the gaps of all streams."""

    beside: str
    disturbances: int
    """Replies that the disturbing clients got meanwhile."""
    duration_s: float
    output_tokens: int
    gap_median_s: float
    gap_p99_s: float
    gap_max_s: float
    http_cpu_s: float | None
    """CPU time of the HTTP process; None without its process id."""

    @property
    def http_share(self) -> float | None:
        """Of a core, at REFERENCE_TOKENS_PER_S; beside a disturbance that one's work is in it."""
        if self.http_cpu_s is None or not self.output_tokens:
            return None
        return self.http_cpu_s / self.output_tokens * REFERENCE_TOKENS_PER_S


def run(options: LoadBenchOptions) -> int:
    """Runs the benchmark and prints its results. Exit code 0, or 1 if a request failed. Raises ConfigError."""
    for name in ("streams", "output_len"):
        check_at_least(name, getattr(options, name), 2)
    check_can_write("output_file", options.output_file)
    if options.pid is not None and not psutil.pid_exists(options.pid):
        raise ConfigError(f"--pid is {options.pid}: must be the number of a process that runs")
    runs, departure, errors = uvloop.run(_measure(options, Console(stderr=True)))
    _publish(options, runs, departure, errors)
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


async def _measure(options: LoadBenchOptions, console: Console) -> tuple[list[LoadRun], Disconnects, list[str]]:
    """The runs, the departure, and what went wrong."""
    async with BenchClient(options.base_url, options.api_key) as client:
        model = options.model or await client.served_model()
        shape = RequestShape(model=model, return_token_ids=False)
        await _stream_all(client, shape, options)  # what comes first is slower: connections, prompts to compute
        runs, errors = [], set()
        for name, act in BACKGROUND_LOADS.items():
            with console.status(f"{options.streams} streams, beside {name}"):
                one, failed = await _run(client, shape, options, name, act)
            runs.append(one)
            errors |= failed
        with console.status("clients that leave"):
            departure = await disconnect_all(client, model, options.streams, options.output_len // 2)
        return runs, departure, sorted(errors)


async def _run(
    client: BenchClient, shape: RequestShape, options: LoadBenchOptions, name: str, act: Act | None
) -> tuple[LoadRun, set[str]]:
    """One run, and the errors of its requests."""
    async with background_load(client, shape.model, act) as count:
        client.start_clock()
        before_s = _cpu_s(options.pid)
        records = await _stream_all(client, shape, options)
        duration_s, after_s = client.now_s(), _cpu_s(options.pid)
        done = count.done
    gaps = [gap for record in records for gap in record.gaps_s]
    one = LoadRun(
        beside=name,
        disturbances=done,
        duration_s=duration_s,
        output_tokens=sum(record.completion_tokens for record in records),
        gap_median_s=report.percentile(gaps, 50),
        gap_p99_s=report.percentile(gaps, 99),
        gap_max_s=max(gaps, default=math.nan),
        http_cpu_s=None if before_s is None or after_s is None else after_s - before_s,
    )
    return one, {record.error for record in records if record.error is not None}


async def _stream_all(client: BenchClient, shape: RequestShape, options: LoadBenchOptions) -> list[Record]:
    prompts = [f"Story number {number}:" for number in range(options.streams)]
    asked = (client.ask(prompt, options.output_len, shape, number, 0) for number, prompt in enumerate(prompts))
    return await asyncio.gather(*asked)


def _cpu_s(pid: int | None) -> float | None:
    """CPU seconds of a process, without its children: the engine is one."""
    if pid is None:
        return None
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _publish(options: LoadBenchOptions, runs: list[LoadRun], departure: Disconnects, errors: list[str]) -> None:
    result: dict[str, Any] = {
        "benchmark": "load",
        "options": report.settings(options),
        "runs": [asdict(one) | {"http_share": one.http_share} for one in runs],
        "departure": asdict(departure),
        "errors": errors,
        **report.environment(sys.argv),
    }
    report.publish(result, options, [_table(options, runs, departure)])


def _table(options: LoadBenchOptions, runs: list[LoadRun], departure: Disconnects) -> Table:
    title = f"{options.streams} streams of {options.output_len} tokens"
    table = Table("beside", "replies", "tokens/s", "gap median", "p99", "longest", title=title, box=box.SIMPLE)
    for one in runs:
        table.add_row(
            one.beside,
            str(one.disturbances or ""),
            f"{one.output_tokens / one.duration_s:.0f}",
            report.seconds(one.gap_median_s),
            report.seconds(one.gap_p99_s),
            report.seconds(one.gap_max_s),
        )
    freed = "every slot was free or evictable again" if departure.freed else "slots were NOT given back"
    left = f"{departure.streams} streams left at once: {departure.steps:.1f} steps later {freed}"
    share = runs[0].http_share
    side = "the HTTP side's CPU time is not known without --pid" if share is None else f"the HTTP side takes {share:.1%} of a core"
    table.caption = f"alone, at {REFERENCE_TOKENS_PER_S} tokens/s, {side}\n{left}"
    return table
