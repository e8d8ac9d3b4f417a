"""From records to figures: percentiles, a run's summary, its table and its JSON.

Every figure of a summary is computed from the records of requests that succeeded; how many failed stands beside it.
"""

import math
import os
import platform
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from radixserve.bench.record import Record
from radixserve.cpus import usable_cpus

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

PACKAGES = ("radixserve", "torch", "numpy", "tokenizers", "httpx")


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One run. Times in seconds, lengths in tokens, rates a second."""

    requests: int
    failed: int
    duration_s: float
    prompt_tokens: int
    cached_tokens: int | None
    """None when the server doesn't report it for every request."""
    completion_tokens: int
    hit_rate: float | None
    """cached_tokens / prompt_tokens."""
    median_reused_share: float | None
    """Half of the requests had at least this share of their prompt reused."""
    requests_per_s: float
    prompt_tokens_per_s: float
    output_tokens_per_s: float
    ttft_median_s: float
    ttft_p99_s: float
    gap_median_s: float
    """Between pieces of a stream."""
    gap_p99_s: float
    latency_median_s: float
    latency_p99_s: float


def summarize(records: Sequence[Record], duration_s: float) -> Summary:
    """The figures of a run that took `duration_s`."""
    done = [record for record in records if record.error is None]
    prompt_tokens = sum(record.prompt_tokens for record in done)
    completion_tokens = sum(record.completion_tokens for record in done)
    cached = [record.cached_tokens for record in done if record.cached_tokens is not None]
    reported = bool(done) and len(cached) == len(done)
    ttft = [record.ttft_s for record in done]
    gaps = [gap for record in done for gap in record.gaps_s]
    latency = [record.end_s - record.start_s for record in done]
    return Summary(
        requests=len(done),
        failed=len(records) - len(done),
        duration_s=duration_s,
        prompt_tokens=prompt_tokens,
        cached_tokens=sum(cached) if reported else None,
        completion_tokens=completion_tokens,
        hit_rate=sum(cached) / prompt_tokens if reported and prompt_tokens else None,
        median_reused_share=percentile([record.reused_share for record in done], 50) if reported else None,
        requests_per_s=len(done) / duration_s,
        prompt_tokens_per_s=prompt_tokens / duration_s,
        output_tokens_per_s=completion_tokens / duration_s,
        ttft_median_s=percentile(ttft, 50),
        ttft_p99_s=percentile(ttft, 99),
        gap_median_s=percentile(gaps, 50),
        gap_p99_s=percentile(gaps, 99),
        latency_median_s=percentile(latency, 50),
        latency_p99_s=percentile(latency, 99),
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear between the two nearest ranks, as numpy.percentile; NaN (in JSON null) of nothing."""
    return float(np.percentile(values, percent)) if values else math.nan


class ReportOptions(Protocol):
    """What the options of every benchmark have."""

    @property
    def json(self) -> bool:
        """Print one JSON object instead of the tables."""

    @property
    def output_file(self) -> Path | None:
        """Write the JSON here too."""


def publish(result: dict[str, Any], options: ReportOptions, tables: Sequence[Table]) -> None:
    """Writes a result to the output file, if there is one, and prints it: as one JSON object, or as `tables`."""
    encoded = msgspec.json.encode(result)
    if options.output_file:
        options.output_file.write_bytes(msgspec.json.format(encoded) + b"\n")
    if options.json:
        print(encoded.decode())
    else:
        console = Console()
        for table in tables:
            console.print(table)


def settings(options: "DataclassInstance") -> dict[str, Any]:
    """The options of a run as JSON has them, without an API key."""
    kept = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(options).items()}
    kept.pop("api_key", None)
    return kept


def environment(command: Sequence[str]) -> dict[str, Any]:
    """Where, when and with what a run was made. An --api-key in the command is left out."""
    return {
        "command": shlex.join(_without_key(command)),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpu": cpu_model(),
            "cores": usable_cpus(),
            "memory_bytes": psutil.virtual_memory().total,
            "load_average": os.getloadavg()[0],
            "system": platform.platform(),
        },
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
    }


def cpu_model() -> str:
    """Name of the processor."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def as_json(summary: Summary) -> dict[str, Any]:
    """The summary with times and rates rounded to what they are worth."""
    return {name: round(value, 5) if isinstance(value, float) else value for name, value in asdict(summary).items()}


def percent(share: float | None) -> str:
    return "not reported" if share is None else f"{share:.1%}"


def seconds(value: float) -> str:
    """A duration in the unit that suits it; a dash for NaN."""
    if math.isnan(value):
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


def _without_key(command: Sequence[str]) -> list[str]:
    """The command without --api-key and its value, in either spelling."""
    words = iter(command)
    kept = []
    for word in words:
        if word == "--api-key":
            next(words, None)
        elif not word.startswith("--api-key="):
            kept.append(word)
    return kept


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
