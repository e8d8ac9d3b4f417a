"""Evicts subtrees a portion at a time: others use the tree between two portions.

The nodes are gone through children first. A node that left the tree meanwhile is passed over, one that somebody holds or continued
stays. What is added below while it goes on is new, and stays too.
"""

from collections.abc import Iterable

from radixserve.cache.evictor import Evictor
from radixserve.cache.node import Node
from radixserve.cache.radix_tree import RadixTree


class Pruning:
    """The eviction of some nodes and of everything below them."""

    def __init__(self, tree: RadixTree, evictor: Evictor, tops: Iterable[Node]) -> None:
        self.evicted = 0
        """Tokens evicted so far."""
        self.kept = 0
        """Tokens of the nodes that were found to stay."""
        self._tree = tree
        self._evictor = evictor
        self._tops = list(tops)[::-1]
        self._path: list[tuple[Node, Node | None, list[Node]]] = []
        """From a top to where it has come: a node, what was its parent when it was found, its children that are still to visit."""

    @property
    def is_done(self) -> bool:
        return not self._tops and not self._path

    def go_on(self, num_visits: int, clock: int) -> None:
        """Visits so many nodes, on the way down or up. `clock`: the present time."""
        for _ in range(num_visits):
            if self._path and not self._path[-1][2]:
                node, above, _ = self._path.pop()
                self._evict_up(node, above, clock)
            elif self._path:
                self._descend(self._path[-1][2].pop(), self._path[-1][0])
            elif self._tops:
                top = self._tops.pop()
                self._descend(top, top.parent)
            else:
                break

    def _descend(self, node: Node, above: Node | None) -> None:
        if self._is_in_tree(node):
            self._path.append((node, above, list(node.children.values())))

    def _evict_up(self, node: Node, above: Node | None, clock: int) -> None:
        """Evicts a node whose children were visited, and the upper parts that were split off it meanwhile."""
        walked: Node | None = node if self._is_in_tree(node) else None
        while walked is not None and walked is not above:
            parent = walked.parent
            if walked.lock_ref or walked.children:
                self.kept += walked.num_tokens
            else:
                self._evictor.remove(walked, clock)
                self.evicted += walked.num_tokens
            walked = parent

    def _is_in_tree(self, node: Node) -> bool:
        return self._tree.nodes.get(node.serial) is node
