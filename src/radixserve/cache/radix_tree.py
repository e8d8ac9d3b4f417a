"""The radix tree over the tokens of all requests: nodes, the walk down, splits, locks and sizes. It knows no pool and no clock.

Tokens are `bytes` of native int32, four a token, so that an edge is compared with one `startswith` (a memcmp). Lengths are in
tokens everywhere but in names that end in `_bytes`.

Invariants:
- An edge is a positive number of whole pages; `value` holds the slot of each of its tokens.
- No two children of a node share their first page; `children` is keyed by it.
- Each lease adds one to `lock_ref` of every node from its own to the root, so no node is locked less than a child of it, and
  the unlocked nodes (`evictable_size` tokens) can all be removed leaf by leaf.
- Nodes are never merged. Where nodes end depends on what was inserted and locked, not on the order.
- `followed` hears of every change, so that a follower of a match knows when a walk might end elsewhere.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass

from radixserve.cache.followed import FollowedMatches
from radixserve.cache.node import Node, Root
from radixserve.cache.slot_pool import Slots
from radixserve.errors import LockError
from radixserve.tokens import TOKEN_BYTES, ExtraKey


@dataclass(slots=True)
class Walk:
    """Where a walk ended."""

    path: list[Node]
    """Nodes whose whole edges were passed, in order."""
    node: Node
    """The last of `path`, or where the walk started."""
    end: int
    """Tokens from the start of `tokens` to the end of the last whole page that matches."""
    child: Node | None = None
    """The node whose edge the walk ended in, after `inside` tokens, if it ended inside an edge."""
    inside: int = 0


class RadixTree:
    """All namespaces' trees, sharing sizes and serial numbers."""

    def __init__(self, page_size: int = 1) -> None:
        self.page_size = page_size
        self.page_bytes = page_size * TOKEN_BYTES
        self.roots: dict[ExtraKey, Root] = {}
        self.nodes: dict[int, Node] = {}
        """By serial number, without the roots."""
        self.detached: list[dict[int, Node]] = []
        """What `detach` took out and `take_detached` has not taken apart."""
        self.detached_size = 0
        """Their tokens."""
        self.evictable_size = 0
        """Tokens in unlocked nodes, the detached ones included."""
        self.protected_size = 0
        self._num_made = 0
        self.followed = FollowedMatches()
        self._no_root = Node(-1, None, b"", None, 0, 0)
        """Stands for the root of every namespace that has none."""

    @property
    def num_nodes(self) -> int:
        """Nodes without the roots."""
        return len(self.nodes)

    def find_root(self, extra_key: ExtraKey) -> Node:
        """The namespace's root, or a stand-in without children."""
        return self.roots.get(extra_key, self._no_root)

    def make_root(self, extra_key: ExtraKey, time: int) -> Root:
        """The namespace's root, made if there is none. Lock it at once: an empty and unlocked root is dropped."""
        root = self.roots.get(extra_key)
        if root is None:
            root = self.roots[extra_key] = Root(self._next_serial(), extra_key, time)
        return root

    def walk(self, node: Node, tokens: bytes, start: int = 0) -> Walk:
        """Follows tokens[start:] down from `node` as far as whole pages match. Changes nothing."""
        page_bytes = self.page_bytes
        offset = start * TOKEN_BYTES
        path: list[Node] = []
        child = node.children.get(tokens[offset : offset + page_bytes])
        while child is not None:
            key = child.key
            if not tokens.startswith(key, offset):
                inside = shared_tokens(tokens, offset, key) // self.page_size * self.page_size
                return Walk(path, node, offset // TOKEN_BYTES + inside, child, inside)
            offset += len(key)
            node = child
            path.append(node)
            child = node.children.get(tokens[offset : offset + page_bytes])
        return Walk(path, node, offset // TOKEN_BYTES)

    def partial_page(self, walk: Walk, tokens: bytes) -> tuple[Slots, Node, int] | None:
        """The cached page that shares most with the page after the walk's end, if any shares a token.

        Returns the slots of the shared tokens, the node that owns them and their number, which is less than a page. Among
        sorted pages one of the two neighbours of the page sought shares the longest start with it, so two are compared.
        """
        if self.page_size == 1:
            return None
        offset = walk.end * TOKEN_BYTES
        page = tokens[offset : offset + self.page_bytes]
        if walk.child is not None:
            candidates = [(walk.child, walk.inside)]
        else:
            first_pages = walk.node.first_pages or []
            at = bisect_left(first_pages, page)
            candidates = [(walk.node.children[first_pages[i]], 0) for i in (at - 1, at) if 0 <= i < len(first_pages)]
        best: tuple[Slots, Node, int] | None = None
        for node, start in candidates:
            begin = start * TOKEN_BYTES
            if not page.startswith(node.key[begin : begin + TOKEN_BYTES]):
                continue  # most often not even the first token is shared
            shared = shared_tokens(page, 0, node.key[begin : begin + self.page_bytes])
            if shared > (best[2] if best else 0):
                best = node.slots[start : start + shared], node, shared
        return best

    def insert(self, parent: Node, key: bytes, value: Slots, *, time: int, priority: int) -> Node:
        """Adds an unlocked leaf. `key` is whole pages, of which no child of `parent` has the first."""
        node = Node(self._next_serial(), parent, key, value, time, priority)
        self._attach(parent, node)
        self.nodes[node.serial] = node
        self.evictable_size += node.num_tokens
        self.followed.child_changed(name(parent), key[:TOKEN_BYTES])
        return node

    def split(self, node: Node, at: int) -> Node:
        """Cuts `node`'s edge after `at` tokens (whole pages). Returns the upper half.

        The upper half is the new node and copies the lock, so that whoever holds `node` still holds its end.
        """
        parent = node.parent
        assert parent is not None
        assert 0 < at < node.num_tokens
        assert at % self.page_size == 0
        cut = at * TOKEN_BYTES
        upper = Node(self._next_serial(), parent, node.key[:cut], node.slots[:at].copy(), node.last_access_time, node.priority)
        upper.created, upper.hit_count, upper.use = node.created, node.hit_count, node.use
        upper.lock_ref, upper.pin_ref = node.lock_ref, node.pin_ref
        parent.children[node.key[: self.page_bytes]] = upper
        node.key, node.value = node.key[cut:], node.slots[at:].copy()
        node.num_tokens -= at
        node.parent = upper
        self._attach(upper, node)
        self.nodes[upper.serial] = upper
        self.followed.split(node, upper)
        return upper

    def remove(self, node: Node) -> Node:
        """Takes an unlocked leaf out. Returns its parent; a root left empty and unlocked is dropped."""
        parent = node.parent
        assert parent is not None
        assert not node.children
        assert node.lock_ref == 0
        first_page = node.key[: self.page_bytes]
        del parent.children[first_page]
        if parent.first_pages is not None:
            del parent.first_pages[bisect_left(parent.first_pages, first_page)]
        node.parent = None
        del self.nodes[node.serial]
        self.evictable_size -= node.num_tokens
        self.followed.removed(node)
        self.followed.child_changed(name(parent), node.key[:TOKEN_BYTES])  # a page may have been there to copy from
        if not parent.children and isinstance(parent, Root):
            self._drop_if_unused(parent)
        return parent

    def lock(self, node: Node, top: Node | None = None) -> None:
        """Adds one to `lock_ref` of every node from `node` up to, and without, `top`; by default the root is the last."""
        walked: Node | None = node
        while walked is not top and walked is not None:
            if walked.lock_ref == 0:
                self.evictable_size -= walked.num_tokens
                self.protected_size += walked.num_tokens
            walked.lock_ref += 1
            walked = walked.parent

    def unlock(self, node: Node) -> None:
        """Takes back one `lock`. Raises LockError, changing nothing, if `node` isn't locked."""
        if node.lock_ref < 1:
            raise LockError(f"{node!r} is unlocked, but nobody holds it: each lock is given back once")
        walked: Node | None = node
        while walked is not None:
            walked.lock_ref -= 1
            if walked.lock_ref == 0:
                self.evictable_size += walked.num_tokens
                self.protected_size -= walked.num_tokens
            if not walked.children and isinstance(walked, Root):
                self._drop_if_unused(walked)
            walked = walked.parent

    def detach(self) -> None:
        """Takes everything out at once, however much it is: no walk finds it any more. Nothing may be locked.

        The nodes keep their slots, and count as evictable, until `take_detached` gives them.
        """
        assert self.protected_size == 0
        if self.nodes:
            self.detached.append(self.nodes)
        self.detached_size = self.evictable_size
        self.nodes, self.roots = {}, {}
        self.followed.clear()

    def take_detached(self) -> Node | None:
        """Takes a detached node apart and returns it; None if there is none.

        It leaves its parent and its children, so that it is freed when the caller lets it go, and no chain of nodes recursively.
        """
        if not self.detached:
            return None
        nodes = self.detached[-1]
        _, node = nodes.popitem()
        if not nodes:
            self.detached.pop()
        if node.parent is not None:
            node.parent.children.pop(node.key[: self.page_bytes], None)
        node.parent, node.children = None, {}
        self.evictable_size -= node.num_tokens
        self.detached_size -= node.num_tokens
        return node

    def walk_all(self) -> Iterator[tuple[int, Node]]:
        """(depth, node) of every node but the roots, parents first, namespaces one after another; a root's child has depth 0."""
        for root in self.roots.values():
            stack = [(0, child) for child in reversed(root.children.values())]
            while stack:
                depth, node = stack.pop()
                yield depth, node
                stack += [(depth + 1, child) for child in reversed(node.children.values())]

    def walk_below(self, top: Node) -> Iterator[Node]:
        """`top` and every node below it, parents first."""
        stack = [top]
        while stack:
            node = stack.pop()
            yield node
            stack += reversed(node.children.values())

    def _attach(self, parent: Node, node: Node) -> None:
        first_page = node.key[: self.page_bytes]
        parent.children[first_page] = node
        if self.page_size > 1:
            if parent.first_pages is None:
                parent.first_pages = []
            insort(parent.first_pages, first_page)

    def _drop_if_unused(self, root: Root) -> None:
        if not root.children and root.lock_ref == 0:
            del self.roots[root.extra_key]

    def _next_serial(self) -> int:
        self._num_made += 1
        return self._num_made


def name(node: Node) -> Node | ExtraKey:
    """What stands for a node in `followed`: a root may come and go while matches end there, so it goes by its namespace."""
    return node.extra_key if isinstance(node, Root) else node


def shared_tokens(tokens: bytes, offset_bytes: int, key: bytes) -> int:
    """How many tokens tokens[offset_bytes:] and `key` share at their starts: a bisection of memory compares, no copies."""
    view = memoryview(key)
    low, high = 0, min(len(key), len(tokens) - offset_bytes) // TOKEN_BYTES
    while low < high:  # the first `low` tokens are equal, and no more than `high`
        middle = (low + high + 1) // 2
        start = low * TOKEN_BYTES
        if tokens.startswith(view[start : middle * TOKEN_BYTES], offset_bytes + start):
            low = middle
        else:
            high = middle - 1
    return low
