import gc
import weakref

import numpy as np
import pytest

from radixserve.cache import evictor
from radixserve.cache.eviction import LRU, EvictionQueue
from radixserve.cache.followed import FollowedMatch
from radixserve.cache.node import Node
from radixserve.cache.prefix_cache import Lease, PrefixCache
from radixserve.errors import BusyError, LockError, OutOfSlotsError
from radixserve.tokens import SHARED, ExtraKey, token_bytes


class Words(dict[str, int]):
    """Token ids of words, numbered as they come."""

    def __call__(self, text: str) -> bytes:
        return token_bytes([self.setdefault(word, len(self)) for word in text.split()])


def numbered(start: int, end: int) -> bytes:
    return token_bytes(list(range(start, end)))


def serve(cache: PrefixCache, tokens: bytes, extra_key: ExtraKey = SHARED, check: bool = True) -> Lease:
    """A whole request that generates one token; its last token isn't looked up, since it must be computed."""
    lease = cache.acquire(tokens[:-4], extra_key)
    cache.extend(lease, len(tokens) // 4)
    cache.finish_copy(lease)
    cache.publish(lease, tokens, len(tokens) // 4)
    cache.release(lease)
    if check:
        cache.check()
    return lease


def tree_of(cache: PrefixCache) -> list[tuple[int, list[int], int]]:
    """(depth, slots, time) of every node."""
    return sorted((depth, node.slots.tolist(), node.last_access_time) for depth, node in cache.walk())


def test_the_walkthrough_has_these_slots_hits_times_and_victims() -> None:
    cache, words = PrefixCache(11), Words()

    lease = serve(cache, words("Why my code throws errors"))
    assert (cache.clock, lease.cached_len, tree_of(cache)) == (0, 0, [(0, [1, 2, 3, 4, 5], 0)])

    lease = serve(cache, words("Why GPU memory runs out"))
    assert (cache.clock, lease.cached_len) == (1, 1)
    assert tree_of(cache) == [(0, [1], 1), (1, [2, 3, 4, 5], 1), (1, [6, 7, 8, 9], 1)]

    lease = serve(cache, words("Why my code is slow"))
    assert (cache.clock, lease.cached_len, cache.free_size) == (2, 3, 0)
    assert tree_of(cache) == [(0, [1], 2), (1, [2, 3], 2), (1, [6, 7, 8, 9], 1), (2, [4, 5], 2), (2, [10, 11], 2)]

    num_nodes = cache.num_nodes
    lease = serve(cache, words("Why my code won't compile"))
    assert (cache.clock, lease.cached_len, cache.num_nodes) == (3, 3, num_nodes)
    assert tree_of(cache) == [(0, [1], 3), (1, [2, 3], 3), (2, [4, 5], 2), (2, [6, 7], 3), (2, [10, 11], 2)]
    assert cache.pool.free_slots().tolist() == [8, 9]


@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32])
def test_pages_of_16_match_whole_pages_and_copy_the_rest(length: int) -> None:
    cache = PrefixCache(64, page_size=16)
    serve(cache, numbered(0, length))
    match = cache.match(numbered(0, length))
    assert match.path_len == match.cached_len == length // 16 * 16
    assert cache.evictable_size == length // 16 * 16


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("length", [1, 16, 32])
def test_a_prompt_seen_before_leaves_its_last_token_to_compute(page_size: int, length: int) -> None:
    cache = PrefixCache(64, page_size)
    serve(cache, numbered(0, length))
    lease = cache.acquire(numbered(0, length)[:-4])
    assert lease.cached_len == (length - 1 if length >= page_size else 0)
    other = cache.acquire(numbered(0, length)[:-4])
    assert other.cached_len == lease.cached_len
    cache.check()


def test_a_locked_path_outlives_a_full_pool() -> None:
    cache = PrefixCache(64)
    serve(cache, numbered(0, 32))
    lease = cache.acquire(numbered(0, 32) + numbered(900, 904))
    cache.extend(lease, 36)
    held = lease.slots.copy()
    for start in range(1_000, 2_000, 20):
        serve(cache, numbered(start, start + 20))
        assert cache.match(numbered(0, 32)).cached_len == 32
    assert lease.slots.tolist() == held.tolist()
    cache.release(lease)
    assert cache.protected_size == cache.request_size == 0


