"""From the runs of `python -m benchmarks.compare` to ratios, medians, a table and a JSON."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from benchmarks.compare.workloads import ComparedWorkload
from radixserve.bench import report
from radixserve.bench.report import Summary, seconds

OURS = "ours"
MOST_FOREIGN_CORES = 0.1
"""A run during which anything else used more is marked: measure it again."""
CHANCE_HITS = 2
"""Tokens a request that may be reused beyond what the prompts share: a special token first, and a word that agrees by chance."""


@dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """One workload once on one server."""

    rep: int
    workload: str
    server: str
    summary: Summary
    foreign_cores: float | None
    """Used by anything but server and client. None: the server's process is not known."""
    client_cores: float
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def tokens_per_s(self) -> float:
        """What the workload is about: prompt tokens a second of prefill, output tokens a second of the others."""
        return self.summary.prompt_tokens_per_s if self.workload == "prefill" else self.summary.output_tokens_per_s

    def to_json(self) -> dict[str, Any]:
        return {
            "rep": self.rep,
            "workload": self.workload,
            "server": self.server,
            "tokens_per_s": round(self.tokens_per_s, 2),
            "foreign_cores": None if self.foreign_cores is None else round(self.foreign_cores, 3),
            "client_cores": round(self.client_cores, 3),
            "warnings": list(self.warnings),
            "errors": list(self.errors),
            "summary": report.as_json(self.summary),
        }


@dataclass(frozen=True)
class Result:
    """All runs, in the order they were made."""

    runs: Sequence[MeasuredRun]
    servers: Sequence[str] = field(default=(OURS,))
    """Ours first."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """What was left out of a workload."""

    @property
    def workloads(self) -> list[str]:
        return list(dict.fromkeys(run.workload for run in self.runs))

    def of(self, workload: str, server: str) -> list[MeasuredRun]:
        """The runs of a workload on a server, by rep. Those with failed requests are left out: they have no speed."""
        return [run for run in self.runs if (run.workload, run.server) == (workload, server) and not run.errors]

    def ratios(self, workload: str, peer: str) -> list[float]:
        """Our tokens a second over the peer's, one for each rep that succeeded on both."""
        theirs = {run.rep: run for run in self.of(workload, peer)}
        return [run.tokens_per_s / theirs[run.rep].tokens_per_s for run in self.of(workload, OURS) if run.rep in theirs]

    def to_json(self) -> dict[str, Any]:
        return {
            "medians": [
                {"workload": workload, "server": server} | _medians(runs)
                for workload, server in self._cells()
                if (runs := self.of(workload, server))
            ],
            "ratios": [
                {"workload": workload, "peer": peer, "runs": _rounded(ratios), "median": round(statistics.median(ratios), 3)}
                for workload, peer in self._cells()
                if peer != OURS and (ratios := self.ratios(workload, peer))
            ],
            "notes": dict(self.notes),
            "runs": [run.to_json() for run in self.runs],
        }

    def table(self) -> Table:
        """Medians of each workload on each server, and the ratios run by run."""
        caption = "Medians. tokens/s: of the prompt for prefill, else of the answers. ratio: ours to the peer's."
        caption += "".join(f" {name}: {note}." for name, note in self.notes.items())
        table = Table(box=SIMPLE, caption=caption, show_edge=False, padding=0)
        for name in ("workload", "server", "tokens/s", "first\ntoken", "cached", "foreign\ncores", "ratio", "run by run"):
            table.add_column(name, justify="left" if name in ("workload", "server") else "right", no_wrap=True)
        for workload, server in self._cells():
            table.add_row(*self._row(workload, server), end_section=server == self.servers[-1])
        return table

    def _cells(self) -> Iterator[tuple[str, str]]:
        return ((workload, server) for workload in self.workloads for server in self.servers)

    def _row(self, workload: str, server: str) -> list[str]:
        runs = self.of(workload, server)
        if not runs:
            return [workload, server, "failed"]
        median = _medians(runs)
        foreign = [run.foreign_cores for run in runs if run.foreign_cores is not None]
        ratios = [] if server == OURS else self.ratios(workload, server)
        return [
            workload,
            server,
            f"{median['tokens_per_s']:.1f}",
            seconds(median["ttft_median_s"]),
            "-" if median["cached_tokens"] is None else f"{median['cached_tokens']:.0f}",
            f"{max(foreign):.2f}" if foreign else "-",
            f"{statistics.median(ratios):.2f}" if ratios else "",
            " ".join(f"{ratio:.2f}" for ratio in ratios),
        ]


def find_warnings(compared: ComparedWorkload, summary: Summary, foreign_cores: float | None, was_quiet: bool) -> tuple[str, ...]:
    """What makes a run worth less than it seems."""
    found = []
    if not was_quiet:
        found.append("the machine was never quiet before it")
    if foreign_cores is not None and foreign_cores > MOST_FOREIGN_CORES:
        found.append(f"anything else used {foreign_cores:.2f} cores: measure again")
    if compared.prompt_len is not None and summary.prompt_tokens != summary.requests * compared.prompt_len:
        found.append(f"{summary.prompt_tokens} prompt tokens, not {summary.requests} x {compared.prompt_len}: another tokenizer")
    if summary.completion_tokens != summary.requests * compared.answer_len:
        found.append(f"{summary.completion_tokens} answer tokens, not {summary.requests} x {compared.answer_len}: ended early")
    reusable_len = compared.reusable_len
    if reusable_len is not None and (summary.cached_tokens or 0) > reusable_len + CHANCE_HITS * summary.requests:
        found.append(f"{summary.cached_tokens} tokens cached of {reusable_len} shared: seen before, set another --seed")
    return tuple(found)


def _medians(runs: Sequence[MeasuredRun]) -> dict[str, Any]:
    cached = [run.summary.cached_tokens for run in runs if run.summary.cached_tokens is not None]
    return {
        "runs": len(runs),
        "tokens_per_s": round(statistics.median(run.tokens_per_s for run in runs), 2),
        "ttft_median_s": round(statistics.median(run.summary.ttft_median_s for run in runs), 4),
        "cached_tokens": statistics.median(cached) if cached else None,
    }


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 3) for value in values]
