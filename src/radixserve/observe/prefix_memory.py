"""A bounded memory of what the tree held: whether a prefix was ever in it, when it was evicted, and for whom.

Two tables of fixed size over fingerprints of prefixes. One holds evicted prefixes, one fingerprint a place: a later one that falls
on the same place drives an earlier one out, so about the last NUM_REMEMBERED evicted tokens are known. The other has a mark for
whatever was ever inserted: where there is none, the prefix certainly never was. What lies between can only be called unknown.
"""

import time
from dataclasses import dataclass

import numpy as np

from radixserve.cache.events import Evicted
from radixserve.cache.fingerprints import Fingerprints

NUM_REMEMBERED = 1 << 19
"""Places of the first table; 16 bytes each."""
NUM_MARKS = 1 << 24
"""Places of the second; a byte each."""
NUM_EVICTIONS = 1 << 14
"""Evictions whose circumstances are remembered."""

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
        self._marks = np.zeros(NUM_MARKS, dtype=np.bool_)
        self._evictions: list[Eviction] = []
        self._num_evictions = 0

    def add(self, inserted: Fingerprints) -> None:
        """Notes that these prefixes are in the tree."""
        self._marks[inserted >> _MARK_SHIFT] = True

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

    def find(self, fingerprint: np.uint64) -> Eviction | None:
        """How the prefix with this fingerprint went, if that is known."""
        place = int(fingerprint) & (NUM_REMEMBERED - 1)
        number = int(self._which[place])
        if self._evicted[place] != fingerprint or self._num_evictions - number > NUM_EVICTIONS:
            return None
        return self._evictions[number % NUM_EVICTIONS]

    def count(self, fingerprints: Fingerprints) -> int:
        """How many of the first of these were evicted, as far as is remembered: up to the first that wasn't."""
        known = self._evicted[fingerprints & np.uint64(NUM_REMEMBERED - 1)] == fingerprints
        return len(known) if known.all() else int(known.argmin())

    def may_have_held(self, fingerprint: np.uint64) -> bool:
        """False if the prefix was never in the tree; True if it was, or by a chance that grows with what was inserted."""
        return bool(self._marks[fingerprint >> _MARK_SHIFT])