def test_what_a_request_held_counts_as_used_until_it_ended() -> None:
    cache = PrefixCache(40)
    serve(cache, numbered(0, 10))
    lease = cache.acquire(numbered(0, 10))
    serve(cache, numbered(100, 110))
    serve(cache, numbered(200, 210))
    cache.release(lease)
    cache.evict(1)
    assert [cache.match(numbered(start, start + 10)).cached_len for start in (0, 100, 200)] == [10, 0, 10]


def test_what_lies_below_a_lock_inside_an_edge_can_go() -> None:
    cache = PrefixCache(40)
    serve(cache, numbered(1, 11))
    lease = cache.acquire(numbered(1, 7) + numbered(99, 100))
    assert (cache.protected_size, cache.evictable_size) == (6, 4)
    serve(cache, numbered(1, 9) + numbered(77, 78))
    assert cache.evict(100) == 5
    cache.release(lease)
    with pytest.raises(LockError, match="released before"):
        cache.release(lease)
    assert cache.evict(100) == 6
    assert cache.num_nodes == 0
    cache.check()


@pytest.mark.parametrize(("page_size", "needed", "left"), [(1, 1, 875), (16, 1, 864), (1, 300, 700), (1, 936, 64), (1, 937, 0)])
def test_of_a_long_leaf_only_the_end_goes(page_size: int, needed: int, left: int) -> None:
    cache = PrefixCache(2_048, page_size)
    serve(cache, numbered(0, 1_000))
    serve(cache, numbered(5_000, 5_064))
    assert cache.evict(needed) == 1_000 // page_size * page_size - left
    assert cache.match(numbered(0, 1_000)).cached_len == left
    assert cache.match(numbered(5_000, 5_064)).cached_len == 64
    cache.check()


def test_what_is_left_of_a_leaf_is_as_old_as_it_was() -> None:
    cache = PrefixCache(2_048)
    serve(cache, numbered(0, 1_000))
    serve(cache, numbered(5_000, 5_064))
    while cache.match(numbered(0, 1_000)).cached_len:
        assert cache.evict(1)
        assert cache.match(numbered(5_000, 5_064)).cached_len == 64


def test_a_chain_of_5000_nodes_is_published_split_evicted_and_flushed() -> None:
    depth = 5_000
    cache, tokens = PrefixCache(2 * depth), numbered(0, depth)
    for _ in range(2):
        lease = cache.acquire(tokens)
        cache.extend(lease, depth)
        for length in range(1, depth + 1):
            cache.publish(lease, tokens[: length * 4], length)
        cache.release(lease)
        assert cache.num_nodes == depth
        assert cache.match(tokens).evictable_len == depth
        assert cache.evict(depth // 2) == depth // 2
        assert cache.flush() == depth // 2
        while not cache.is_tidy:
            cache.tidy()
    cache.check()


def test_a_flush_hides_everything_at_once_and_frees_a_portion_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evictor, "PORTION", 2)
    cache = PrefixCache(100)
    for start in range(0, 100, 10):
        serve(cache, numbered(start, start + 10))
    assert cache.flush() == 100
    assert [cache.match(numbered(start, start + 10)).cached_len for start in range(0, 100, 10)] == [0] * 10
    assert (cache.num_nodes, cache.free_size, cache.evictable_size) == (0, 0, 100)
    cache.tidy()
    assert (cache.free_size, cache.evictable_size) == (20, 80)
    serve(cache, numbered(0, 50))  # more than is free: it takes what it needs of the flushed part, and not a token of the new tree
    assert cache.num_evicted == 0
    assert cache.flush() == 50
    steps = 0
    while not cache.is_tidy:
        cache.tidy()
        cache.check()
        steps += 1
    assert (steps, cache.free_size) == (3, 100)


def test_nodes_that_leave_the_tree_are_freed_at_once_without_the_garbage_collector() -> None:
    cache = PrefixCache(64)
    gc.disable()
    try:
        for flushes in (False, True):
            for start in range(0, 30, 10):
                serve(cache, numbered(0, 5) + numbered(start, start + 10))
            keys = [weakref.ref(node.slots) for node in cache.tree.nodes.values()]
            if flushes:
                cache.flush()
                cache.tidy()
            cache.evict(64)
            cache.evictor.queue.clear()  # its entries go when they come up
            assert [key() for key in keys] == [None] * len(keys)
    finally:
        gc.enable()


class CountingLRU(LRU):
    """Counts how often it is asked."""

    count = 0

    def order(self, node: Node) -> int:
        self.count += 1
        return super().order(node)


