"""Pins: prefixes that an operator keeps in the tree. A pin locks the path to a node: nothing evicts it until it is unpinned.

A pin is named by the serial number of its node, which names the same prefix for as long as it is in the tree, splits or not. Pins
leave room: what is pinned and what the requests need fits the pool together, for whoever runs alone must be able to run.
"""

from collections.abc import Iterable
from itertools import islice

from radixserve.cache.lease import Lease
from radixserve.cache.node import Node
from radixserve.cache.prefix_cache import PrefixCache
from radixserve.errors import InvalidRequestError
from radixserve.req import Req

MAX_PINS = 4_096
"""Each locks a path of its own, and all are named to whoever watches the cache."""


class Pins:
    """The pins of one cache."""

    def __init__(self, cache: PrefixCache) -> None:
        self._cache = cache
        self._leases: dict[int, Lease] = {}
        self.num_tokens = 0
        """Tokens of the nodes that are pinned, each counted once."""

    @property
    def serials(self) -> list[int]:
        """The pinned nodes, in the order in which they were pinned."""
        return list(self._leases)

    def pin(self, top: Node, reqs: Iterable[Req], *, subtree: bool = False) -> int:
        """Pins `top`, or with `subtree` every leaf at or below it; returns how many tokens are pinned now that were not before.

        Raises InvalidRequestError, with nothing changed, if one of `reqs`, those that wait or run, would not fit any more, or if
        there would be more than MAX_PINS pins.
        """
        ends = (node for node in self._cache.tree.walk_below(top) if not node.children) if subtree else iter([top])
        unpinned = (node for node in ends if node.serial not in self._leases)
        before, added = self.num_tokens, list(islice(unpinned, MAX_PINS + 1))
        if len(self._leases) + len(added) > MAX_PINS:
            raise InvalidRequestError(
                f"there would be more than {MAX_PINS} pins, {len(self._leases)} are there already: pin nodes above the leaves of "
                f"node {top.serial}, or unpin something",
                param="node",
            )
        for node in added:
            self._leases[node.serial] = self._cache.hold(node)
            self._add_to_path(node, 1)
        try:
            for req in reqs:
                self.check(req)
        except InvalidRequestError as error:
            wanted = self.num_tokens
            self._let_go([node.serial for node in added])
            raise InvalidRequestError(f"{wanted} tokens would be pinned: request {req.rid} {error.message}", param="node") from None
        return self.num_tokens - before

    def unpin(self, top: Node) -> int:
        """Ends the pins at or below `top`; returns how many there were."""
        serials = []
        stack = [top]
        while stack:
            node = stack.pop()
            if node.pin_ref:
                serials += [node.serial] if node.serial in self._leases else []
                stack += reversed(node.children.values())
        self._let_go(serials)
        return len(serials)

    def clear(self) -> int:
        """Ends all pins; returns how many there were."""
        number = len(self._leases)
        self._let_go(list(self._leases))
        return number

    def check(self, req: Req) -> None:
        """Raises InvalidRequestError if a request would not fit beside what is pinned, even alone."""
        if not self._leases:
            return
        cache = self._cache
        needed = -(-(req.prompt_len + max(req.max_tokens, 1) - 1) // cache.page_size) * cache.page_size
        walk = cache.tree.walk(cache.tree.find_root(req.extra_key), req.tokens(req.reusable_len))
        shared = sum(node.num_tokens for node in walk.path if node.pin_ref)
        if walk.child is not None and walk.child.pin_ref:
            shared += walk.inside
        if needed - shared > cache.num_slots - self.num_tokens:
            raise InvalidRequestError(
                f"needs {needed} slots, of which {shared} are pinned already: the pool has {cache.num_slots}, {self.num_tokens} of "
                "them pinned; ask for less, or unpin something"
            )

    def _let_go(self, serials: list[int]) -> None:
        for serial in serials:
            lease = self._leases.pop(serial)
            self._add_to_path(lease.node, -1)
            self._cache.release(lease)

    def _add_to_path(self, end: Node, number: int) -> None:
        """Takes account of a pin at `end`, or of the end of one: of the nodes on its path, and of their tokens."""
        node: Node | None = end
        while node is not None:
            before, node.pin_ref = node.pin_ref, node.pin_ref + number
            self.num_tokens += node.num_tokens * (bool(node.pin_ref) - bool(before))
            node = node.parent
