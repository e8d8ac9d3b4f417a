"""`python -m benchmarks.compare`: the same workloads on our server and on any OpenAI-compatible servers, in turn.

All servers run at once, and only one is asked at a time. Runs are interleaved: each workload of each rep runs on every server
before the next one starts, so that whatever changes on the machine changes for all. Who comes first changes from rep to rep.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import psutil
import uvloop
from rich.console import Console

from benchmarks.compare.options import CompareOptions
from benchmarks.compare.processor_use import LoadMeter, wait_until_quiet
from benchmarks.compare.recorded import load_recorded
from benchmarks.compare.result import OURS, MeasuredRun, Result, find_warnings
from benchmarks.compare.workloads import NAMES, ComparedWorkload, WordPrompts, make_workloads
from radixserve.bench import report
from radixserve.bench.client import BenchClient, RequestShape
from radixserve.bench.load import run_workload
from radixserve.bench.workloads import TextSession, Turn, Workload
from radixserve.config import check_can_write
from radixserve.errors import ConfigError
from radixserve.text.tokenizer import Tokenizer

__all__ = ["CompareOptions", "run"]

WARM_UP_LENS = (16, 300)


@dataclass(frozen=True)
class Server:
    """A server to measure, as the options name it."""

    name: str
    url: str
    pid: int | None


@dataclass(frozen=True)
class _Target:
    """A server that answers."""

    server: Server
    client: BenchClient
    shape: RequestShape


def run(options: CompareOptions) -> int:
    """Runs the comparison and prints it. Exit code 0, or 1 if a request failed. Raises ConfigError."""
    servers, names = parse_servers(options), parse_workloads(options)
    tokenizer = Tokenizer.load(options.tokenizer)
    prompts, recorded = WordPrompts(tokenizer), load_recorded(names, options, tokenizer)
    reps = [make_workloads(names, prompts, options, rep, recorded) for rep in range(options.reps)]
    warm_up = _warm_up(prompts, options.seed)
    console = Console(stderr=True)
    models, runs = uvloop.run(_measure(servers, reps, warm_up, options, console))
    notes = {name: workloads[0].note for name, workloads in recorded.items() if workloads[0].note}
    result = Result(runs, [server.name for server in servers], notes)
    _publish(options, models, result)
    return 1 if any(run.errors for run in runs) else 0


def parse_servers(options: CompareOptions) -> list[Server]:
    """Ours and the peers. Raises ConfigError for what is no NAME=VALUE, for a name given twice or not known."""
    urls = {OURS: options.ours} | _pairs("--peer", options.peer, taken=(OURS,))
    pids = _pairs("--pid", options.pid)
    if unknown := pids.keys() - urls.keys():
        raise ConfigError(f"--pid names {', '.join(sorted(unknown))}: known are {', '.join(urls)}")
    if wrong := [pid for pid in pids.values() if not (pid.isdecimal() and psutil.pid_exists(int(pid)))]:
        raise ConfigError(f"--pid has {wrong[0]!r}: must be the number of a process that runs")
    return [Server(name, url, int(pids[name]) if name in pids else None) for name, url in urls.items()]


def parse_workloads(options: CompareOptions) -> list[str]:
    """Names of the workloads. Raises ConfigError for options that can't be."""
    o = options
    names = o.workloads.split(",")
    if unknown := [name for name in names if name not in NAMES]:
        raise ConfigError(f"--workloads has {unknown[0]!r}: choose from {', '.join(NAMES)}")
    if "warm" in names and "shared" not in names[: names.index("warm")]:
        raise ConfigError("--workloads has warm without shared before it, which fills the cache")
    counts = {
        "--reps": o.reps,
        "--num-requests": o.num_requests,
        "--max-concurrency": o.max_concurrency,
        "--question-len": o.question_len,
        "--output-len": o.output_len,
        "--agent-sessions": o.agent_sessions,
        "--agent-max-len": o.agent_max_len,
    }
    for flag, value in counts.items():
        if value < 1:
            raise ConfigError(f"{flag} is {value}: must be at least 1")
    check_can_write("output_file", o.output_file)
    return names


