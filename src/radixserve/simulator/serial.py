"""The reference mode: prompts alone, one at a time, each page one token of the real cache.

It is how caches are compared in papers: no batches, no answers, no time; only what was asked, in what order, and what was kept.
What goes at a time is the last page of a leaf, for which every page is made a node of its own; or a whole leaf of the tree that
there is when serving, with its stamps; or, as when serving, of such a leaf the tail that is needed, an eighth at least.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from radixserve.cache.prefix_cache import PrefixCache
from radixserve.simulator.clairvoyant import ClairvoyantQueue
from radixserve.tokens import TOKEN_BYTES, token_len

Portion = Literal["page", "leaf", "tail"]
"""What is evicted at a time."""
PORTIONS: tuple[Portion, ...] = get_args(Portion)

BELADY = "belady"
"""The policy that knows what comes."""


@dataclass(frozen=True)
class SerialResult:
    """Counts in pages."""

    policy: str
    num_pages: int
    """Capacity."""
    portion: Portion
    asked: int
    """Pages of all prompts."""
    hits: int
    """Of these, found in the cache."""
    evicted: int

    @property
    def hit_rate(self) -> float:
        return self.hits / self.asked if self.asked else 0.0


def serial(prompts: Sequence[bytes], num_pages: int, policy: str = "lru", portion: Portion = "page") -> SerialResult:
    """Sends `prompts` (`traces.page_prompts`) through a cache of `num_pages`, one after another.

    `policy` is one of the registry of `cache.eviction`, or `belady`. A prompt of more pages than the cache has keeps its first
    ones. Raises ConfigError for an unknown policy or no pages.
    """
    least_tail = num_pages if portion == "leaf" else 1
    cache = PrefixCache(num_pages, policy="lru" if policy == BELADY else policy, least_tail=least_tail)
    if policy == BELADY:
        cache.evictor.queue = ClairvoyantQueue(prompts)
    asked = hits = 0
    for prompt in prompts:
        asked += token_len(prompt)
        hits += _send(cache, prompt[: num_pages * TOKEN_BYTES], page_wise=portion == "page")
    return SerialResult(policy, num_pages, portion, asked, hits, cache.num_evicted)


def num_unique(prompts: Sequence[bytes]) -> int:
    """Pages that an infinite cache would hold in the end."""
    return len({prompt[at : at + 4] for prompt in prompts for at in range(0, len(prompt), 4)})


def _send(cache: PrefixCache, prompt: bytes, *, page_wise: bool) -> int:
    """What one request does to the cache; returns the pages that it found there."""
    length = token_len(prompt)
    lease = cache.acquire(prompt)
    cached_len = lease.cached_len
    cache.extend(lease, length)
    for end in range(cached_len + 1 if page_wise else length, length + 1):
        cache.publish(lease, prompt, end)
    cache.release(lease)
    return cached_len
