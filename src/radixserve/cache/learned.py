"""The policy that learns which prefixes come back, and when: `docs/design/eviction.md` says why, and what else was tried."""

from collections.abc import Sequence

from radixserve.cache.eviction import Policy, register
from radixserve.cache.ghosts import Ghosts
from radixserve.cache.lease import Lease
from radixserve.cache.node import Node
from radixserve.cache.return_times import NUM_CLASSES, ReturnTimes, class_of
from radixserve.cache.uses import Use


@register("learned")
class Learned(Policy):
    """Least worth keeping first: a class is how often a prefix was used; within it, the least recently used goes first.

    Evicted nodes are remembered as ghosts, so that the third turn of a chat is known as one though the cache lost the second, and
    a document that is asked for now and then as one that is.
    """

    num_classes = NUM_CLASSES
    LEARN_FROM = 512
    """Requests before which it is LRU: the life tables say too little."""

    def __init__(self) -> None:
        self._times = ReturnTimes()
        self._ghosts = Ghosts()

    def class_of(self, node: Node) -> int:
        return class_of(_use(node).count)

    def order(self, node: Node) -> int:
        return _use(node).time

    def rank(self, class_: int, order: int, clock: int) -> float:
        return order if clock < self.LEARN_FROM else self._times.worth(class_, clock - order)

    def acquired(self, lease: Lease, path: Sequence[Node], tokens: bytes) -> None:
        self._times.advance(lease.time)
        turn, count, before, after = 0, 0, None, None
        for node in path:
            if node.use is not before or after is None:
                before = _use(node)
                after = self._follow(self._times.again(before, lease.time))
                turn = before.turn
            node.use = after
        for ghost in self._ghosts.follow(lease.node, tokens, lease.tree_len):
            restored = self._times.again(ghost.use, lease.time)
            turn, count = restored.turn, max(count, restored.count)
        lease.use = self._follow(Use(lease.time, turn + 1, max(turn + 1, count)))

    def evicted(self, node: Node, parent: Node) -> None:
        self._ghosts.add(node, parent)

    def _follow(self, use: Use) -> Use:
        self._times.add(use)
        return use


def _use(node: Node) -> Use:
    assert node.use is not None, "every node was added by a lease that this policy knows"
    return node.use
