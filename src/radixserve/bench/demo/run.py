"""`radixserve demo`: the same requests with the cache and without it, in one process, and what the cache was worth.

Two engines are built from the same settings but for the cache. Workload by workload, the one with the cache runs first, then the
other; each starts with an empty tree and gets the same requests in the same closed loop. A chat's history holds the token ids
that the engine with the cache generated, in both runs, so that both are asked the same and every answer can be compared.
"""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from radixserve.bench import report
from radixserve.bench.demo import report as demo_report
from radixserve.bench.demo.comparison import Comparison, Run, merge
from radixserve.bench.demo.loop import Answers, ClosedLoop, SteppedEngine, by_turn, flush
from radixserve.bench.demo.workloads import FULL, QUICK, demo_workloads
from radixserve.bench.model_options import ModelOptions
from radixserve.bench.record import Record
from radixserve.bench.workloads import TokenSession, Turn, Workload
from radixserve.config import Dtype, check_at_least, check_can_write
from radixserve.engine.build import build_engine
from radixserve.errors import ConfigError
from radixserve.ipc import EngineInfo
from radixserve.limits import Limits
from radixserve.tokens import TOKEN_BYTES

EXACT_DTYPES = ("float32", "float64")
"""In these, a differing answer is a fault. In others a near-tie may flip by rounding."""


@dataclass(frozen=True, kw_only=True)
class DemoOptions(ModelOptions):
    """What to run the demo on."""

    dtype: Dtype = "auto"
    """Of weights and KV. float32 must give identical answers with and without the cache."""

    quick: bool = False
    """Run a smaller share of each workload: under two minutes on two cores."""

    concurrency: int = 8
    """Sessions open at once."""

    num_slots: int = 32768
    """Size of each engine's KV pool in tokens."""

    json: bool = False
    """Print one JSON object instead of the table."""

    output_file: Path | None = None
    """Write the JSON here too."""


def run(options: DemoOptions) -> int:
    """Runs the demo and prints its results. Exit code 0, or 1 if answers differ in float32. Raises ConfigError."""
    check_at_least("concurrency", options.concurrency, 1)
    check_can_write("output_file", options.output_file)
    console = Console(stderr=True)
    with console.status(f"loading {options.model}, twice"):
        config = options.engine_config(
            num_slots=options.num_slots,
        )
        cached = build_engine(config)
        uncached = build_engine(dataclasses.replace(config, prefix_cache=False))
    assert cached.tokenizer is not None, "an engine with a model has its tokenizer"
    workloads = demo_workloads(cached.tokenizer, QUICK if options.quick else FULL)
    _check_fits(workloads, cached.info.limits)
    comparisons = compare(cached, uncached, workloads, options.concurrency, console)
    comparisons.append(merge("all", comparisons))
    return _publish(options, cached.info, comparisons)


def _check_fits(workloads: Sequence[Workload], limits: Limits) -> None:
    """Raises ConfigError before anything runs if some session could not run to its end."""
    for workload in workloads:
        longest = max(
            sum(len(turn.content) // TOKEN_BYTES + turn.max_tokens for turn in session.turns) for session in workload.sessions
        )
        room = min(limits.max_context_len, limits.num_slots)
        if longest > room:
            raise ConfigError(
                f"the demo's {workload.name} need {longest} tokens: the context holds {limits.max_context_len} and the pool "
                f"{limits.num_slots}; raise --num-slots or choose another --model"
            )


def compare(
    cached: SteppedEngine, uncached: SteppedEngine, workloads: Sequence[Workload], concurrency: int, console: Console
) -> list[Comparison]:
    """Runs each workload on both engines, after one unmeasured request on each."""
    columns = TextColumn("{task.description}"), *Progress.get_default_columns()[1:3], MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("warming up", total=2 * sum(workload.num_requests for workload in workloads))
        for engine in (cached, uncached):
            measure(engine, _first_request(workloads[0]), 1)
        comparisons = []
        for workload in workloads:
            progress.update(task, description=f"{workload.name}, with the cache")
            with_cache = measure(cached, workload, concurrency, on_record=lambda record: progress.advance(task))
            progress.update(task, description=f"{workload.name}, without")
            without_cache = measure(
                uncached, workload, concurrency, by_turn(with_cache.records), lambda record: progress.advance(task)
            )
            comparisons.append(Comparison(workload.name, with_cache, without_cache))
    return comparisons


def measure(
    engine: SteppedEngine,
    workload: Workload,
    concurrency: int,
    history: Answers | None = None,
    on_record: Callable[[Record], None] = lambda record: None,
) -> Run:
    """Runs a workload from an empty tree. `history`: answers of another run, which later turns carry instead of this one's."""
    flush(engine)
    computed_before = engine.stats().computed_tokens
    loop = ClosedLoop(engine, workload, concurrency, history, on_record)
    duration_s = loop.run()
    return Run(records=loop.records, duration_s=duration_s, computed_tokens=engine.stats().computed_tokens - computed_before)


def _first_request(workload: Workload) -> Workload:
    session = workload.sessions[0]
    assert isinstance(session, TokenSession), "the demo's sessions hold token ids"
    return Workload("warm-up", (TokenSession((Turn(session.turns[0].content, 4),)),))


def _publish(options: DemoOptions, info: EngineInfo, comparisons: Sequence[Comparison]) -> int:
    """Prints and writes the results; returns the exit code."""
    differ = any(comparison.differences for comparison in comparisons)
    exact = info.dtype in EXACT_DTYPES
    result = {
        "benchmark": "demo",
        "options": report.settings(options),
        "engine": {"model": info.model, "dtype": info.dtype, "device": info.device, "num_threads": info.num_threads},
        "workloads": [comparison.to_json() for comparison in comparisons],
        "ok": not (differ and exact),
        **report.environment(sys.argv),
    }
    report.publish(result, options, demo_report.tables(info, options.concurrency, comparisons))
    if differ and exact:
        print(f"answers differ with and without the cache in {info.dtype}: this must not be", file=sys.stderr)
        return 1
    return 0
