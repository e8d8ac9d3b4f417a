"""A workload run twice, with the cache and without: how much faster, and whether the answers are the same."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from radixserve.bench.record import Record
from radixserve.bench.report import Summary, as_json, summarize
from radixserve.ipc import TokenLogprob
from radixserve.tokens import as_ids


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run: its records, how long it took, and how many positions the model computed for it."""

    records: Sequence[Record]
    duration_s: float
    computed_tokens: int


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first position at which two answers to one prompt differ.

    A gap is the log-probability, in one run, of the token chosen with the cache minus that of the token chosen without it:
    never negative with the cache, never positive without. None: the other token was not among those reported.
    """

    session: int
    turn: int
    position: int
    token_with: int
    token_without: int
    gap_with: float | None
    gap_without: float | None


@dataclass(frozen=True)
class Comparison:
    """Two runs of one workload, or of all."""

    name: str
    with_cache: Run
    without_cache: Run

    @property
    def summary_with(self) -> Summary:
        return summarize(self.with_cache.records, self.with_cache.duration_s)

    @property
    def summary_without(self) -> Summary:
        return summarize(self.without_cache.records, self.without_cache.duration_s)

    @property
    def speed_up(self) -> dict[str, float]:
        """Times better with the cache. `computed_tokens` (times fewer) bounds what reuse alone can give."""
        fast, slow = self.summary_with, self.summary_without
        return {
            "throughput": fast.requests_per_s / slow.requests_per_s,
            "ttft_median": slow.ttft_median_s / fast.ttft_median_s,
            "ttft_p99": slow.ttft_p99_s / fast.ttft_p99_s,
            "computed_tokens": self.without_cache.computed_tokens / self.with_cache.computed_tokens,
        }

    @property
    def differences(self) -> list[Difference]:
        """One for each answer that differs. Both runs must hold the same sessions and turns."""
        others = {(record.session, record.turn): record for record in self.without_cache.records}
        pairs = [(record, others[record.session, record.turn]) for record in self.with_cache.records]
        return [found for one, other in pairs if (found := first_difference(one, other)) is not None]

    def to_json(self) -> dict[str, Any]:
        """All figures of the comparison."""
        differences = self.differences
        return {
            "name": self.name,
            "with_cache": as_json(self.summary_with) | {"computed_tokens": self.with_cache.computed_tokens},
            "without_cache": as_json(self.summary_without) | {"computed_tokens": self.without_cache.computed_tokens},
            "speed_up": {name: round(value, 3) for name, value in self.speed_up.items()},
            "answers": len(self.with_cache.records),
            "identical_answers": len(self.with_cache.records) - len(differences),
            "differences": [asdict(difference) for difference in differences],
        }


def merge(name: str, comparisons: Sequence[Comparison]) -> Comparison:
    """All workloads as one: sessions numbered through, durations added."""
    return Comparison(name, _joined([one.with_cache for one in comparisons]), _joined([one.without_cache for one in comparisons]))


def first_difference(with_cache: Record, without_cache: Record) -> Difference | None:
    """None where the answers have the same token ids. An answer that merely ends earlier differs at its end, with token -1."""
    one, other = _ids(with_cache), _ids(without_cache)
    if one == other:
        return None
    length = min(len(one), len(other))
    position = next((i for i in range(length) if one[i] != other[i]), length)
    token_with = one[position] if position < len(one) else -1
    token_without = other[position] if position < len(other) else -1
    return Difference(
        session=with_cache.session,
        turn=with_cache.turn,
        position=position,
        token_with=token_with,
        token_without=token_without,
        gap_with=_gap(with_cache.logprobs, position, token_with, token_without),
        gap_without=_gap(without_cache.logprobs, position, token_with, token_without),
    )


def _joined(runs: Sequence[Run]) -> Run:
    records: list[Record] = []
    first_session = 0
    for run in runs:
        records += [replace(record, session=record.session + first_session) for record in run.records]
        first_session = max((record.session for record in records), default=-1) + 1
    return Run(
        records=records,
        duration_s=sum(run.duration_s for run in runs),
        computed_tokens=sum(run.computed_tokens for run in runs),
    )


def _ids(record: Record) -> list[int]:
    assert record.output_ids is not None, "answers are compared by their token ids"
    ids: list[int] = as_ids(record.output_ids).tolist()
    return ids


def _gap(logprobs: Sequence[TokenLogprob], position: int, token_with: int, token_without: int) -> float | None:
    """Log-probability of one token minus that of the other at a position, where both were reported."""
    if position >= len(logprobs):
        return None
    at = logprobs[position]
    known = dict(at.top) | {at.token_id: at.logprob}
    if token_with not in known or token_without not in known:
        return None
    return known[token_with] - known[token_without]
