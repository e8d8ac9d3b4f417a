"""A copy of the engine's tree, pool and requests in another process, kept by what the engine tells (`observe/news.py`).

After a Snapshot and each News it equals the engine's as of that step, in everything that it holds: a property test compares them.
"""

from dataclasses import dataclass, field

from radixserve.cache.events import (
    Acquired,
    CacheEvent,
    Evicted,
    Flushed,
    Inserted,
    Locked,
    Published,
    Released,
    Split,
    Unlocked,
)
from radixserve.observe.news import News, RequestState, Snapshot
from radixserve.tokens import TOKEN_BYTES, ExtraKey


@dataclass(slots=True)
class MirrorNode:
    """A node; a root has serial `parent` 0 and an `extra_key`."""

    serial: int
    parent: int
    tokens: bytes
    slots: bytes
    created: int
    time: int
    hit_count: int
    lock_ref: int
    extra_key: ExtraKey | None = None
    num_children: int = 0


@dataclass(slots=True)
class MirrorRequest:
    """A request that waits or runs; `slots` are its own, from position `state.own_start` on."""

    state: RequestState
    slots: bytes
    last_tokens: bytes


@dataclass(slots=True)
class Changes:
    """What differs from an earlier time. `touched`: nodes of which only use or lock changed; `reshaped`: new or cut nodes."""

    touched: set[int] = field(default_factory=set)
    reshaped: set[int] = field(default_factory=set)
    removed: set[int] = field(default_factory=set)
    requests: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)

    def add(self, later: "Changes") -> None:
        """Adds what changed after. A serial number is never used twice; a request's id may be."""
        self.removed |= later.removed
        self.touched = (self.touched | later.touched) - self.removed
        self.reshaped = (self.reshaped | later.reshaped) - self.removed
        self.ended = (self.ended - later.requests) | later.ended
        self.requests = (self.requests | later.requests) - later.ended


class Mirror:
    """The copy."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.num_slots = snapshot.num_slots
        self.page_size = snapshot.page_size
        self.clock = snapshot.clock
        self.pins = snapshot.pins
        self.victims = snapshot.victims
        self.nodes: dict[int, MirrorNode] = {}
        """Roots too; parents before their children in a Snapshot, not for ever."""
        self.requests: dict[str, MirrorRequest] = {}
        self._changes = Changes()
        for root in snapshot.roots:
            self.nodes[root.serial] = MirrorNode(root.serial, 0, b"", b"", 0, 0, 0, root.lock_ref, root.extra_key)
        for node in snapshot.nodes:
            self.nodes[node.serial] = MirrorNode(
                node.serial, node.parent, node.tokens, node.slots, node.created, node.time, node.hit_count, node.lock_ref
            )
            self.nodes[node.parent].num_children += 1
        for request in snapshot.requests:
            self._request(request)

    def apply(self, news: News) -> Changes:
        """Brings the copy up to date; returns what changed."""
        self._changes = changes = Changes()
        for event in news.events:
            self._event(event)
        for rid in news.ended:
            self.requests.pop(rid, None)
            changes.ended.add(rid)
        for request in news.requests:
            self._request(request)
            changes.requests.add(request.rid)
        self.clock, self.pins, self.victims = news.clock, news.pins, news.victims
        changes.touched -= changes.removed
        changes.reshaped -= changes.removed
        return changes

    def path(self, serial: int) -> list[MirrorNode]:
        """The nodes from the root's child to `serial`."""
        found = []
        node = self.nodes[serial]
        while node.parent:
            found.append(node)
            node = self.nodes[node.parent]
        return found[::-1]

    def root_of(self, serial: int) -> MirrorNode:
        """The root above a node."""
        node = self.nodes[serial]
        while node.parent:
            node = self.nodes[node.parent]
        return node

    def below(self, top: int) -> list[MirrorNode]:
        """`top` and every node below it."""
        children: dict[int, list[MirrorNode]] = {}
        for node in self.nodes.values():
            children.setdefault(node.parent, []).append(node)
        found, stack = [], [self.nodes[top]]
        while stack:
            node = stack.pop()
            found.append(node)
            stack += reversed(children.get(node.serial, []))
        return found

    def _event(self, event: CacheEvent) -> None:
        match event:
            case Inserted():
                self._root(event.extra_key, event.parent)
                self._add(MirrorNode(event.serial, event.parent, event.tokens, event.slots, event.time, event.time, 0, 0))
            case Split():
                self._split(event)
            case Acquired():
                self._root(event.extra_key, event.serial)
                self._use(event.serial, 0, locks=1, hits=1, time=event.time)
            case Published():
                self._use(event.serial, event.start, locks=1, time=event.time)
            case Released():
                self._use(event.serial, 0, locks=-1, time=event.time)
            case Locked():
                self._use(event.serial, 0, locks=1)
            case Unlocked():
                self._use(event.serial, 0, locks=-1)
            case Evicted():
                self._remove(event.serial)
            case Flushed():
                self._changes.removed |= set(self.nodes)
                self.nodes.clear()

    def _root(self, extra_key: ExtraKey, serial: int) -> None:
        if serial not in self.nodes:
            self.nodes[serial] = MirrorNode(serial, 0, b"", b"", 0, 0, 0, 0, extra_key)
            self._changes.reshaped.add(serial)

    def _add(self, node: MirrorNode) -> None:
        self.nodes[node.serial] = node
        self.nodes[node.parent].num_children += 1
        self._changes.reshaped.add(node.serial)

    def _split(self, event: Split) -> None:
        lower, cut = self.nodes[event.serial], event.at * TOKEN_BYTES
        upper = MirrorNode(
            event.upper, lower.parent, lower.tokens[:cut], lower.slots[:cut],
            lower.created, event.time, lower.hit_count, lower.lock_ref, num_children=1,
        )  # fmt: skip
        self.nodes[upper.serial] = upper
        lower.parent, lower.tokens, lower.slots, lower.time = upper.serial, lower.tokens[cut:], lower.slots[cut:], event.time
        self._changes.reshaped |= {upper.serial, lower.serial}

    def _use(self, serial: int, top: int, *, locks: int, hits: int = 0, time: int | None = None) -> None:
        """Goes up from a node to its root, or to `top` without it."""
        while serial != top:
            node = self.nodes[serial]
            node.lock_ref += locks
            if node.parent:
                node.hit_count += hits
                node.time = node.time if time is None else time
            self._changes.touched.add(serial)
            serial = node.parent
        if locks < 0 and top == 0:
            self._drop_if_unused(node)

    def _remove(self, serial: int) -> None:
        node = self.nodes.pop(serial)
        self._changes.removed.add(serial)
        parent = self.nodes[node.parent]
        parent.num_children -= 1
        self._drop_if_unused(parent)

    def _drop_if_unused(self, node: MirrorNode) -> None:
        if node.extra_key is not None and not node.num_children and not node.lock_ref:
            del self.nodes[node.serial]
            self._changes.removed.add(node.serial)

    def _request(self, state: RequestState) -> None:
        known = self.requests.get(state.rid)
        if known is None or state.restarted:
            slots = state.new_slots
        else:
            slots = known.slots[(state.own_start - known.state.own_start) * TOKEN_BYTES :] + state.new_slots
        last_tokens = state.last_tokens if known is None else known.last_tokens
        self.requests[state.rid] = MirrorRequest(state, slots, last_tokens)
