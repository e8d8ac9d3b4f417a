"""The reference mode: prompts alone, one at a time, each page one token of the real cache.

It is how caches are compared in papers: no batches, no answers, no time; only what was asked, in what order, and what was kept.
Page-wise, every page is a node of its own and goes alone. By whole nodes, the tree is as it is when serving, with its stamps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from radixserve.cache.prefix_cache import PrefixCache
from radixserve.simulator.clairvoyant import ClairvoyantQueue

BELADY = "belady"
"""The policy that knows what comes."""


@dataclass(frozen=True)
class SerialResult:
    """Counts in pages."""

    policy: str
    num_pages: int
    """Capacity."""
    whole_nodes: bool
    asked: int
    """Pages of all prompts."""
    hits: int
    """Of these, found in the cache."""
    evicted: int

    @property
    def hit_rate(self) -> float:
        return self.hits / self.asked if self.asked else 0.0


def serial(prompts: Sequence[bytes], num_pages: int, policy: str = "lru", *, whole_nodes: bool = False) -> SerialResult:
    """Sends `prompts` (`traces.page_prompts`) through a cache of `num_pages`, one after another.

    `policy` is one of the registry of `cache.eviction`, or `belady`. A prompt of more pages than the cache has keeps its first
    ones. Raises ConfigError for an unknown policy or no pages.
    """
    cache = PrefixCache(num_pages, policy="lru" if policy == BELADY else policy)
    if policy == BELADY:
        cache.queue = ClairvoyantQueue(prompts)
    asked = hits = 0
    for prompt in prompts:
        asked += len(prompt) // 4
        hits += _send(cache, prompt[: num_pages * 4], whole_nodes)
    return SerialResult(policy, num_pages, whole_nodes, asked, hits, cache.num_evicted)


def num_unique(prompts: Sequence[bytes]) -> int:
    """Pages that an infinite cache would hold in the end."""
    return len({prompt[at : at + 4] for prompt in prompts for at in range(0, len(prompt), 4)})


def _send(cache: PrefixCache, prompt: bytes, whole_nodes: bool) -> int:
    """What one request does to the cache; returns the pages that it found there."""
    length = len(prompt) // 4
    lease = cache.acquire(prompt)
    cached_len = lease.cached_len
    cache.extend(lease, length)
    for end in range(length if whole_nodes else cached_len + 1, length + 1):
        cache.publish(lease, prompt, end)
    cache.release(lease)
    return cached_len
