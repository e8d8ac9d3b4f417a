"""The demo's table, and a line for each answer that differs."""

from collections.abc import Sequence

from rich.table import Table

from radixserve.bench.comparison import Comparison, Difference
from radixserve.bench.report import Summary, percent, seconds
from radixserve.messages import EngineInfo


def table(info: EngineInfo, concurrency: int, comparisons: Sequence[Comparison]) -> Table:
    """Three rows a workload: with the cache, without it, and how many times better."""
    title = f"{info.model}, {info.dtype} on {info.device}, {info.num_threads} threads, {concurrency} sessions at once"
    grid = Table(title=title, caption="TTFT: time to first token. Computed: positions that the model ran.")
    grid.add_column("workload")
    grid.add_column("cache")
    for name in ("requests", "prompt tokens", "cached", "hit rate", "computed", "TTFT median", "p99", "requests/s", "identical"):
        grid.add_column(name, justify="right")
    for comparison in comparisons:
        total = len(comparison.with_cache.records)
        grid.add_row(comparison.name, "with", *_row(comparison.summary_with, comparison.with_cache.computed_tokens))
        grid.add_row("", "without", *_row(comparison.summary_without, comparison.without_cache.computed_tokens))
        ratio = {name: f"[bold]{value:.1f}x[/bold]" for name, value in comparison.speed_up.items()}
        identical = f"{total - len(comparison.differences)}/{total}"
        grid.add_row(
            "", "better", "", "", "", "", ratio["computed_tokens"], ratio["ttft_median"], ratio["ttft_p99"], ratio["throughput"],
            identical, end_section=True,
        )  # fmt: skip
    return grid


def _row(summary: Summary, computed_tokens: int) -> list[str]:
    return [
        f"{summary.requests}",
        f"{summary.prompt_tokens:,}",
        f"{summary.cached_tokens or 0:,}",
        percent(summary.hit_rate),
        f"{computed_tokens:,}",
        seconds(summary.ttft_median_s),
        seconds(summary.ttft_p99_s),
        f"{summary.requests_per_s:.2f}",
        "",
    ]


def explain(info: EngineInfo, comparisons: Sequence[Comparison]) -> list[str]:
    """One line for each answer that differs."""
    return [
        f"{comparison.name}, session {found.session + 1}, turn {found.turn + 1}: first differs at token "
        f"{found.position + 1} of the answer; {_gaps(found)} ({info.dtype})"
        for comparison in comparisons
        for found in comparison.differences
    ]


def _gaps(found: Difference) -> str:
    with_cache, without = (
        "more than the two likeliest apart" if gap is None else f"{abs(gap):.4f}" for gap in (found.gap_with, found.gap_without)
    )
    return f"the two tokens' log-probabilities are {with_cache} apart with the cache, {without} without"