@pytest.mark.parametrize("num_leaves", [200, 2_000])
def test_eviction_looks_at_few_leaves_however_many_there_are(num_leaves: int) -> None:
    cache, policy = PrefixCache(num_leaves), CountingLRU()
    cache.evictor.queue = EvictionQueue(policy)
    for leaf in range(num_leaves):
        serve(cache, numbered(leaf, leaf + 1), check=False)
    policy.count = 0
    lease = cache.acquire(b"")
    for length in range(1, 101):
        cache.extend(lease, length)
    assert policy.count == 100


def test_a_prompt_as_large_as_the_pool_evicts_the_other_and_returns_with_its_own_slots() -> None:
    cache = PrefixCache(8)
    x, y = numbered(0, 8), numbered(100, 108)
    for tokens in (x, y, x, y):
        assert serve(cache, tokens).cached_len == 0
        assert cache.match(tokens).cached_len == 8
        assert cache.match(y if tokens is x else x).cached_len == 0


def test_what_was_never_computed_is_never_found() -> None:
    cache, tokens = PrefixCache(32), numbered(0, 20)
    lease = cache.acquire(tokens)
    cache.extend(lease, 20)
    assert cache.match(tokens).cached_len == 0
    cache.release(lease)
    assert cache.match(tokens).cached_len == 0
    assert cache.free_size == 32


def test_too_few_slots_are_named_and_nothing_changes() -> None:
    cache = PrefixCache(8)
    serve(cache, numbered(0, 2))
    lease = cache.acquire(numbered(0, 2))
    cache.extend(lease, 6)
    other = cache.acquire(numbered(50, 60))
    with pytest.raises(OutOfSlotsError, match=r"needs 5 slots: 2 free, 0 evictable; raise --num-slots"):
        cache.extend(other, 5)
    assert (cache.free_size, cache.request_size, len(other.slots)) == (2, 4, 0)
    cache.check()


def test_the_second_to_publish_takes_over_the_slots_of_the_first() -> None:
    cache, tokens = PrefixCache(32), numbered(0, 8)
    first, second = cache.acquire(tokens), cache.acquire(tokens)
    for lease in (first, second):
        cache.extend(lease, 8)
    assert cache.publish(first, tokens, 5) is None
    own = second.slots.tolist()
    assert cache.publish(second, tokens, 7) == (0, 5)
    assert second.slots.tolist() == first.slots[:5].tolist() + own[5:]
    assert cache.pool.free_slots()[-5:].tolist() == own[:5]
    assert cache.publish(first, tokens, 8) == (5, 7)
    assert first.slots[5:7].tolist() == own[5:7]
    cache.check()
    for lease in (first, second):
        cache.release(lease)
    assert (cache.evictable_size, cache.free_size) == (8, 24)


def test_a_partly_shared_page_is_copied_and_its_source_held_until_then() -> None:
    cache = PrefixCache(48, page_size=4)
    serve(cache, numbered(0, 8))
    lease = cache.acquire(numbered(0, 6) + numbered(90, 95))
    assert (lease.tree_len, lease.cached_len, lease.copy) == (4, 6, None)
    assert cache.protected_size == 8
    cache.extend(lease, 11)
    assert lease.copy is not None
    source, target = lease.copy
    assert source.tolist() == [8, 9]
    assert target.tolist() == lease.slots[4:6].tolist()
    assert cache.evict(100) == 0
    cache.finish_copy(lease)
    assert (lease.copy, cache.protected_size) == (None, 4)
    assert cache.evict(100) == 4
    cache.release(lease)
    cache.check()


def test_an_abort_before_the_copy_lets_its_source_go() -> None:
    cache = PrefixCache(48, page_size=4)
    serve(cache, numbered(0, 8))
    for length in (0, 8):
        lease = cache.acquire(numbered(0, 6))
        if length:
            cache.extend(lease, length)
        cache.release(lease)
        assert (cache.protected_size, cache.request_size) == (0, 0)
        cache.check()


def test_a_request_that_needs_the_whole_pool_gives_up_the_page_to_copy_from() -> None:
    cache = PrefixCache(8, page_size=4)
    serve(cache, numbered(0, 8))
    tokens = numbered(0, 2) + numbered(90, 96)
    lease = cache.acquire(tokens)
    assert lease.cached_len == 2
    cache.extend(lease, 8)
    assert (lease.cached_len, lease.copy, len(lease.slots)) == (0, None, 8)
    cache.check()


