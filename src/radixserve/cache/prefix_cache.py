"""The cache as the scheduler sees it: one radix tree per namespace over one pool of slots.

A request's life: `match` (as often as one likes) or `follow`, `acquire`, `extend` before each step, `finish_copy` after the first,
`publish` what was computed, `release`.

Invariants:
- A slot belongs to the free list, to the tree, or to one lease:
  free_size + evictable_size + protected_size + request_size = num_slots after every operation.
- KV never moves. Split, insert and evict deal in slot numbers; the only KV ever written by others than the model is the copy
  of a partly shared page into a lease's own page.
- Nothing depends on wall-clock time, on the order of a set, or on addresses: the same calls give the same slots and victims.
"""

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

import radixserve.cache.learned  # noqa: F401 - it registers a policy
from radixserve.cache import evictor
from radixserve.cache.audit import audit
from radixserve.cache.events import (
    Acquired,
    CacheEvent,
    CacheListener,
    Flushed,
    Inserted,
    Locked,
    Published,
    Released,
    Split,
    Unlocked,
)
from radixserve.cache.eviction import make_policy
from radixserve.cache.evictor import LEAST_TAIL, Evictor
from radixserve.cache.followed import FollowedMatch
from radixserve.cache.lease import Lease, Match
from radixserve.cache.node import Node, Root
from radixserve.cache.pruning import Pruning
from radixserve.cache.radix_tree import RadixTree, Walk
from radixserve.cache.slot_pool import SlotPool, Slots
from radixserve.errors import BusyError, LockError, OutOfSlotsError
from radixserve.tokens import SHARED, TOKEN_BYTES, ExtraKey, token_len

__all__ = ["Lease", "Match", "PrefixCache"]


