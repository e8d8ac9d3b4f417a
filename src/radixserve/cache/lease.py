"""What a request sees of the cache: what is there (`Match`), and its claim on it (`Lease`)."""

from dataclasses import dataclass

import numpy as np

from radixserve.cache.node import Node
from radixserve.cache.slot_pool import Slots
from radixserve.cache.uses import Use
from radixserve.tokens import ExtraKey


@dataclass(slots=True)
class Match:
    """What `acquire` would reuse now. Lengths in tokens."""

    cached_len: int
    """Whole pages, and tokens of a page that would be copied."""
    node: Node
    """The deepest node whose edge is matched at least partly, or the root."""
    path_len: int
    """The whole pages of `cached_len`."""
    evictable_len: int
    """Of `path_len`, what is in unlocked nodes now. It stops being evictable once acquired."""


@dataclass(slots=True, eq=False)
class Lease:
    """One running request's claim: a locked path of the tree, and slots of its own after it.

    `slots[:tree_len]` belong to the tree, the rest to the request.
    """

    extra_key: ExtraKey
    priority: int
    node: Node
    """End of the locked path, `tree_len` tokens from the root."""
    tree_len: int
    """Tokens whose slots the tree owns; whole pages."""
    cached_len: int
    """Tokens whose KV needn't be computed, as of `acquire`, those to copy included. The first `extend` lowers it to whole
    pages when the pool is too short to keep the page to copy from."""
    buffer: Slots
    """`num_slots` slots and room for more."""
    num_slots: int
    time: int
    """The clock at its `acquire`. No two requests' leases have the same."""
    copy: tuple[Slots, Slots] | None = None
    """(source, target) slots of KV to copy before anything is computed: from the first `extend` until `finish_copy`."""
    source: tuple[Slots, Node] | None = None
    """Slots to copy from and the locked node that owns them, from `acquire` until `finish_copy`."""
    use: Use | None = None
    """The use of the nodes that it adds, where the policy learns from uses."""

    @property
    def slots(self) -> Slots:
        """int32, all slots in order of position: the tree's, then the request's own. A view; whole pages."""
        return self.buffer[: self.num_slots]

    @property
    def own_len(self) -> int:
        """Slots that belong to the request."""
        return self.num_slots - self.tree_len

    def grow(self, num_slots: int) -> Slots:
        """Makes room for `num_slots` more at the end and returns it to be filled. The buffer grows by half: n calls cost O(n)."""
        end = self.num_slots + num_slots
        if end > len(self.buffer):
            buffer = np.empty(end + end // 2, dtype=np.int32)
            buffer[: self.num_slots] = self.slots
            self.buffer = buffer
        added = self.buffer[self.num_slots : end]
        self.num_slots = end
        return added
