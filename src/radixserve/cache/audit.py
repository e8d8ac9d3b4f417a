"""Checks every invariant of the cache by walking all of it. Slow on purpose, for tests and for hunting a fault."""

from collections import Counter
from collections.abc import Collection

import numpy as np

from radixserve.cache.eviction import EvictionQueue
from radixserve.cache.lease import Lease
from radixserve.cache.node import Node
from radixserve.cache.radix_tree import RadixTree, name
from radixserve.cache.slot_pool import SlotPool
from radixserve.tokens import token_len


def audit(tree: RadixTree, pool: SlotPool, queue: EvictionQueue, leases: Collection[Lease], request_size: int) -> None:
    """Raises AssertionError at the first invariant that doesn't hold."""
    nodes = [node for _, node in tree.walk_all()]
    for node in [*tree.roots.values(), *nodes]:
        _check_children(tree, node)
    for extra_key, root in tree.roots.items():
        assert root.extra_key == extra_key
        assert root.parent is None
        assert not root.key
        assert root.children or root.lock_ref, "an unused root is dropped"
    _check_followed(tree)
    _check_locks(tree, nodes, leases)
    detached = [node for part in tree.detached for node in part.values()]
    _check_sizes(tree, nodes, detached)
    _check_queue(queue, nodes)
    _check_ownership(pool, [*nodes, *detached], leases, request_size)
    total = pool.free_size + tree.evictable_size + tree.protected_size + request_size
    assert total == pool.num_slots, f"{total} slots are accounted for, of {pool.num_slots}"


def _check_children(tree: RadixTree, node: Node) -> None:
    for first_page, child in node.children.items():
        assert child.parent is node
        assert child.key[: tree.page_bytes] == first_page, "children are keyed by their first page"
        assert 0 < child.num_tokens == token_len(child.key) == len(child.slots), "an edge is as long as its slots"
        assert child.num_tokens % tree.page_size == 0, "an edge is whole pages"
        first, within = child.slots[:: tree.page_size], np.arange(tree.page_size)
        assert (child.slots.reshape(-1, tree.page_size) == first[:, None] + within).all()
        assert not (first % tree.page_size).any()
    if tree.page_size > 1:
        assert (node.first_pages or []) == sorted(node.children)


def _check_followed(tree: RadixTree) -> None:
    """A match that is followed, and wasn't reported, is what a walk from the root finds."""
    for match in tree.followed:
        walk = tree.walk(tree.find_root(match.extra_key), match.key)
        page = tree.partial_page(walk, match.key)
        assert (match.path_len, match.cached_len) == (walk.end, walk.end + (page[2] if page else 0))
        end = walk.node if walk.child is None else walk.child
        assert match.place.rest == (0 if walk.child is None else walk.child.num_tokens - walk.inside)
        assert match.place.node == (name(end) if walk.end else match.extra_key)


def _check_locks(tree: RadixTree, nodes: list[Node], leases: Collection[Lease]) -> None:
    """Each node is locked exactly by the leases that end at or below it."""
    expected: Counter[int] = Counter()
    for lease in leases:
        for end in [lease.node] + ([lease.source[1]] if lease.source else []):
            node: Node | None = end
            while node is not None:
                expected[node.serial] += 1
                node = node.parent
    for node in [*tree.roots.values(), *nodes]:
        assert node.lock_ref == expected.pop(node.serial, 0), f"{node} isn't locked as often as it is held"
    assert not expected, "a lease holds a node that isn't in the tree"


def _check_sizes(tree: RadixTree, nodes: list[Node], detached: list[Node]) -> None:
    assert tree.nodes == {node.serial: node for node in nodes}
    assert not any(node.lock_ref for node in detached), "nobody holds what was flushed"
    assert tree.detached_size == sum(node.num_tokens for node in detached)
    assert tree.evictable_size == sum(node.num_tokens for node in nodes if not node.lock_ref) + tree.detached_size
    assert tree.protected_size == sum(node.num_tokens for node in nodes if node.lock_ref)


def _check_queue(queue: EvictionQueue, nodes: list[Node]) -> None:
    assert len(queue) == sum(node.queued is not None for node in nodes), "a node in the queue has one entry"
    assert all(node.queued is not None for node in nodes if not node.children and not node.lock_ref), (
        "every unlocked leaf can be evicted"
    )


def _check_ownership(pool: SlotPool, nodes: list[Node], leases: Collection[Lease], request_size: int) -> None:
    """Every slot is in the free list, one node or one lease."""
    own = [lease.slots[lease.tree_len :] for lease in leases]
    assert request_size == sum(map(len, own)), "the count of the requests' slots is right"
    for lease in leases:
        _check_lease(lease)
    owned = np.concatenate([pool.free_slots(), *(node.slots for node in nodes), *own])
    everything = np.arange(pool.page_size, pool.num_slots + pool.page_size)
    assert np.array_equal(np.sort(owned), everything), "a slot is owned twice or by nobody"


def _check_lease(lease: Lease) -> None:
    """A lease starts with the slots of its path."""
    path: list[Node] = []
    node = lease.node
    while node.parent is not None:
        path.append(node)
        node = node.parent
    from_tree = [slot for passed in reversed(path) for slot in passed.slots.tolist()]
    assert lease.slots[: lease.tree_len].tolist() == from_tree
