"""Which unlocked leaf goes first when the pool is full.

A policy gives each leaf a class and, within it, an order. Each class has a heap of its own, and the heads of the heaps are
compared at eviction, with the clock. The heaps are lazy: a node has at most one entry, made when it becomes an unlocked leaf
and looked at again only when it comes to the head. There it is dropped if the node is locked or has children now, and put
where it belongs if its class or order has changed. When one eviction finds an eighth of a heap out of date, it goes through
the rest of it too. So nothing is ever rebuilt from all leaves of the tree, and the heaps never hold more entries than there
are nodes.

That an entry may be out of date relies on one rule: while a node lives, its class and its order only grow, and `rank` grows
with both. What hides behind a stale entry would go later than the entry says, never sooner.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Set
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any

from radixserve.cache.radix_tree import Node
from radixserve.errors import ConfigError


class Policy:
    """Base of the policies; one class unless it says otherwise. Ties are broken by the node's serial number."""

    num_classes = 1

    def class_of(self, node: Node) -> int:
        """The node's class, from 0."""
        return 0

    def order(self, node: Node) -> Any:
        """The node's place within its class: smallest goes first. A number or a tuple of numbers."""
        raise NotImplementedError

    def rank(self, class_: int, order: Any, clock: int) -> Any:
        """Compares the heads of the classes: smallest goes first. One class needs no comparing."""
        return 0


MIN_STALE = 64
"""Stale entries that one eviction may find before it goes through a heap, however small."""

POLICIES: dict[str, type[Policy]] = {}


def register(name: str) -> Callable[[type[Policy]], type[Policy]]:
    """Makes a policy known to `--eviction-policy` under `name`."""

    def add(policy: type[Policy]) -> type[Policy]:
        POLICIES[name] = policy
        return policy

    return add


def make_policy(name: str) -> Policy:
    """The policy registered under `name`; raises ConfigError that lists the known ones."""
    if name not in POLICIES:
        raise ConfigError(f"unknown eviction policy {name!r}: choose one of {', '.join(sorted(POLICIES))} as --eviction-policy")
    return POLICIES[name]()


@register("lru")
class LRU(Policy):
    """Least recently used first."""

    def order(self, node: Node) -> int:
        return node.last_access_time


@register("lfu")
class LFU(Policy):
    """Least often reused first, then least recently used."""

    def order(self, node: Node) -> tuple[int, int]:
        return node.hit_count, node.last_access_time


@register("fifo")
class FIFO(Policy):
    """Longest in the tree first, used or not. Halves of a split keep the time at which they were computed."""

    def order(self, node: Node) -> int:
        return node.created


@register("slru")
class SLRU(Policy):
    """Segmented LRU: a leaf reused twice is protected, so that a flood of prompts seen once or continued once spares it.

    Its idle time counts an eighth. It ages all the same: a cache can't fill up with what was once popular.
    """

    num_classes = 2
    WEIGHT = 8

    def class_of(self, node: Node) -> int:
        return 1 if node.hit_count >= 2 else 0

    def order(self, node: Node) -> int:
        return node.last_access_time

    def rank(self, class_: int, order: int, clock: int) -> int:
        idle = clock - order
        return -idle if class_ else -idle * self.WEIGHT


@register("priority")
class Priority(Policy):
    """Lowest priority first, then least recently used. A node has the highest priority of the requests that used it."""

    def order(self, node: Node) -> tuple[int, int]:
        return node.priority, node.last_access_time


NOT_IN_HEAP = -1
"""Index of an entry of a frontier that no heap has."""

_Frontier = list[tuple[Any, int, int, Node]]
"""A heap of (order, serial, index in the class's heap, node)."""


