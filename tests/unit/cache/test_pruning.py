"""The eviction of a subtree goes on a portion at a time while others use the tree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixserve.cache.node import Node
from radixserve.cache.prefix_cache import PrefixCache
from radixserve.cache.pruning import Pruning
from radixserve.tokens import token_bytes
from tests.work import lines_run

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=7)


def put(cache: PrefixCache, tokens: list[int]) -> None:
    lease = cache.acquire(token_bytes(tokens))
    cache.extend(lease, len(tokens))
    cache.publish(lease, token_bytes(tokens), len(tokens))
    cache.release(lease)


def path_of(node: Node) -> bytes:
    return (path_of(node.parent) if node.parent is not None else b"") + node.key


@given(
    before=st.lists(TOKENS, min_size=1, max_size=12),
    pick=st.integers(0, 99),
    meanwhile=st.lists(st.tuples(st.sampled_from(["put", "hold", "nothing"]), TOKENS), max_size=20),
)
def test_what_nobody_holds_or_continues_goes_and_what_is_new_stays(
    before: list[list[int]], pick: int, meanwhile: list[tuple[str, list[int]]]
) -> None:
    cache = PrefixCache(1_000)
    for tokens in before:
        put(cache, tokens)
    nodes = [node for _, node in cache.walk()]
    top, then = nodes[pick % len(nodes)], cache.clock
    assert top.parent is not None
    start = path_of(top.parent) + top.key[:4]
    pruning = Pruning(cache.tree, cache.evictor, [top])
    added: list[list[int]] = []
    for action, tokens in meanwhile:
        pruning.go_on(1, cache.clock)
        if action == "put":
            put(cache, tokens)
            added.append(tokens)
        elif action == "hold":
            cache.acquire(token_bytes(tokens))
        cache.check()
    pruning.go_on(1_000, cache.clock)
    cache.check()
    assert pruning.is_done
    left = [node for _, node in cache.walk() if node.created <= then and path_of(node).startswith(start)]
    assert all(node.lock_ref or node.children for node in left)
    if not meanwhile:
        assert (pruning.evicted, pruning.kept, left) == (cache.num_evicted, 0, [])


@given(before=st.lists(TOKENS, min_size=1, max_size=12), evicted=st.lists(st.integers(1, 9), max_size=9), flushed=st.booleans())
def test_others_may_take_the_nodes_before_it_comes_to_them(before: list[list[int]], evicted: list[int], flushed: bool) -> None:
    cache = PrefixCache(1_000)
    for tokens in before:
        put(cache, tokens)
    pruning = Pruning(cache.tree, cache.evictor, [node for _, node in cache.walk()])
    for num_tokens in evicted:
        pruning.go_on(1, cache.clock)
        cache.evict(num_tokens)
        cache.check()
    if flushed:
        cache.flush()
    pruning.go_on(1_000, cache.clock)
    cache.check()
    assert pruning.is_done
    assert not cache.num_nodes


@pytest.mark.parametrize("shape", ["chain", "fan"])
def test_a_portion_takes_as_long_however_large_the_subtree_is(shape: str) -> None:
    works = []
    for size in (100, 400):
        cache = PrefixCache(100_000)
        for number in range(size):
            put(cache, [0, *range(1, number)] if shape == "chain" else [0, 1 + number])
        (top,) = next(iter(cache.tree.roots.values())).children.values()
        pruning = Pruning(cache.tree, cache.evictor, [top])
        works.append(lines_run(pruning.go_on, 20, cache.clock))
        assert not pruning.is_done
    assert works[1] <= works[0]
