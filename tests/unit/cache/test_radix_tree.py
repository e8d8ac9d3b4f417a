import gc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixserve.cache.node import Node
from radixserve.cache.radix_tree import RadixTree, shared_tokens
from radixserve.errors import LockError
from radixserve.tokens import SHARED, as_ids, token_bytes


def add(tree: RadixTree, tokens: list[int]) -> Node:
    """Inserts a sequence the way `publish` does; its slots are its tokens times ten."""
    key = token_bytes(tokens)
    walk = tree.walk(tree.make_root(SHARED, 0), key)
    node = walk.node if walk.child is None else tree.split(walk.child, walk.inside)
    if walk.end == len(tokens):
        return node
    value = np.array(tokens[walk.end :], dtype=np.int32) * 10
    return tree.insert(node, key[walk.end * 4 :], value, time=0, priority=0)


def shape(tree: RadixTree) -> list[tuple[int, ...]]:
    """Every node's tokens from the root, sorted."""
    paths: dict[Node | None, tuple[int, ...]] = dict.fromkeys(tree.roots.values(), ())
    for _, node in tree.walk_all():
        paths[node] = paths[node.parent] + tuple(as_ids(node.key).tolist())
    return sorted(path for node, path in paths.items() if node and node.parent)


@given(
    a=st.lists(st.integers(0, 2), max_size=30),
    b=st.lists(st.integers(0, 2), max_size=30),
    before=st.lists(st.integers(0, 2), max_size=5),
)
def test_shared_tokens_counts_equal_tokens(a: list[int], b: list[int], before: list[int]) -> None:
    expected = 0
    while expected < min(len(a), len(b)) and a[expected] == b[expected]:
        expected += 1
    assert shared_tokens(token_bytes(before + a), len(before) * 4, token_bytes(b)) == expected


def test_a_token_is_compared_whole_and_not_by_its_bytes() -> None:
    assert shared_tokens(token_bytes([0x0102_0304, 7]), 0, token_bytes([0x0102_0304, 0x0007])) == 2
    assert shared_tokens(token_bytes([1, 256]), 0, token_bytes([1, 512])) == 1


def test_a_walk_ends_between_nodes_inside_an_edge_or_at_the_root() -> None:
    tree = RadixTree()
    node = add(tree, [1, 2, 3, 4])
    root = tree.find_root(SHARED)
    assert tree.walk(root, token_bytes([9])).node is root
    whole = tree.walk(root, token_bytes([1, 2, 3, 4, 5]))
    assert (whole.path, whole.end, whole.child) == ([node], 4, None)
    inside = tree.walk(root, token_bytes([1, 2, 9]))
    assert (inside.path, inside.end, inside.child, inside.inside) == ([], 2, node, 2)


def test_a_split_keeps_the_end_and_makes_a_new_upper_half() -> None:
    tree = RadixTree()
    node = add(tree, [1, 2, 3, 4])
    tree.lock(node)
    upper = tree.split(node, 1)
    assert node.parent is upper
    assert (upper.slots.tolist(), node.slots.tolist()) == ([10], [20, 30, 40])
    assert upper.lock_ref == node.lock_ref == 1
    assert upper.serial > node.serial
    assert tree.protected_size == 4


sequences = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=12), min_size=1, max_size=8)


@given(page_size=st.sampled_from([1, 2, 3]), inserted=sequences, data=st.data())
def test_the_shape_does_not_depend_on_the_order_of_insertion(
    page_size: int, inserted: list[list[int]], data: st.DataObject
) -> None:
    whole = [tokens[: len(tokens) // page_size * page_size] for tokens in inserted]
    whole = [tokens for tokens in whole if tokens]
    one, other = RadixTree(page_size), RadixTree(page_size)
    for tokens in whole:
        add(one, tokens)
    for tokens in data.draw(st.permutations(whole)):
        add(other, tokens)
    assert shape(one) == shape(other)
    assert one.evictable_size == other.evictable_size


@given(inserted=sequences, sought=st.lists(st.integers(0, 1), min_size=1, max_size=12))
def test_the_page_to_copy_from_is_the_one_that_shares_most(inserted: list[list[int]], sought: list[int]) -> None:
    tree = RadixTree(4)
    whole = [tokens[: len(tokens) // 4 * 4] for tokens in inserted if len(tokens) >= 4]
    for tokens in whole:
        add(tree, tokens)
    tokens = token_bytes(sought)
    walk = tree.walk(tree.find_root(SHARED), tokens)
    page = tree.partial_page(walk, tokens)
    longest = max((shared_tokens(tokens, 0, token_bytes(other)) for other in whole), default=0)
    assert walk.end + (page[2] if page else 0) == longest
    if page:
        assert page[0].tolist() == [token * 10 for token in sought[walk.end : longest]]


def test_locks_reach_the_root_and_a_stray_unlock_is_refused() -> None:
    tree = RadixTree()
    add(tree, [1, 2, 3])
    leaf = add(tree, [1, 2, 9])
    upper = leaf.parent
    assert upper is not None
    tree.lock(leaf)
    assert (tree.evictable_size, tree.protected_size) == (1, 3)
    tree.unlock(leaf)
    assert (tree.evictable_size, tree.protected_size) == (4, 0)
    with pytest.raises(LockError, match="unlocked"):
        tree.unlock(leaf)
    assert upper.lock_ref == 0
    assert (tree.evictable_size, tree.protected_size) == (4, 0)


def test_an_empty_namespace_is_dropped_when_nobody_holds_its_root() -> None:
    tree = RadixTree()
    leaf = add(tree, [1])
    root = tree.find_root(SHARED)
    tree.lock(root)
    tree.remove(leaf)
    assert tree.find_root(SHARED) is root
    tree.unlock(root)
    assert not tree.roots


def test_a_chain_of_5000_nodes_needs_no_recursion() -> None:
    depth = 5_000
    tree = RadixTree()
    tokens = list(range(depth))
    key = token_bytes(tokens)
    leaf: Node = tree.make_root(SHARED, 0)
    for token in tokens:
        leaf = tree.insert(leaf, key[token * 4 : token * 4 + 4], np.array([token], dtype=np.int32), time=0, priority=0)
    assert tree.walk(tree.find_root(SHARED), key).end == depth
    assert add(tree, [*tokens[:2_500], -1]).parent is not None
    assert max(level for level, _ in tree.walk_all()) == depth - 1
    tree.lock(leaf)
    assert tree.protected_size == depth
    tree.unlock(leaf)
    tree.detach()
    while tree.take_detached() is not None:
        pass
    assert tree.evictable_size == tree.num_nodes == 0
    dropped = RadixTree()
    add(dropped, [1])
    node = next(node for _, node in dropped.walk_all())
    for token in range(20_000):
        node = dropped.insert(node, token_bytes([token]), np.array([token], dtype=np.int32), time=0, priority=0)
    del dropped, node
    gc.collect()
