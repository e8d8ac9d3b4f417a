"""A bounded memory of evicted nodes: enough to see that a prompt came back for one, without its tokens or slots.

A ghost is found by what it followed, a node or another ghost, and the first tokens of its edge. What comes after these is not
compared: they tell requests apart well enough for statistics, and no answer depends on a ghost.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from radixserve.cache.node import Node, Root
from radixserve.cache.uses import Use
from radixserve.tokens import TOKEN_BYTES, ExtraKey

MAX_GHOSTS = 32_768
"""The oldest is forgotten for the next one. One takes 0.5 KB or less."""

HEAD_LENS = (64, 32, 16, 8, 4, 2, 1)
"""Tokens that are remembered: the largest of these that is at most half of the edge, for a prompt may leave it before its end."""


@dataclass(slots=True)
class Ghost:
    """What is left of a node."""

    serial: int
    num_tokens: int
    use: Use


class Ghosts:
    """The last `MAX_GHOSTS` evicted nodes."""

    def __init__(self) -> None:
        self._ghosts: OrderedDict[tuple[int | ExtraKey, bytes], Ghost] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ghosts)

    def add(self, node: Node, parent: Node) -> None:
        """Remembers `node`, evicted from below `parent`."""
        assert node.use is not None
        head_len = next((length for length in HEAD_LENS if length <= node.num_tokens // 2), 1)
        key = _name(parent), node.key[: head_len * TOKEN_BYTES]
        self._ghosts[key] = Ghost(node.serial, node.num_tokens, node.use)
        self._ghosts.move_to_end(key)
        if len(self._ghosts) > MAX_GHOSTS:
            self._ghosts.popitem(last=False)

    def follow(self, node: Node, tokens: bytes, length: int) -> Iterator[Ghost]:
        """Takes out the ghosts that tokens[length:] pass, which come back to life below `node`; top first."""
        name, offset = _name(node), length * TOKEN_BYTES
        while (ghost := self._find(name, tokens, offset)) is not None:
            yield ghost
            name, offset = ghost.serial, offset + ghost.num_tokens * TOKEN_BYTES

    def _find(self, name: int | ExtraKey, tokens: bytes, offset: int) -> Ghost | None:
        for head_len in HEAD_LENS:
            ghost = self._ghosts.pop((name, tokens[offset : offset + head_len * TOKEN_BYTES]), None)
            if ghost is not None:
                return ghost
        return None


def _name(node: Node) -> int | ExtraKey:
    """What stays the same while anything below the node is remembered: a namespace's root comes and goes."""
    return node.extra_key if isinstance(node, Root) else node.serial
