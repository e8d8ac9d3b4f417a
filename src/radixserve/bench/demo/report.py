"""The demo's tables, each at most 80 columns wide: what was reused, how fast it was, and which answers differ."""

from collections.abc import Sequence

from rich import box
from rich.table import Table

from radixserve.bench.demo.comparison import Comparison, Difference
from radixserve.bench.report import Summary, percent, seconds
from radixserve.ipc import EngineInfo


def tables(info: EngineInfo, concurrency: int, comparisons: Sequence[Comparison]) -> list[Table]:
    """All that there is to print; the last comparison is that of all workloads together."""
    found = [reuse(comparisons), speed(info, concurrency, comparisons)]
    return [*found, differing(info, comparisons[:-1])] if comparisons[-1].differences else found


def reuse(comparisons: Sequence[Comparison]) -> Table:
    """What the cache reused, of all prompt tokens and of the median prompt, and how many answers are the same without it."""
    grid = _grid("What was reused", "workload", "requests", "prompt tokens", "cached", "hit rate", "median prompt", "equal answers")
    for comparison in comparisons:
        summary, total = comparison.summary_with, len(comparison.with_cache.records)
        grid.add_row(
            comparison.name,
            f"{summary.requests}",
            f"{summary.prompt_tokens:,}",
            f"{summary.cached_tokens or 0:,}",
            percent(summary.hit_rate),
            percent(summary.median_reused_share),
            f"{total - len(comparison.differences)}/{total}",
        )
    return grid


def speed(info: EngineInfo, concurrency: int, comparisons: Sequence[Comparison]) -> Table:
    """Three rows a workload: with the cache, without it, and how many times better."""
    grid = _grid(
        f"{info.model}, {info.dtype}, {info.num_threads} threads, {concurrency} sessions at once",
        *("workload", "cache", "first token, median", "p99", "requests/s", "tokens computed"),
    )
    for comparison in comparisons:
        better = {name: f"[bold]{value:.1f}x[/bold]" for name, value in comparison.speed_up.items()}
        grid.add_row(comparison.name, "with", *_speed(comparison.summary_with, comparison.with_cache.computed_tokens))
        grid.add_row("", "without", *_speed(comparison.summary_without, comparison.without_cache.computed_tokens))
        ratios = (better[name] for name in ("ttft_median", "ttft_p99", "throughput", "computed_tokens"))
        grid.add_row("", "[bold]better[/bold]", *ratios, end_section=True)
    return grid


def differing(info: EngineInfo, comparisons: Sequence[Comparison]) -> Table:
    """One row for each answer that differs: where, and how near to a tie the two tokens were."""
    title = f"Answers that differ in {info.dtype}: the two tokens' distance in log-probability"
    grid = _grid(title, "workload", "session", "turn", "token", "with the cache", "without")
    for comparison in comparisons:
        for found in comparison.differences:
            place = (f"{found.session + 1}", f"{found.turn + 1}", f"{found.position + 1}")
            grid.add_row(comparison.name, *place, _gap(found, found.gap_with), _gap(found, found.gap_without))
    return grid


def _grid(title: str, first: str, *others: str) -> Table:
    grid = Table(title=title, box=box.SIMPLE)
    grid.add_column(first, no_wrap=True)
    for name in others:
        grid.add_column(name, justify="left" if name == "cache" else "right")
    return grid


def _speed(summary: Summary, computed_tokens: int) -> list[str]:
    ttft = [seconds(summary.ttft_median_s), seconds(summary.ttft_p99_s)]
    return [*ttft, f"{summary.requests_per_s:.2f}", f"{computed_tokens:,}"]


def _gap(found: Difference, gap: float | None) -> str:
    if found.token_with < 0 or found.token_without < 0:
        return "one ended"
    return "not among the likeliest" if gap is None else f"{abs(gap):.4f}"
