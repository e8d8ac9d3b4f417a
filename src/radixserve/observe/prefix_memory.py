"""A bounded memory of what the tree held: whether a prefix was ever in it, when it was evicted, and for whom.

Two tables of fixed size over fingerprints of prefixes. One holds evicted prefixes, one fingerprint a place: a later one that falls
on the same place drives an earlier one out, so about the last NUM_REMEMBERED evicted tokens are known. The other has a mark for
whatever was ever inserted: where there is none, the prefix certainly never was. A flush changes all marks, so that what was in the
tree then can be told from what was evicted. What lies between can only be called unknown.
"""

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from radixserve.cache.events import Evicted
from radixserve.cache.fingerprints import Fingerprints

NUM_REMEMBERED = 1 << 19
"""Places of the first table; 16 bytes each."""
NUM_MARKS = 1 << 24
"""Places of the second; a byte each."""
NUM_EVICTIONS = 1 << 14
"""Evictions whose circumstances are remembered."""

NEVER, HELD, EVICTED, FLUSHED = range(4)
"""A mark: nothing with it was ever in the tree; something is; what had it was evicted, or went in a flush."""

_MARK_SHIFT = np.uint64(64 - NUM_MARKS.bit_length() + 1)
"""A fingerprint's first bits are the place of its mark, its last bits its place in the first table."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """One leaf's end. Times by the cache's clock, which counts admissions; `at_s` by the process's monotonic clock."""

    time: int
    last_access_time: int
    evicted_for: int | None
    at_s: float


class PrefixMemory:
    """What is remembered of prefixes that are in the tree no more."""

    def __init__(self) -> None:
        self._evicted = np.zeros(NUM_REMEMBERED, dtype=np.uint64)
        self._which = np.zeros(NUM_REMEMBERED, dtype=np.int64)
        self._marks = np.zeros(NUM_MARKS, dtype=np.uint8)
        self._evictions: list[Eviction] = []
        self._num_evictions = 0

    def add(self, inserted: Fingerprints) -> None:
        """Notes that these prefixes are in the tree."""
        self._marks[inserted >> _MARK_SHIFT] = HELD

    def add_eviction(self, event: Evicted, evicted: Fingerprints) -> None:
        """Remembers a leaf that went. `evicted`: fingerprints of the prefixes that end with each of its tokens."""
        eviction = Eviction(event.time, event.last_access_time, event.evicted_for, time.monotonic())
        if len(self._evictions) < NUM_EVICTIONS:
            self._evictions.append(eviction)
        else:
            self._evictions[self._num_evictions % NUM_EVICTIONS] = eviction
        places = evicted & np.uint64(NUM_REMEMBERED - 1)
        self._evicted[places] = evicted
        self._which[places] = self._num_evictions
        self._num_evictions += 1
        self._marks[evicted >> _MARK_SHIFT] = EVICTED

    def flush(self) -> None:
        """Notes that all that is in the tree goes."""
        self._marks[self._marks == HELD] = FLUSHED

    def find(self, fingerprint: np.uint64) -> Eviction | None:
        """How the prefix with this fingerprint was evicted, if that is known and it didn't come back to go in a flush."""
        place = int(fingerprint) & (NUM_REMEMBERED - 1)
        number = int(self._which[place])
        if self._evicted[place] != fingerprint or self.went_in_flush(fingerprint) or self._num_evictions - number > NUM_EVICTIONS:
            return None
        return self._evictions[number % NUM_EVICTIONS]

    def count(self, fingerprints: Fingerprints) -> int:
        """How many of the first of these were evicted, as far as is remembered: up to the first that wasn't."""
        return _num_first(self._evicted[fingerprints & np.uint64(NUM_REMEMBERED - 1)] == fingerprints)

    def went_in_flush(self, fingerprint: np.uint64) -> bool:
        """Whether the prefix was in the tree when that was flushed; True by a chance too, as with `may_have_held`."""
        return bool(self._marks[fingerprint >> _MARK_SHIFT] == FLUSHED)

    def count_flushed(self, fingerprints: Fingerprints) -> int:
        """How many of the first of these went in a flush."""
        return _num_first(self._marks[fingerprints >> _MARK_SHIFT] == FLUSHED)

    def may_have_held(self, fingerprint: np.uint64) -> bool:
        """False if the prefix was never in the tree; True if it was, or by a chance that grows with what was inserted."""
        return bool(self._marks[fingerprint >> _MARK_SHIFT] != NEVER)


def _num_first(wanted: NDArray[np.bool_]) -> int:
    """How many are true before the first that isn't."""
    return len(wanted) if wanted.all() else int(wanted.argmin())
