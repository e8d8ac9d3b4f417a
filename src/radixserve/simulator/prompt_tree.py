"""The tree of all that was ever asked: the cache's own, without slots, and nothing is evicted."""

import numpy as np

from radixserve.cache.node import Node
from radixserve.cache.radix_tree import RadixTree
from radixserve.tokens import TOKEN_BYTES, ExtraKey


class PromptTree:
    """Holds token sequences (int32, as bytes) by namespace."""

    def __init__(self) -> None:
        self._tree = RadixTree()

    def insert(self, extra_key: ExtraKey, tokens: bytes) -> Node:
        """Adds a sequence, if it isn't there; returns the node at its end, which stays there whatever is added later."""
        walk = self._tree.walk(self._tree.make_root(extra_key, 0), tokens)
        node = walk.node if walk.child is None else self._tree.split(walk.child, walk.inside)
        if walk.end * TOKEN_BYTES == len(tokens):
            return node
        return self._tree.insert(node, tokens[walk.end * TOKEN_BYTES :], np.empty(0, dtype=np.int32), time=0, priority=0)

    def path(self, extra_key: ExtraKey, tokens: bytes) -> list[Node]:
        """The nodes whose whole edges lie on a sequence, from the root down."""
        return self._tree.walk(self._tree.find_root(extra_key), tokens).path
