"""Fingerprints of prefixes: one 64-bit number for each prefix of a sequence, that names its tokens and its namespace.

The fingerprint of tokens 0..i is a polynomial hash modulo 2^64 of scrambled token ids, scrambled once more, so that those of all
prefixes of n tokens come out of a few passes of numpy (about 10 ns a token), and go on where an earlier call stopped, wherever the
tree's nodes begin and end. Two prefixes have the same one with a probability of about 2^-64; nothing is decided by them that
changes an answer. They are the same in every process.
"""

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from radixserve.cache.events import CacheEvent, Evicted, Flushed, Inserted, Split
from radixserve.tokens import ExtraKey, as_ids, token_len

Fingerprints = NDArray[np.uint64]

_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 1 << 64)
_SCRAMBLE = np.uint64(0xBF58476D1CE4E5B9)
_HALF, _OTHER = np.uint64(32), np.uint64(29)
_MASK = (1 << 64) - 1


class Point(NamedTuple):
    """Where a prefix ends: enough to go on from it."""

    total: int
    """The sum behind its fingerprint."""
    length: int
    """Tokens."""


@lru_cache(maxsize=1024)
def start(extra_key: ExtraKey) -> Point:
    """The empty prefix of a namespace."""
    adapter, salt, load = extra_key
    parts = "".join("-" if part is None else f"{len(part)}:{part}" for part in (adapter, salt)) + (f"#{load}" if load else "")
    return Point(int.from_bytes(blake2b(parts.encode(), digest_size=8).digest(), "little"), 0)


def go_on(point: Point, tokens: bytes) -> tuple[Fingerprints, Point]:
    """Fingerprints of the prefixes that end with each of `tokens` (int32 ids), which follow `point`; and where that leads."""
    num_tokens = token_len(tokens)
    end = point.length + num_tokens
    powers, inverses = _powers(end)
    terms = _scramble(as_ids(tokens).astype(np.uint64))
    terms *= inverses[point.length : end]
    sums = np.cumsum(terms, dtype=np.uint64)
    sums += np.uint64(point.total)
    total = int(sums[-1]) if num_tokens else point.total
    sums *= powers[point.length : end]
    return _scramble(sums), Point(total, end)


def last_fingerprint(point: Point) -> int | None:
    """The fingerprint of the prefix that ends at `point`; None if that is empty."""
    if point.length == 0:
        return None
    power = pow(_BASE, point.length - 1, 1 << 64)
    return int(_scramble(np.array([point.total * power & _MASK], dtype=np.uint64))[0])


def _scramble(values: Fingerprints) -> Fingerprints:
    """In place: each bit of a value comes to depend on all of them."""
    values += np.uint64(_BASE)
    values ^= values >> _HALF
    values *= _SCRAMBLE
    values ^= values >> _OTHER
    return values


_tables: tuple[Fingerprints, Fingerprints] = (np.ones(1, np.uint64), np.ones(1, np.uint64))


def _powers(length: int) -> tuple[Fingerprints, Fingerprints]:
    """The first `length` powers, or more, of the base and of its inverse; grown by doubling."""
    global _tables
    if len(_tables[0]) < length:
        size = 1 << (length - 1).bit_length()
        _tables = _power_table(_BASE, size), _power_table(_INVERSE, size)
    return _tables


def _power_table(base: int, size: int) -> Fingerprints:
    factors = np.full(size, base, dtype=np.uint64)
    factors[0] = 1
    return np.multiply.accumulate(factors)


class TreeFingerprints:
    """Follows the tree's events and knows the fingerprints along every edge. Must hear them all, from an empty tree on."""

    def __init__(self, start: Callable[[ExtraKey], Point] = start) -> None:
        """`start`: the empty prefix of a namespace."""
        self._start = start
        self._ends: dict[int, tuple[Point, Point]] = {}
        """Start and end of each node's edge, by serial number."""

    def follow(self, event: CacheEvent) -> Fingerprints:
        """Takes the next event; returns the fingerprints along an edge that came or went, none for a split or flush."""
        match event:
            case Inserted():
                above = self._ends.get(event.parent)
                begin = above[1] if above is not None else self._start(event.extra_key)
                found, end = go_on(begin, event.tokens)
                self._ends[event.serial] = begin, end
                return found
            case Split():
                begin, end = self._ends[event.serial]
                middle = go_on(begin, event.tokens)[1]
                self._ends[event.upper] = begin, middle
                self._ends[event.serial] = middle, end
            case Evicted():
                return go_on(self._ends.pop(event.serial)[0], event.tokens)[0]
            case Flushed():
                self._ends.clear()
        return _NONE

    def before(self, serial: int) -> Point:
        """Where the edge of a node begins."""
        return self._ends[serial][0]


_NONE: Fingerprints = np.empty(0, dtype=np.uint64)
