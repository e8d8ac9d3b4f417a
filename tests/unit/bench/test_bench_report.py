"""Figures of a run, checked by hand."""

import math

import msgspec
import pytest

from radixserve.bench.record import Record
from radixserve.bench.report import as_json, environment, percent, percentile, seconds, summarize


def record(start_s: float = 0.0, chunk_s: tuple[float, ...] = (1.0,), end_s: float = 2.0, **fields: object) -> Record:
    return Record(session=0, turn=0, start_s=start_s, end_s=end_s, chunk_s=chunk_s, **fields)  # type: ignore[arg-type]


def test_percentiles_lie_between_ranks() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 50) == 2.5
    assert percentile([0.0, 100.0], 99) == 99.0
    assert math.isnan(percentile([], 50))


def test_a_summary_adds_up() -> None:
    records = [
        record(chunk_s=(0.5, 0.6, 0.9), prompt_tokens=100, cached_tokens=0, completion_tokens=3),
        record(start_s=1.0, chunk_s=(1.1,), prompt_tokens=300, cached_tokens=200, completion_tokens=1),
        record(error="ServerError: 500", prompt_tokens=999),
    ]
    summary = summarize(records, duration_s=4.0)
    assert (summary.requests, summary.failed) == (2, 1)
    assert (summary.prompt_tokens, summary.cached_tokens, summary.completion_tokens) == (400, 200, 4)
    assert summary.hit_rate == 0.5
    assert summary.median_reused_share == pytest.approx(1 / 3)
    assert summary.requests_per_s == 0.5
    assert summary.output_tokens_per_s == 1.0
    assert summary.ttft_median_s == pytest.approx(0.3)
    assert summary.gap_median_s == pytest.approx(0.2)
    assert summary.latency_p99_s == pytest.approx(1.99)


def test_a_server_that_is_silent_about_its_cache_has_no_hit_rate() -> None:
    summary = summarize([record(prompt_tokens=10, cached_tokens=5), record(prompt_tokens=10)], 1.0)
    assert summary.cached_tokens is None
    assert summary.hit_rate is None
    assert percent(summary.hit_rate) == "not reported"


def test_nothing_done_gives_no_figures() -> None:
    summary = summarize([record(error="x")], 1.0)
    assert (summary.requests, summary.hit_rate, summary.requests_per_s) == (0, None, 0.0)
    assert as_json(summary)["failed"] == 1
    assert seconds(summary.ttft_median_s) == "-"
    assert msgspec.json.decode(msgspec.json.encode(as_json(summary)))["ttft_p99_s"] is None


def test_an_answer_without_text_counts_to_its_end() -> None:
    assert record(start_s=1.0, chunk_s=(), end_s=3.0).ttft_s == 2.0


def test_durations_are_readable() -> None:
    assert (seconds(0.0421), seconds(3.14159)) == ("42 ms", "3.14 s")


def test_the_environment_says_what_a_reader_needs() -> None:
    found = environment(["radixserve", "bench", "serve"])
    assert found["command"] == "radixserve bench serve"
    assert found["machine"]["cpu"]
    assert found["machine"]["cores"] >= 1
    assert found["versions"]["numpy"]


def test_no_key_is_kept() -> None:
    command = ["radixserve", "--api-key", "secret", "--api-key=secret", "--model", "a b"]
    assert environment(command)["command"] == "radixserve --model 'a b'"
