"""What other sizes of the cache would have reused: an estimate, from the reuse distances of a sample of prefixes.

Under LRU a prefix is found by a cache of C tokens if at most C distinct prefixes (one a token) were used since its last use, itself
included: its reuse distance. SHARDS (Waldspurger et al. 2015, "Efficient MRC Construction with SHARDS") measures distances on a
sample of keys, chosen by their hash, and scales them up. Here the keys are prefixes, which come in chains, and the sample follows
the chains: positions are cut into strata of `stratum` tokens, and of each stratum one position is taken, chosen by the fingerprint
of what comes before it. So all sequences that share a prefix sample the same of it, long chains are sampled evenly, and a count
times `stratum` is unbiased. With a small pool `stratum` is 1 and nothing is estimated.

Where many requests share a prefix, all of them are off by the same part of a stratum at its end. But the estimate for the pool's
own size is off by it too, and there the truth is known: `hit_rate` takes the difference off all sizes (a control variate).

Two memories, both bounded: `_last` has the time at which each sampled prefix was used last, as far back as LARGEST pools; `_ever`
has the fingerprints of what was ever used, thinned by a threshold whenever it is full, for a cache without a limit.
"""

from bisect import bisect_right
from collections import Counter
from itertools import groupby

import numpy as np

from radixserve.cache.fingerprints import Fingerprints, Point
from radixserve.cache_report import DISTANCES, SIZES

LARGEST = 8
MAX_SAMPLES = 1 << 15
"""Prefixes sampled of LARGEST pools' tokens."""
MAX_EVER = 1 << 15
"""Fingerprints kept of what was ever used."""


class ReuseEstimator:
    """Fed with every admission and every sequence's end. All figures in tokens, since the start."""

    def __init__(self, num_slots: int, max_samples: int = MAX_SAMPLES) -> None:
        self.looked_up = 0
        """Tokens of prompts."""
        self.reused_really = 0
        """Of these, what the cache gave."""
        self.reused = dict.fromkeys(SIZES, 0)
        """Of these, what an LRU cache of so many times `num_slots` would have given."""
        self.reused_ever = 0.0
        """Of these, what a cache without a limit would have given."""
        self.distances = [0] * (len(DISTANCES) + 1)
        """Tokens by reuse distance: a count for each bucket, and one for what lies beyond."""
        self.sum_distances = 0
        self.stratum = max(1, -(-LARGEST * num_slots // max_samples))
        self._limits = [int(size * num_slots) for size in SIZES]
        self._most = LARGEST * num_slots // self.stratum
        self._last: dict[int, int] = {}
        """Time of each sampled prefix's last use; a use is one call."""
        self._used_at = np.zeros(4096, dtype=np.int64)
        """How many sampled prefixes were used last at each time."""
        self._now = 0
        self._ever: set[int] = set()
        self._threshold = 1 << 64

    def hit_rate(self, size: float | None) -> float:
        """Share of `looked_up` that a cache of `size` times this pool would have given, None: one without a limit."""
        reused = self.reused_ever if size is None else self.reused[size]
        corrected = reused + self.reused_really - self.reused[1.0]
        return min(max(corrected / max(self.looked_up, 1), 0.0), 1.0)

    def admit(self, begin: Point, prefixes: Fingerprints, reusable_len: int, cached_len: int) -> None:
        """A prompt has these `prefixes`, of the namespace that starts at `begin`. Of `reusable_len`, `cached_len` were reused.

        It is computed now, so all of it counts as used.
        """
        sampled, reusable = self._sample(begin, prefixes, reusable_len)
        self.looked_up += len(prefixes)
        self.reused_really += cached_len
        used = self._last_uses(sampled)
        distances = self._distances(used[:reusable])
        self._count(distances)
        older = len(self._ever.intersection(sampled[len(distances) : reusable]))
        self.reused_ever += self.stratum * (len(distances) + older * (2**64 / self._threshold))
        self._use(sampled, used)

    def use(self, begin: Point, prefixes: Fingerprints) -> None:
        """A sequence is computed: all of its prefixes are as recently used as can be."""
        sampled, _ = self._sample(begin, prefixes, len(prefixes))
        self._use(sampled, self._last_uses(sampled))

    def _last_uses(self, sampled: list[int]) -> list[int | None]:
        """When each was used last; None where that is unknown. Makes room for the present use first."""
        if self._now == len(self._used_at) or len(self._last) > 2 * self._most:
            self._forget()
        return list(map(self._last.get, sampled))

    def _use(self, sampled: list[int], used: list[int | None]) -> None:
        """Moves what was sampled from its last use, `used`, to the present."""
        for time, count in Counter(used).items():
            if time is not None:
                self._used_at[time] -= count
        self._last.update(dict.fromkeys(sampled, self._now))
        self._used_at[self._now] = len(sampled)
        self._now += 1
        self._ever.update(filter(self._threshold.__gt__, sampled))
        while len(self._ever) > MAX_EVER:
            self._threshold //= 2
            self._ever = {fingerprint for fingerprint in self._ever if fingerprint < self._threshold}

    def _sample(self, begin: Point, prefixes: Fingerprints, reusable_len: int) -> tuple[list[int], int]:
        """Those of a sequence's prefixes that are in the sample, the shortest first; and how many lie within `reusable_len`."""
        stratum = self.stratum
        if stratum == 1:
            return prefixes.tolist(), reusable_len
        before = np.concatenate([np.array([begin.total], dtype=np.uint64), prefixes[stratum - 1 :: stratum]])
        positions = np.arange(len(before)) * stratum + ((before >> np.uint64(20)) % np.uint64(stratum)).astype(np.int64)
        if positions[-1] >= len(prefixes):
            positions = positions[:-1]
        return prefixes[positions].tolist(), int(positions.searchsorted(reusable_len))

    def _distances(self, used: list[int | None]) -> list[int]:
        """Reuse distances of a chain's prefixes, as far as their last uses are remembered; they ascend.

        The deeper a prefix, the longer ago it was used; what was used at the same time and is shallower lies in the same chain.
        """
        found: list[int] = []
        for time, run in groupby(used):
            if time is None:
                break
            newer = int(self._used_at[time + 1 : self._now].sum())
            found += [distance * self.stratum for distance in range(newer + 1, newer + 1 + len(list(run)))]
        return found

    def _count(self, distances: list[int]) -> None:
        """Adds distances, which ascend, to the histogram and to what each size would have given."""
        for size, limit in zip(SIZES, self._limits, strict=True):
            self.reused[size] += bisect_right(distances, limit) * self.stratum
        below = 0
        for bucket, bound in enumerate(DISTANCES):
            so_far = bisect_right(distances, bound)
            self.distances[bucket] += (so_far - below) * self.stratum
            below = so_far
        self.distances[-1] += (len(distances) - below) * self.stratum
        self.sum_distances += sum(distances) * self.stratum

    def _forget(self) -> None:
        """Drops what lies beyond the largest size, and numbers the times anew."""
        times = np.fromiter(self._last.values(), dtype=np.int64, count=len(self._last))
        fingerprints = np.fromiter(self._last, dtype=np.uint64, count=len(self._last))
        newest = np.argsort(times, kind="stable")[-self._most :]
        _, renumbered = np.unique(times[newest], return_inverse=True)
        self._last = dict(zip(fingerprints[newest].tolist(), renumbered.tolist(), strict=True))
        counts = np.bincount(renumbered)
        self._now = len(counts)
        self._used_at = np.concatenate([counts, np.zeros(max(4096, len(counts)), dtype=np.int64)])
