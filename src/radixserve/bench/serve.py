"""`radixserve bench serve`: a workload against any OpenAI-compatible server, beside what an ideal cache would have reused.

The ideal hit rate is computed after the run, from the very token ids of its prompts and answers. A server that returns them
(`return_token_ids`) makes it exact. Otherwise messages and answers are tokenized once more by the server's /tokenize: then an
answer whose text encodes to other ids than were generated counts as reusable, though no cache of generated ids can reuse it, so
that the ideal is an upper bound.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn
from rich.table import Table

from radixserve.bench import report
from radixserve.bench.client import BenchClient, RequestShape
from radixserve.bench.datasets import load_workload
from radixserve.bench.infinite_cache import Exchange, ideal_cached_tokens
from radixserve.bench.load import run_workload
from radixserve.bench.options import ServeBenchOptions
from radixserve.bench.record import Record
from radixserve.bench.report import Summary, percent, seconds
from radixserve.bench.workloads import TokenSession, Workload
from radixserve.errors import ConfigError
from radixserve.tokens import token_len

__all__ = ["ServeBenchOptions", "run"]


@dataclass(frozen=True)
class Ideal:
    """What an infinite cache would have reused, and where the token ids come from."""

    hit_rate: float | None
    token_ids: str


def run(options: ServeBenchOptions) -> int:
    """Runs the benchmark and prints its results. Exit code 0, or 1 if a request failed. Raises ConfigError."""
    workload = load_workload(options)
    model, records, summary, ideal = asyncio.run(_measure(options, workload))
    errors = sorted({record.error for record in records if record.error})
    result = _result(options, workload, model, summary, ideal, errors)
    report.publish(result, options, [_table(workload, model, summary, ideal)])
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


async def _measure(options: ServeBenchOptions, workload: Workload) -> tuple[str, list[Record], Summary, Ideal]:
    """Model, records, their summary, and the ideal."""
    async with BenchClient(options.base_url, options.api_key) as client:
        model = options.model or await client.served_model()
        if options.flush_cache:
            await client.flush_cache()
        shape = RequestShape(model=model, temperature=options.temperature, ignore_eos=workload.ignore_eos)
        with _progress() as progress:
            task = progress.add_task(workload.name, total=workload.num_requests)
            start_s = time.perf_counter()
            records = await run_workload(
                client,
                workload,
                shape,
                max_concurrency=options.max_concurrency,
                request_rate=options.request_rate,
                seed=options.seed,
                on_record=lambda record: progress.advance(task),
            )
            duration_s = time.perf_counter() - start_s
        return model, records, report.summarize(records, duration_s), await _ideal(client, model, workload, records)


async def _ideal(client: BenchClient, model: str, workload: Workload, records: Sequence[Record]) -> Ideal:
    """What an infinite cache would have reused of the requests that succeeded."""
    done = [record for record in records if record.error is None]
    if not done:
        return Ideal(None, "not known: no request succeeded")
    returned = all(record.output_ids is not None for record in done)
    try:
        exchanges = [await _exchange(client, model, workload, record, records) for record in done]
    except ConfigError as error:
        return Ideal(None, f"not known: {error}")
    total = sum(token_len(exchange.prompt) for exchange in exchanges)
    source = "returned by the server" if returned else "sent as ids" if _sends_ids(workload) else "tokenized by /tokenize"
    return Ideal(ideal_cached_tokens(exchanges) / total, source)


async def _exchange(client: BenchClient, model: str, workload: Workload, record: Record, records: Sequence[Record]) -> Exchange:
    """Token ids of one request. Those of an answer to random ids are left out if not returned: no later prompt holds them."""
    session = workload.sessions[record.session]
    prompt, answer = record.prompt_ids, record.output_ids
    if isinstance(session, TokenSession):
        assert prompt is not None, "prompts of ids are known"
        return Exchange(record.start_s, record.end_s, prompt, b"" if answer is None else answer[:-4])
    if prompt is None:
        answers = [other for other in records if other.session == record.session and other.turn < record.turn]
        prompt = await client.token_ids(model, session.prompt(answers))
    if answer is None:
        answer = await client.token_ids(model, record.text) if record.text else b""
        kept = answer[:-4] if record.finish_reason == "length" else answer  # else the stop token came last
    else:
        kept = answer[:-4]
    return Exchange(record.start_s, record.end_s, prompt, kept)


def _sends_ids(workload: Workload) -> bool:
    return all(isinstance(session, TokenSession) for session in workload.sessions)


def _result(
    options: ServeBenchOptions, workload: Workload, model: str, summary: Summary, ideal: Ideal, errors: list[str]
) -> dict[str, Any]:
    """All that is worth keeping of a run."""
    return {
        "benchmark": "serve",
        "options": report.settings(options),
        "model": model,
        "workload": {
            "name": workload.name,
            "sessions": len(workload.sessions),
            "requests": workload.num_requests,
            "note": _note(workload, summary, ideal),
        },
        "summary": report.as_json(summary),
        "ideal": asdict(ideal) | {"points_below_ideal": _points_below(summary, ideal)},
        "errors": errors,
        **report.environment(sys.argv),
    }


def _points_below(summary: Summary, ideal: Ideal) -> float | None:
    """Percentage points from the measured hit rate up to the ideal one."""
    if summary.hit_rate is None or ideal.hit_rate is None:
        return None
    return round((ideal.hit_rate - summary.hit_rate) * 100, 3)


def _note(workload: Workload, summary: Summary, ideal: Ideal) -> str:
    """What a reader must know of these results."""
    below = _points_below(summary, ideal)
    warm = "more than an infinite cache: this one was not empty at the start, see --flush-cache" if below and below < 0 else ""
    return "; ".join(note for note in (workload.note, warm) if note)


def _table(workload: Workload, model: str, summary: Summary, ideal: Ideal) -> Table:
    table = Table(title=f"{workload.name} on {model}", show_header=False, caption=_note(workload, summary, ideal) or None)
    table.add_column()
    table.add_column(justify="right")
    points = _points_below(summary, ideal)
    rows = [
        ("requests (failed)", f"{summary.requests} ({summary.failed})"),
        ("duration", seconds(summary.duration_s)),
        ("requests a second", f"{summary.requests_per_s:.2f}"),
        ("prompt tokens", f"{summary.prompt_tokens:,}"),
        ("cached tokens", "not reported" if summary.cached_tokens is None else f"{summary.cached_tokens:,}"),
        ("hit rate", percent(summary.hit_rate)),
        ("hit rate of an infinite cache", "not known" if ideal.hit_rate is None else f"{ideal.hit_rate:.1%}"),
        ("points below it", "not known" if points is None else f"{points:.2f}"),
        ("token ids", ideal.token_ids),
        ("output tokens a second", f"{summary.output_tokens_per_s:.1f}"),
        ("time to first token, median / p99", f"{seconds(summary.ttft_median_s)} / {seconds(summary.ttft_p99_s)}"),
        ("between pieces, median / p99", f"{seconds(summary.gap_median_s)} / {seconds(summary.gap_p99_s)}"),
        ("whole answer, median / p99", f"{seconds(summary.latency_median_s)} / {seconds(summary.latency_p99_s)}"),
    ]
    for name, value in rows:
        table.add_row(name, value)
    return table


def _progress() -> Progress:
    return Progress(*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn(), console=Console(stderr=True))