def test_namespaces_share_nothing_and_leave_nothing() -> None:
    cache, tokens = PrefixCache(100), numbered(0, 10)
    salted, adapted = ExtraKey(cache_salt="a"), ExtraKey(adapter="a")
    cached = [serve(cache, tokens, key).cached_len for key in (salted, salted, ExtraKey(cache_salt="b"), adapted, SHARED)]
    assert cached == [0, 9, 0, 0, 0]
    cache.evict(100)
    assert not cache.tree.roots
    lease = cache.acquire(tokens, salted)
    assert list(cache.tree.roots) == [salted]
    cache.release(lease)
    assert not cache.tree.roots


def follow(cache: PrefixCache, tokens: bytes) -> FollowedMatch:
    match = FollowedMatch(tokens, SHARED)
    cache.follow(match)
    return match


def test_a_followed_match_is_reported_when_it_may_become_longer_and_not_otherwise() -> None:
    cache, tokens = PrefixCache(100), numbered(0, 10)
    match = follow(cache, tokens)
    serve(cache, numbered(50, 55))  # gives the namespace its root
    assert not cache.take_changed()
    serve(cache, tokens[:20])
    assert cache.take_changed() == [match]
    cache.follow(match)
    assert match.cached_len == 5
    serve(cache, tokens[:20] + numbered(70, 75))
    serve(cache, tokens[:8] + numbered(70, 75))  # splits what it found
    assert not cache.take_changed()
    serve(cache, tokens)
    assert cache.take_changed() == [match]
    cache.follow(match)
    assert match.cached_len == 10
    cache.flush()
    assert cache.take_changed() == [match]
    cache.follow(match)
    assert match.cached_len == 0


def test_a_followed_match_is_reported_when_what_it_found_is_evicted() -> None:
    cache, tokens = PrefixCache(100), numbered(0, 10)
    serve(cache, tokens)
    match = follow(cache, tokens)
    cache.evict(10)
    assert cache.take_changed() == [match]
    cache = PrefixCache(100, page_size=4)
    serve(cache, numbered(0, 4))
    serve(cache, numbered(0, 8))
    match = follow(cache, numbered(0, 6))  # ends in the first node, and would copy from a page below it
    assert (match.path_len, match.cached_len) == (4, 6)
    cache.evict(4)
    assert cache.take_changed() == [match]
    cache.follow(match)
    assert (match.path_len, match.cached_len) == (4, 4)


def test_a_match_that_is_no_longer_followed_is_not_reported() -> None:
    cache = PrefixCache(100)
    before, after = follow(cache, numbered(0, 10)), follow(cache, numbered(0, 10))
    cache.unfollow(before)
    serve(cache, numbered(0, 5))
    cache.unfollow(after)
    assert not cache.take_changed()
    assert not list(cache.tree.followed)


def test_pages_taken_at_once_are_those_taken_one_by_one() -> None:
    slots = []
    for at_once in (True, False):
        cache = PrefixCache(24, page_size=2)
        leases = [cache.acquire(b"") for _ in range(3)]
        for lease in leases:
            cache.extend(lease, 2)
        if at_once:
            assert cache.extend_by_page(leases).tolist() == [lease.slots[at] for lease in leases for at in (2, 3)]
        else:
            for lease in leases:
                cache.extend(lease, 4)
        cache.check()
        slots.append([lease.slots.tolist() for lease in leases])
        for lease in leases * 4:
            if cache.free_size >= 2:
                cache.extend_by_page([lease])
        with pytest.raises(OutOfSlotsError):
            cache.extend_by_page([leases[0]])
        cache.check()
    assert slots[0] == slots[1]


def test_flush_is_refused_while_a_request_holds_anything_even_nothing() -> None:
    cache = PrefixCache(8)
    lease = cache.acquire(b"")
    with pytest.raises(BusyError, match="1 running requests hold"):
        cache.flush()
    cache.release(lease)
    assert cache.flush() == 0


def test_a_disabled_cache_finds_and_keeps_nothing() -> None:
    cache, tokens = PrefixCache(8, enabled=False), numbered(0, 8)
    for _ in range(2):
        lease = cache.acquire(tokens)
        cache.extend(lease, 8)
        assert cache.publish(lease, tokens, 8) is None
        assert cache.match(tokens).cached_len == lease.cached_len == 0
        assert cache.request_size == 8
        cache.release(lease)
        cache.check()
    assert cache.free_size == 8


def test_a_lease_grows_by_single_slots_and_keeps_their_order() -> None:
    cache = PrefixCache(1_000)
    lease = cache.acquire(b"")
    for length in range(1, 1_001):
        cache.extend(lease, length)
    assert np.array_equal(lease.slots, np.arange(1, 1_001))
    assert lease.slots.dtype == np.int32
