"""Which unlocked leaf goes first when the pool is full.

A policy gives each leaf a class and, within it, an order. Each class has a heap of its own, and the heads of the heaps are
compared at eviction, with the clock. The heaps are lazy: a node has one entry, made when it becomes an unlocked leaf and looked
at again only when it comes to the head. There it is dropped if the node is locked or has children now, and put where it belongs
if its order has changed. When one eviction finds an eighth of a heap out of date, it goes through the rest of it too. A node
that becomes an unlocked leaf in another class than before leaves its old entry behind, an orphan; when half of all entries are
orphans, the heaps are cleared of them. So nothing is ever rebuilt from all leaves of the tree, and the heaps never hold more
than twice as many entries as there are nodes, and a few.

That an entry may be out of date relies on one rule: while a node lives, its class and its order only grow, and its class stays
as it is while the node is an unlocked leaf. So what hides behind a stale entry comes later than the entry says, never sooner.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any

from radixserve.cache.lease import Lease
from radixserve.cache.node import Node
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

    def acquired(self, lease: Lease, path: Sequence[Node], tokens: bytes) -> None:
        """Tells of a request that found the nodes of `path`, in order. `tokens`: int32 ids of all that it looked up, as bytes."""

    def evicted(self, node: Node, parent: Node) -> None:
        """Tells of a node that has been evicted from below `parent`."""


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
        self._num_orphans = 0

    def __len__(self) -> int:
        """Nodes that have an entry, those included that are locked or have children now."""
        return sum(map(len, self._heaps)) - self._num_orphans

    def offer(self, node: Node) -> None:
        """Tells of a node that has become an unlocked leaf."""
        class_ = self._policy.class_of(node)
        if node.queued == class_:
            return
        if node.queued is not None:
            self._num_orphans += 1
        node.queued = class_
        heappush(self._heaps[class_], (self._policy.order(node), node.serial, node))
        if self._num_orphans > MIN_STALE + len(self):
            for each in range(len(self._heaps)):
                self._mend(each)

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
        node.queued = None
        return node

    def remove(self, node: Node) -> None:
        """Takes out a node that left the tree in another way than by `pop`. Its entry goes when it comes up."""
        if node.queued is not None:
            node.queued = None
            self._num_orphans += 1

    def upcoming(self, clock: int) -> Iterator[Node]:
        """The nodes in the order in which `pop` would give them, if each were removed and nothing else happened. Changes nothing.

        It looks only at the heads: the first n cost as much as n pops. Each class has a frontier: the entries whose turn may be
        next. What is found out of date goes back into a frontier with its present order, which is never smaller.
        """
        policy = self._policy
        frontiers: list[_Frontier] = [[(*heap[0][:2], 0, heap[0][2])] if heap else [] for heap in self._heaps]
        gone: Counter[Node] = Counter()
        passed: set[Node] = set()
        moved: set[Node] = set()
        while (class_ := self._first_class(frontiers, clock)) is not None:
            order, serial, index, node = heappop(frontiers[class_])
            heap = self._heaps[class_]
            for below in (2 * index + 1, 2 * index + 2) if index >= 0 else ():
                if below < len(heap):
                    heappush(frontiers[class_], (*heap[below][:2], below, heap[below][2]))
            if index != NOT_IN_HEAP and (node.queued != class_ or node in moved):
                continue
            if node.lock_ref or len(node.children) > gone[node]:
                passed.add(node)
                continue
            if (now := policy.order(node)) != order:
                heappush(frontiers[class_], (now, serial, NOT_IN_HEAP, node))
                continue
            yield node
            parent = node.parent
            assert parent is not None
            gone[parent] += 1
            is_leaf = gone[parent] == len(parent.children) and not parent.lock_ref and parent.parent is not None
            if is_leaf and (parent.queued != (its_class := policy.class_of(parent)) or parent in passed):
                moved.add(parent)
                heappush(frontiers[its_class], (policy.order(parent), parent.serial, NOT_IN_HEAP, parent))

    def clear(self) -> None:
        for heap in self._heaps:
            heap.clear()
        self._num_orphans = 0

    def _first_class(self, frontiers: list[_Frontier], clock: int) -> int | None:
        """The class whose head goes first."""
        classes = [class_ for class_, frontier in enumerate(frontiers) if frontier]
        return min(classes, key=lambda class_: self._policy.rank(class_, frontiers[class_][0][0], clock), default=None)

    def _settle(self, class_: int) -> bool:
        """Mends the heap until its head is up to date; returns whether it has one."""
        heap, policy = self._heaps[class_], self._policy
        patience = MIN_STALE + len(heap) // 8
        while heap:
            order, _, node = heap[0]
            if patience == 0:
                self._mend(class_)
            elif self._is_over(node, class_):
                heappop(heap)
            elif (now := policy.order(node)) != order:
                heapreplace(heap, (now, node.serial, node))
            else:
                return True
            patience -= 1
        return False

    def _mend(self, class_: int) -> None:
        """Brings every entry of a heap up to date."""
        heap = self._heaps[class_]
        nodes = [node for _, _, node in heap if not self._is_over(node, class_)]
        heap[:] = [(self._policy.order(node), node.serial, node) for node in nodes]
        heapify(heap)

    def _is_over(self, node: Node, class_: int) -> bool:
        """Whether an entry of the class is to be dropped, and takes account of that."""
        if node.queued != class_:
            self._num_orphans -= 1
            return True
        if node.lock_ref or node.children:
            node.queued = None
            return True
        return False