class PrefixCache:
    """KV cache of a pool of `num_slots` (rounded down to whole pages), reused by prefix.

    `policy` names the order of eviction, of a leaf at least `least_tail` tokens at a time; with `enabled=False` nothing is ever
    found or kept. Raises ConfigError for a size or a policy that can't be. Tokens are int32 ids as bytes (`req.token_bytes`); all
    sizes are in tokens.
    """

    def __init__(
        self,
        num_slots: int,
        page_size: int = 1,
        policy: str = "lru",
        *,
        enabled: bool = True,
        least_tail: int = LEAST_TAIL,
    ) -> None:
        self.pool = SlotPool(num_slots, page_size)
        self.tree = RadixTree(page_size)
        self.leases: set[Lease] = set()
        self.page_size = page_size
        self.enabled = enabled
        self.listeners: list[CacheListener] = []
        """Called with every event, in this order."""
        self.evictor = Evictor(self.tree, self.pool, make_policy(policy), self.listeners, least_tail)
        self._prunings: deque[Pruning] = deque()
        """Those that are not done."""
        self._clock = -1
        self._request_size = 0

    @property
    def num_slots(self) -> int:
        """Capacity."""
        return self.pool.num_slots

    @property
    def free_size(self) -> int:
        """Slots that belong to nobody."""
        return self.pool.free_size

    @property
    def evictable_size(self) -> int:
        """Tokens in unlocked nodes."""
        return self.tree.evictable_size

    @property
    def protected_size(self) -> int:
        """Tokens in locked nodes."""
        return self.tree.protected_size

    @property
    def request_size(self) -> int:
        """Slots that belong to leases, counted as they are given and taken back."""
        return self._request_size

    @property
    def num_evicted(self) -> int:
        """Tokens evicted so far."""
        return self.evictor.num_evicted

    @property
    def num_nodes(self) -> int:
        """Nodes of all namespaces, without the roots."""
        return self.tree.num_nodes

    @property
    def clock(self) -> int:
        """Number of the last `acquire`, from 0; -1 before the first."""
        return self._clock

    def match(self, tokens: bytes, extra_key: ExtraKey = SHARED) -> Match:
        """What `acquire` would reuse now. Changes nothing."""
        root = self.tree.find_root(extra_key)
        if not self.enabled:
            return Match(0, root, 0, 0)
        walk = self.tree.walk(root, tokens)
        evictable_len = sum([node.num_tokens for node in walk.path if not node.lock_ref])
        node = walk.node
        if walk.child is not None:
            node = walk.child
            evictable_len += 0 if node.lock_ref else walk.inside
        page = self.tree.partial_page(walk, tokens)
        return Match(walk.end + (page[2] if page else 0), node, walk.end, evictable_len)

    def follow(self, match: FollowedMatch) -> None:
        """Finds a match, and keeps it until `take_changed` gives it back or `unfollow` ends that.

        The walk goes on where the match ended before, if that is still cached.
        """
        tree, place, start = self.tree, match.place, match.path_len
        node = place.node if isinstance(place.node, Node) else None
        if node is None or tree.nodes.get(node.serial) is not node or place.rest:
            node, start = tree.find_root(match.extra_key), 0
        walk = tree.walk(node, match.key, start) if self.enabled else Walk([], node, 0)
        page = tree.partial_page(walk, match.key) if self.enabled else None
        match.path_len = walk.end
        match.cached_len = walk.end + (page[2] if page else 0)
        if not walk.end:
            tree.followed.add(match, match.extra_key, 0)
        elif walk.child is None:
            tree.followed.add(match, walk.node, 0)
        else:
            tree.followed.add(match, walk.child, walk.child.num_tokens - walk.inside)

    def unfollow(self, match: FollowedMatch) -> None:
        """Ends `follow`; the match stays as it is."""
        self.tree.followed.remove(match)

    def take_changed(self) -> list[FollowedMatch]:
        """The followed matches that the tree's changes may have made longer or shorter. They must be followed again."""
        return self.tree.followed.take_changed()

    def acquire(self, tokens: bytes, extra_key: ExtraKey = SHARED, *, priority: int = 0) -> Lease:
        """Claims the longest cached prefix of `tokens`: splits at its end, stamps and locks its path. Advances the clock.

        With pages, the shared part of a partly matching page is to be copied (`Lease.copy`); its source is locked too.
        """
        self._clock += 1
        tree = self.tree
        root = tree.make_root(extra_key, self._clock)
        walk = tree.walk(root, tokens) if self.enabled else Walk([], root, 0)
        node = self._end_of(walk)
        for passed in walk.path:
            passed.hit_count += 1
            self._stamp(passed, priority)
        tree.lock(node)
        buffer = np.empty(token_len(tokens) + self.page_size, dtype=np.int32)
        if walk.path:
            np.concatenate([passed.slots for passed in walk.path], out=buffer[: walk.end])
        lease = Lease(extra_key, priority, node, walk.end, walk.end, buffer, walk.end, self._clock)
        if self.enabled:
            self.evictor.policy.acquired(lease, walk.path, tokens)
        if self.listeners:
            self._tell(Acquired(extra_key, node.serial, self._clock))
        page = tree.partial_page(walk, tokens) if self.enabled else None
        if page is not None:
            slots, owner, num_shared = page
            lease.source = slots, owner
            lease.cached_len += num_shared
            self._lock(owner)
        self.leases.add(lease)
        return lease

    def extend(self, lease: Lease, length: int) -> None:
        """Gives the lease slots for `length` tokens in all, at least `cached_len`; evicts when the pool is short.

        Raises OutOfSlotsError, with nothing changed, if even that doesn't give enough. When only the page to copy from stands
        in the way, the copy is given up and `cached_len` falls to whole pages: read it after the first call.
        """
        self._check_held(lease)
        needed = -(-length // self.page_size) * self.page_size - lease.num_slots
        if needed > 0:
            self._make_room(lease, needed)
            self.pool.alloc_into(lease.grow(needed))
            self._request_size += needed
        if lease.source is not None and lease.copy is None and lease.num_slots >= lease.cached_len:
            lease.copy = lease.source[0], lease.slots[lease.tree_len : lease.cached_len].copy()

    def extend_by_page(self, leases: Sequence[Lease]) -> Slots:
        """Gives each lease one page of slots more, in this order: as `extend` would, but at once, and of the free ones alone.

        Returns the slots, int32 [len(leases) * page_size]. Raises OutOfSlotsError, with nothing changed, if too few are free.
        """
        slots = self.pool.alloc(len(leases) * self.page_size)
        for lease, page in zip(leases, slots.reshape(-1, self.page_size), strict=True):
            lease.grow(self.page_size)[:] = page
        self._request_size += len(slots)
        return slots

    def finish_copy(self, lease: Lease) -> None:
        """Tells that the KV of `lease.copy` has been copied: its source is let go. Nothing happens where there is no copy."""
        if lease.source is not None:
            self._unlock(lease.source[1])
            lease.source = lease.copy = None

    def publish(self, lease: Lease, tokens: bytes, length: int) -> tuple[int, int] | None:
        """Gives the tree the slots of `tokens[:length]`, rounded down to whole pages, whose KV has been computed.

        The lock moves to the end of what is published. Where another request has published the same tokens before, the
        lease takes over the tree's slots and its own are freed: then the range [start, end) of positions whose slots have
        changed is returned, and the slot table's row must be rewritten before anything is allocated.
        """
        self._check_held(lease)
        start, end = lease.tree_len, length - length % self.page_size
        if end <= start or not self.enabled:
            return None
        assert lease.copy is None, "finish_copy comes before publish"
        assert end <= lease.num_slots, "published tokens have slots"
        assert end * TOKEN_BYTES <= len(tokens), "published tokens are known"
        tokens = tokens[: end * TOKEN_BYTES]
        walk = self.tree.walk(lease.node, tokens, start)
        node = self._end_of(walk)
        for passed in walk.path:
            self._stamp(passed, lease.priority)
        if walk.end > start:
            self._take_over(lease, walk)
        if walk.end < end:
            node = self._insert(lease, node, tokens, walk.end)
        self.tree.lock(node, top=lease.node)
        above, lease.node, lease.tree_len = lease.node, node, end
        self._request_size -= end - start
        if self.listeners:
            self._tell(Published(above.serial, node.serial, self._clock))
        return (start, walk.end) if walk.end > start else None

    def release(self, lease: Lease) -> None:
        """Ends a claim: unlocks and stamps its path, frees the slots that are the lease's own. Raises LockError the second time."""
        self._check_held(lease)
        self.finish_copy(lease)
        if lease.own_len:
            self._request_size -= lease.own_len
            self.pool.free(lease.slots[lease.tree_len :])
            lease.num_slots = lease.tree_len
        node: Node | None = lease.node
        while node is not None:
            node.last_access_time = self._clock
            node = node.parent
        self.tree.unlock(lease.node)
        self.evictor.offer(lease.node)
        self.leases.remove(lease)
        if self.listeners:
            self._tell(Released(lease.node.serial, self._clock))

    def hold(self, node: Node) -> Lease:
        """Locks the path of `node` for someone who only wants to keep it; it doesn't count as used. `release` ends it."""
        path: list[Node] = []
        walked = node
        while walked.parent is not None:
            path.append(walked)
            walked = walked.parent
        assert isinstance(walked, Root), "the node is in the tree"
        slots = np.concatenate([passed.slots for passed in reversed(path)])
        self._lock(node)
        lease = Lease(walked.extra_key, node.priority, node, len(slots), len(slots), slots, len(slots), self._clock)
        self.leases.add(lease)
        return lease

    def end_of_match(self, tokens: bytes, extra_key: ExtraKey = SHARED) -> Node | None:
        """The node that ends where the longest cached prefix of whole pages ends, split off if need be; None if there is none."""
        walk = self.tree.walk(self.tree.find_root(extra_key), tokens)
        node = self._end_of(walk)
        return node if walk.path else None

    def evict(self, num_tokens: int, lease: Lease | None = None) -> int:
        """Removes unlocked leaves in the policy's order until at least `num_tokens` slots are freed or none is left.

        Of a long leaf only the end goes. Returns the number of tokens evicted. `lease`: whose slots they will be, for listeners.
        """
        return self.evictor.evict(num_tokens, self._clock, lease.time if lease is not None else None)

    def evict_some(self, num_tokens: int) -> int:
        """A portion of `evict` that takes milliseconds; 0 if there is nothing to evict."""
        return self.evictor.evict_some(num_tokens, self._clock)

    @property
    def unused_size(self) -> int:
        """Tokens in the tree that nobody holds."""
        return self.tree.evictable_size - self.tree.detached_size

    def evict_below(self, *tops: Node) -> Pruning:
        """Removes `tops` and everything below them but what is locked: a portion now, and the rest when `tidy` is called."""
        pruning = Pruning(self.tree, self.evictor, tops)
        pruning.go_on(evictor.PORTION, self._clock)
        if not pruning.is_done:
            self._prunings.append(pruning)
        return pruning

    def flush(self) -> int:
        """Empties every namespace; returns the number of tokens dropped. Raises BusyError while any request holds a lease.

        It takes no time in proportion to the tree: nothing is found any more, and the slots come back when `tidy` is called, or
        when they are needed.
        """
        if self.leases:
            raise BusyError(f"{len(self.leases)} running requests hold parts of the cache: wait until they end, or abort them")
        flushed = self.unused_size
        self.evictor.flush()
        if self.listeners:
            self._tell(Flushed(flushed))
        return flushed

    @property
    def is_tidy(self) -> bool:
        """Whether `tidy` would do nothing."""
        return not self.tree.detached and not self._prunings

    def tidy(self) -> None:
        """Goes on with what `flush` and `evict_below` left to do, for a few milliseconds."""
        self.evictor.free_some_detached()
        if self._prunings:
            self._prunings[0].go_on(evictor.PORTION, self._clock)
            if self._prunings[0].is_done:
                self._prunings.popleft()

    def walk(self) -> Iterator[tuple[int, Node]]:
        """(depth, node) of every node but the roots, parents first; a root's child has depth 0. Don't change the tree meanwhile."""
        return self.tree.walk_all()

    def check(self) -> None:
        """Raises AssertionError if an invariant is broken. Walks everything: for tests."""
        audit(self.tree, self.pool, self.evictor.queue, self.leases, self._request_size)

    def _end_of(self, walk: Walk) -> Node:
        """The node that ends where the walk ended, split off if that is inside an edge. Adds it to the path."""
        if walk.child is None:
            return walk.node
        lower = walk.child
        upper = self.tree.split(lower, walk.inside)
        upper.last_access_time = lower.last_access_time = self._clock
        walk.path.append(upper)
        walk.node, walk.child, walk.inside = upper, None, 0
        if self.listeners:
            self._tell(Split(lower.serial, upper.serial, upper.num_tokens, upper.key, self._clock))
        return upper

    def _stamp(self, node: Node, priority: int) -> None:
        node.last_access_time = self._clock
        if priority > node.priority:
            node.priority = priority

    def _take_over(self, lease: Lease, walk: Walk) -> None:
        """Repoints the lease to the slots of the walk's path and frees its own for the same tokens."""
        changed = lease.slots[lease.tree_len : walk.end]
        duplicates = changed.copy()
        np.concatenate([passed.slots for passed in walk.path], out=changed)
        self.pool.free(duplicates)

    def _insert(self, lease: Lease, parent: Node, tokens: bytes, start: int) -> Node:
        """Adds a leaf for tokens[start:] with the lease's slots of these positions."""
        key = tokens[start * TOKEN_BYTES :]
        value = lease.slots[start : start + token_len(key)]
        if len(value) < max(1_024, len(lease.buffer) // 2):
            value = value.copy()  # a view would keep the whole buffer alive
        leaf = self.tree.insert(parent, key, value, time=self._clock, priority=lease.priority)
        leaf.use = lease.use
        if self.listeners:
            self._tell(Inserted(lease.extra_key, leaf.serial, parent.serial, key, self._clock, value.tobytes()))
        return leaf

    def _make_room(self, lease: Lease, needed: int) -> None:
        short = needed - self.free_size
        if short > self.evictable_size and lease.source is not None and lease.copy is None:
            self._give_up_copy(lease, short)
        if short > self.evictable_size:
            raise OutOfSlotsError(
                f"needs {needed} slots: {self.free_size} free, {self.evictable_size} evictable; raise --num-slots"
            )
        if short > 0:
            self.evict(short, lease)

    def _give_up_copy(self, lease: Lease, short: int) -> None:
        """Lets the page to copy from go, if `short` slots can be evicted then: a request must not starve for its own source."""
        assert lease.source is not None
        owner = lease.source[1]
        self.tree.unlock(owner)
        if short > self.evictable_size:
            self.tree.lock(owner)
            return
        lease.source, lease.cached_len = None, lease.tree_len
        self.evictor.offer(owner)
        if self.listeners:
            self._tell(Unlocked(owner.serial))

    def _lock(self, node: Node) -> None:
        self.tree.lock(node)
        if self.listeners:
            self._tell(Locked(node.serial))

    def _unlock(self, node: Node) -> None:
        self.tree.unlock(node)
        self.evictor.offer(node)
        if self.listeners:
            self._tell(Unlocked(node.serial))

    def _tell(self, event: CacheEvent) -> None:
        for listener in self.listeners:
            listener(event)

    def _check_held(self, lease: Lease) -> None:
        if lease not in self.leases:
            raise LockError("the lease was released before: each lease is released once and used no more")
