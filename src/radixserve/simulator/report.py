"""Prints what `radixserve simulate` found: tables, one JSON object, or curves."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from radixserve.simulator.cost import CostModel
from radixserve.simulator.serial import SerialResult
from radixserve.simulator.whatif import Prediction

WIDTH = 160
"""Of a table that goes to a file, in characters."""
VARYING = ("replicas", "router", "policy", "order", "page_size", "num_slots")

OVERLOADED = 1.5
"""An engine that needs so many times as long as its requests took to arrive has fallen behind."""


def print_predictions(predictions: Sequence[Prediction], cost: CostModel, longest: int) -> None:
    """One row a setting; what all settings share stands in the title. `longest`: tokens of the longest request."""
    varies = [name for name in VARYING if len({getattr(p.setting, name) for p in predictions}) > 1]
    fixed = [f"{name.replace('_', ' ')} {_short(getattr(predictions[0].setting, name))}" for name in VARYING if name not in varies]
    table = Table(title=", ".join(fixed), title_justify="left", box=SIMPLE)
    heads = ("hit rate", "optimum", "saved", "evicted", "preempted", "refused", "balance", "TTFT", "p99", "tokens/s")
    for head in [*(name.replace("_", " ") for name in varies), *heads]:
        table.add_column(head, justify="right")
    for p in predictions:
        counts = (_short(p.saved_tokens), _short(p.evicted_tokens), str(p.preemptions), str(p.refused), f"{p.balance:.2f}")
        times = (_seconds(p.ttft_median_s), _seconds(p.ttft_p99_s), f"{p.tokens_per_s:,.1f}")
        own = (_short(getattr(p.setting, name)) for name in varies)
        table.add_row(*own, _percent(p.hit_rate), _percent(p.optimal_hit_rate), *counts, *times)
    first, seconds = predictions[0], sum(p.simulated_in_s for p in predictions)
    console = _console()
    console.print(table)
    for note in (
        f"{first.requests:,} requests; an infinite cache hits {_percent(first.infinite_hit_rate)}; simulated in {seconds:.1f} s",
        _timing(first),
        f"step times: {cost.source}",
    ):
        console.print(note, style="dim", markup=False)
    for doubt in _doubts(predictions, cost, longest):
        console.print(doubt, style="yellow", markup=False, soft_wrap=True)


def _timing(prediction: Prediction) -> str:
    """Whether requests wait for answers."""
    if not prediction.following:
        return "each request comes at its recorded time: none goes on from another's answer"
    return (
        f"{prediction.following:,} of them come after the answer that they go on from, and the pause that there was; "
        "the others at their recorded times"
    )


def _doubts(predictions: Sequence[Prediction], cost: CostModel, longest: int) -> Iterator[str]:
    """Why the times may say little."""
    if 0 < cost.longest < longest:
        yield f"requests have up to {longest:,} tokens: step times beyond the {cost.longest:,} that were measured are extrapolated"
    worst = max(predictions, key=lambda p: p.end_s)
    if 0 < OVERLOADED * worst.arrived_s < worst.end_s:
        came, took = _seconds(worst.arrived_s), _seconds(worst.end_s)
        yield (
            f"overloaded: requests came within {came}, and serving them takes up to {took}, so TTFT is mostly waiting; "
            f"try --speed {worst.arrived_s / worst.end_s:.1g}, or the --cost-model of a faster machine"
        )


def print_serial(results: Sequence[SerialResult]) -> None:
    """Shares of pages found, one row a capacity."""
    table = Table("pages", title="hits of pages, prompts one at a time", title_justify="left")
    heads = {"page": "", "leaf": ", whole leaves", "tail": ", tails"}
    columns = list(dict.fromkeys((result.policy, result.portion) for result in results))
    for policy, portion in columns:
        table.add_column(policy + heads[portion], justify="right")
    for num_pages in dict.fromkeys(result.num_pages for result in results):
        row = {(r.policy, r.portion): f"{100 * r.hit_rate:.2f}%" for r in results if r.num_pages == num_pages}
        table.add_row(f"{num_pages:,}", *(row[column] for column in columns))
    _console().print(table)


def as_json(predictions: Sequence[Prediction], serial: Sequence[SerialResult]) -> str:
    """Everything, with full precision."""
    found: dict[str, Any] = {}
    if predictions:
        found["predictions"] = [asdict(prediction) for prediction in predictions]
    if serial:
        found["serial"] = [{**asdict(result), "hit_rate": result.hit_rate} for result in serial]
    return json.dumps(found, indent=2)


def _console() -> Console:
    """As wide as the terminal; a table that goes to a file isn't cut."""
    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=WIDTH)


def _percent(rate: float) -> str:
    return f"{100 * rate:.1f}%"


def _short(value: Any) -> str:
    """1.5M, 100k, or as it is."""
    if not isinstance(value, int) or value < 10_000:
        return str(value)
    return f"{value / 1e6:.2f}M" if value >= 1_000_000 else f"{value / 1e3:.1f}k"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds * 1000:,.0f} ms"
