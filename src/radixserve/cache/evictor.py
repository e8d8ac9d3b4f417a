"""Takes unlocked leaves out of the tree, in the policy's order, and gives their slots back to the pool.

Of a long leaf only the end goes: it is split, as for a request that ends there, and the lower part is evicted. Whoever comes back
for it finds its beginning.
"""

from collections.abc import Sequence

from radixserve.cache.events import CacheListener, Evicted, Split
from radixserve.cache.eviction import EvictionQueue, Policy
from radixserve.cache.node import Node
from radixserve.cache.radix_tree import RadixTree
from radixserve.cache.slot_pool import SlotPool

LEAST_TAIL = 64
"""Tokens that go of a leaf and that stay, at least: where there aren't as many for both, it goes whole."""
TAIL_SHARE = 8
"""At least an eighth of a leaf goes at a time: so cutting it up, which copies what is left, takes time in proportion to it."""


PORTION = 1_024
"""Nodes that are taken apart in one step, so that it takes milliseconds however large the tree is."""


class Evictor:
    """The evictions of one cache."""

    def __init__(
        self, tree: RadixTree, pool: SlotPool, policy: Policy, listeners: Sequence[CacheListener], least_tail: int = LEAST_TAIL
    ) -> None:
        """`least_tail`: of a leaf at least so many tokens go at a time, and all unless as many stay."""
        self.queue = EvictionQueue(policy)
        self.policy = policy
        self.least_tail = least_tail
        self.num_evicted = 0
        """Tokens evicted so far."""
        self._tree = tree
        self._pool = pool
        self._listeners = listeners

    def offer(self, node: Node) -> None:
        """Makes a node evictable if it is an unlocked leaf."""
        if not node.lock_ref and not node.children and node.parent is not None:
            self.queue.offer(node)

    def evict(self, num_tokens: int, clock: int, evicted_for: int | None) -> int:
        """Evicts until at least `num_tokens` slots are freed or nothing is left; returns how many were freed."""
        evicted = self.free_detached(num_tokens)
        while evicted < num_tokens and (node := self.queue.pop(clock)) is not None:
            self._cut(node, num_tokens - evicted)
            evicted += node.num_tokens
            self._remove(node, clock, evicted_for)
        return evicted

    def evict_some(self, num_tokens: int, clock: int) -> int:
        """A portion of `evict`, without what a flush took out."""
        evicted = 0
        for _ in range(PORTION):
            if evicted >= num_tokens or (node := self.queue.pop(clock)) is None:
                break
            self._cut(node, num_tokens - evicted)
            evicted += node.num_tokens
            self._remove(node, clock, None)
        return evicted

    def flush(self) -> None:
        """Takes everything out of the tree at once; nothing may be locked. The slots come back by `free_detached`."""
        self._tree.detach()
        self.queue.clear()

    def free_detached(self, num_tokens: int) -> int:
        """Gives the pool at least `num_tokens` slots of what a flush took out, or all of it; returns how many."""
        freed = 0
        while freed < num_tokens and (node := self._tree.take_detached()) is not None:
            self._pool.free(node.slots)
            freed += node.num_tokens
        return freed

    def free_some_detached(self) -> None:
        """Takes apart a portion of what a flush took out."""
        for _ in range(PORTION):
            if not self.free_detached(1):
                break

    def remove(self, leaf: Node, clock: int) -> None:
        """Evicts an unlocked leaf out of turn."""
        self._remove(leaf, clock, None)
        self.queue.remove(leaf)

    def _cut(self, leaf: Node, needed: int) -> None:
        """Splits off what may stay of a leaf whose end is enough for `needed` tokens; `leaf` is the end then."""
        page_size = self._tree.page_size
        tail = -(-max(needed, self.least_tail, leaf.num_tokens // TAIL_SHARE) // page_size) * page_size
        if tail + self.least_tail <= leaf.num_tokens:
            upper = self._tree.split(leaf, leaf.num_tokens - tail)
            for listener in self._listeners:
                listener(Split(leaf.serial, upper.serial, upper.num_tokens, upper.key, leaf.last_access_time))

    def _remove(self, leaf: Node, clock: int, evicted_for: int | None) -> None:
        """Evicts an unlocked leaf; its entry in the queue is the caller's to take out."""
        parent = self._tree.remove(leaf)
        self.policy.evicted(leaf, parent)
        self._pool.free(leaf.slots)
        self.offer(parent)
        self.num_evicted += leaf.num_tokens
        for listener in self._listeners:
            listener(Evicted(leaf.serial, leaf.num_tokens, leaf.last_access_time, clock, leaf.key, evicted_for))