def in_turn(
    servers: Sequence[Server], reps: Sequence[Sequence[ComparedWorkload]]
) -> Iterator[tuple[int, ComparedWorkload, Server]]:
    """Rep, workload and server of each run, in order."""
    for rep, workloads in enumerate(reps):
        first = rep % len(servers)
        for compared in workloads:
            for server in (*servers[first:], *servers[:first]):
                yield rep, compared, server


async def _measure(
    servers: Sequence[Server],
    reps: Sequence[Sequence[ComparedWorkload]],
    warm_up: Workload,
    options: CompareOptions,
    console: Console,
) -> tuple[dict[str, str], list[MeasuredRun]]:
    """The model of each server, and all runs."""
    async with AsyncExitStack() as stack:
        targets = {server.name: await _connect(stack, server, options.model) for server in servers}
        for target in targets.values():
            records = await run_workload(target.client, warm_up, target.shape, max_concurrency=1)
            if errors := [record.error for record in records if record.error]:
                raise ConfigError(f"{target.server.name} at {target.server.url} can't be measured: {errors[0]}")
        runs = []
        for rep, compared, server in in_turn(servers, reps):
            measured = await _run_once(targets[server.name], compared, rep, options.wait_quiet_s)
            console.print(_line(measured), highlight=False, soft_wrap=True)
            runs.append(measured)
        return {name: target.shape.model for name, target in targets.items()}, runs


async def _connect(stack: AsyncExitStack, server: Server, model: str | None) -> _Target:
    client = await stack.enter_async_context(BenchClient(server.url))
    return _Target(server, client, RequestShape(model=model or await client.served_model(), return_token_ids=False))


async def _run_once(target: _Target, compared: ComparedWorkload, rep: int, wait_quiet_s: float) -> MeasuredRun:
    pid = target.server.pid
    was_quiet = await wait_until_quiet(pid, wait_quiet_s)
    meter = LoadMeter(pid)
    records = await run_workload(target.client, compared.workload, target.shape, max_concurrency=compared.max_concurrency)
    load = meter.read()
    summary = report.summarize(records, max(record.end_s for record in records))
    foreign_cores = None if pid is None else load.foreign
    return MeasuredRun(
        rep=rep,
        workload=compared.name,
        server=target.server.name,
        summary=summary,
        foreign_cores=foreign_cores,
        client_cores=load.client,
        warnings=find_warnings(compared, summary, foreign_cores, was_quiet),
        errors=tuple(sorted({record.error for record in records if record.error})),
    )


def _publish(options: CompareOptions, models: dict[str, str], result: Result) -> None:
    data: dict[str, Any] = {
        "benchmark": "compare",
        "options": report.settings(options),
        "models": models,
        **result.to_json(),
        **report.environment(sys.argv),
    }
    report.publish(data, options, [result.table()])


def _warm_up(prompts: WordPrompts, seed: int) -> Workload:
    """Short requests before the first run: a server's first ones pay for what is made at first need."""
    texts = [prompts.take(length, f"{seed}/warm-up/{length}") for length in WARM_UP_LENS]
    return Workload("warm-up", tuple(TextSession((Turn(text, 4),)) for text in texts))


def _line(run: MeasuredRun) -> str:
    notes = "; ".join((*run.errors, *run.warnings))
    speed = f"{run.tokens_per_s:8.1f} tokens/s, first token after {report.seconds(run.summary.ttft_median_s)}"
    return f"rep {run.rep} {run.workload:8} {run.server:12} {speed}" + (f"  ({notes})" if notes else "")


def _pairs(flag: str, values: Sequence[str], taken: Sequence[str] = ()) -> dict[str, str]:
    """NAME=VALUE of each. Raises ConfigError for anything else, or a name twice."""
    pairs: dict[str, str] = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise ConfigError(f"{flag} is {text!r}: must be NAME=VALUE")
        if name in pairs or name in taken:
            raise ConfigError(f"{flag} names {name!r} twice, or it stands for our own server")
        pairs[name] = value
    return pairs
