"""Figures of the cache as they cross between the processes. In tokens unless they say otherwise."""

import msgspec

AGES = tuple(4**power for power in range(10))
"""Upper ends of the buckets of ages at eviction, in admissions."""
DISTANCES = tuple(4**power for power in range(3, 13))
"""Upper ends of the buckets of reuse distances, in tokens."""
SIZES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Sizes of the cache for which an estimate is made, times this pool."""


class CacheReport(msgspec.Struct, frozen=True):
    """What an observer counted since the start. A histogram is a count for each bucket and one for what lies beyond the last."""

    num_admissions: int = 0
    """Of requests, those after a preemption included."""
    cached_by_source: dict[str, int] = {}
    """Reused prompt tokens at first admission: tree (whole pages) and copy (parts of a page)."""
    policy: str = ""
    num_evictions: int = 0
    """Leaves."""
    ages: tuple[int, ...] = (0,) * (len(AGES) + 1)
    """Of evicted leaves: admissions since their last use."""
    sum_ages: int = 0
    distances: tuple[int, ...] = (0,) * (len(DISTANCES) + 1)
    """Tokens by reuse distance."""
    sum_distances: int = 0
    lru_reused: dict[str, int] = {}
    """What LRU would have reused, by the size of the cache: 0.5x to 8x of this pool, and infinite."""
    hit_rates: dict[str, float] = {}
    """The same as a share of what was looked up, corrected by what is known of this pool's own size."""


class PrefixUse(msgspec.Struct, frozen=True):
    """One node's edge. `saved_tokens`: its tokens, once for each time that they were reused."""

    serial: int
    adapter: str | None
    cache_salt: str | None
    start: int
    """Position of its first token."""
    num_tokens: int
    hit_count: int
    saved_tokens: int
    time: int
    """The clock at its last use."""
    lock_ref: int
    head: bytes
    """Its first tokens, int32 ids."""


class NamespaceUse(msgspec.Struct, frozen=True):
    """What one namespace holds. `unused_tokens`: in nodes that no request ever reused."""

    adapter: str | None
    cache_salt: str | None
    num_nodes: int
    num_tokens: int
    saved_tokens: int
    unused_tokens: int


class CacheTop(msgspec.Struct, frozen=True):
    """The nodes that saved most, and all namespaces, those that hold most first."""

    clock: int
    prefixes: list[PrefixUse]
    namespaces: list[NamespaceUse]
