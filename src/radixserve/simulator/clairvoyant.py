"""Belady's rule on a tree: of the unlocked leaves, the one goes first whose next use is farthest.

From Belady 1966, "A study of replacement algorithms for a virtual-storage computer". A page can't go before those that follow it,
so the rule is bound to leaves.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from heapq import heappop, heappush
from sys import maxsize

from radixserve.cache.eviction import LRU, EvictionQueue
from radixserve.cache.node import Node
from radixserve.tokens import as_ids


class ClairvoyantQueue(EvictionQueue):
    """Takes the place of a cache's `queue`. `prompts`: all that will be acquired, one a tick of the clock, as int32 bytes.

    A leaf's next use jumps ahead when it is used, so an old entry never becomes current again: each offer makes a new one, and
    what was offered before is dropped at the head.
    """

    def __init__(self, prompts: Sequence[bytes]) -> None:
        super().__init__(LRU())
        self._uses: dict[int, list[int]] = defaultdict(list)
        for time, prompt in enumerate(prompts):
            for token in as_ids(prompt).tolist():
                self._uses[token].append(time)
        self._entries: list[tuple[int, int, Node]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def offer(self, node: Node) -> None:
        heappush(self._entries, (-self._next_use(node), node.serial, node))

    def pop(self, clock: int) -> Node | None:
        while self._entries:
            order, _, node = heappop(self._entries)
            if node.parent is not None and not node.lock_ref and not node.children and -order == self._next_use(node):
                return node
        return None

    def clear(self) -> None:
        self._entries.clear()

    def _next_use(self, node: Node) -> int:
        """When a prompt comes that has the edge's first token; a token stands for one page after one prefix."""
        uses = self._uses[int.from_bytes(node.key[:4], "little")]
        at = bisect_right(uses, node.last_access_time)
        return uses[at] if at < len(uses) else maxsize