class EvictionQueue:
    """The unlocked leaves in the policy's order."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._heaps: list[list[tuple[Any, int, Node]]] = [[] for _ in range(policy.num_classes)]

    def __len__(self) -> int:
        """Entries, stale ones included."""
        return sum(map(len, self._heaps))

    def offer(self, node: Node) -> None:
        """Tells of a node that has become an unlocked leaf."""
        if not node.queued:
            node.queued = True
            self._push(node)

    def pop(self, clock: int) -> Node | None:
        """Takes out the leaf that goes first; None if there is none. `clock`: the present time."""
        first: list[tuple[Any, int, Node]] | None = None
        least = None
        for class_, heap in enumerate(self._heaps):
            if self._settle(class_):
                rank = self._policy.rank(class_, heap[0][0], clock)
                if first is None or rank < least:
                    first, least = heap, rank
        if first is None:
            return None
        node = heappop(first)[2]
        node.queued = False
        return node

    def remove(self, nodes: Set[Node]) -> None:
        """Takes out what is in it of `nodes`, by going through all of it."""
        for heap in self._heaps:
            heap[:] = [entry for entry in heap if entry[2] not in nodes]
            heapify(heap)
        for node in nodes:
            node.queued = False

    def upcoming(self, clock: int) -> Iterator[Node]:
        """The nodes in the order in which `pop` would give them, if each were removed and nothing else happened. Changes nothing.

        It looks only at the heads: the first n cost as much as n pops. Each class has a frontier: the entries whose turn may be
        next. What is found out of date goes back into a frontier with its present order, which is never smaller.
        """
        policy = self._policy
        frontiers: list[_Frontier] = [[(*heap[0][:2], 0, heap[0][2])] if heap else [] for heap in self._heaps]
        gone: Counter[Node] = Counter()
        passed: set[Node] = set()
        while (class_ := self._first_class(frontiers, clock)) is not None:
            order, serial, index, node = heappop(frontiers[class_])
            heap = self._heaps[class_]
            for below in (2 * index + 1, 2 * index + 2) if index >= 0 else ():
                if below < len(heap):
                    heappush(frontiers[class_], (*heap[below][:2], below, heap[below][2]))
            if node.lock_ref or len(node.children) > gone[node]:
                passed.add(node)
                continue
            now = policy.class_of(node), policy.order(node)
            if now != (class_, order):
                heappush(frontiers[now[0]], (now[1], serial, NOT_IN_HEAP, node))
                continue
            yield node
            parent = node.parent
            assert parent is not None
            gone[parent] += 1
            is_leaf = gone[parent] == len(parent.children) and not parent.lock_ref and parent.parent is not None
            if is_leaf and (not parent.queued or parent in passed):
                heappush(frontiers[policy.class_of(parent)], (policy.order(parent), parent.serial, NOT_IN_HEAP, parent))

    def clear(self) -> None:
        for heap in self._heaps:
            heap.clear()

    def _first_class(self, frontiers: list[_Frontier], clock: int) -> int | None:
        """The class whose head goes first."""
        classes = [class_ for class_, frontier in enumerate(frontiers) if frontier]
        return min(classes, key=lambda class_: self._policy.rank(class_, frontiers[class_][0][0], clock), default=None)

    def _push(self, node: Node) -> None:
        heappush(self._heaps[self._policy.class_of(node)], (self._policy.order(node), node.serial, node))

    def _settle(self, class_: int) -> bool:
        """Mends the heap until its head is up to date; returns whether it has one. Nodes move to higher classes only."""
        heap, policy = self._heaps[class_], self._policy
        patience = MIN_STALE + len(heap) // 8
        while heap:
            order, _, node = heap[0]
            if patience == 0:
                self._mend(class_)
            elif node.lock_ref or node.children:
                heappop(heap)
                node.queued = False
            elif policy.class_of(node) != class_:
                heappop(heap)
                self._push(node)
            elif (now := policy.order(node)) != order:
                heapreplace(heap, (now, node.serial, node))
            else:
                return True
            patience -= 1
        return False

    def _mend(self, class_: int) -> None:
        """Brings every entry of a heap up to date."""
        heap = self._heaps[class_]
        entries = heap[:]
        heap.clear()
        for _, _, node in entries:
            if node.lock_ref or node.children:
                node.queued = False
            elif self._policy.class_of(node) != class_:
                self._push(node)
            else:
                heap.append((self._policy.order(node), node.serial, node))
        heapify(heap)
