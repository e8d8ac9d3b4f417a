import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixserve.cache.eviction import MIN_STALE, POLICIES, EvictionQueue, Policy, make_policy, register
from radixserve.cache.node import Node
from radixserve.cache.prefix_cache import PrefixCache
from radixserve.errors import ConfigError
from radixserve.tokens import token_bytes


def use(cache: PrefixCache, name: str, priority: int = 0) -> None:
    """One request whose two tokens are all named by `name`."""
    tokens = token_bytes([ord(name), 1])
    lease = cache.acquire(tokens, priority=priority)
    cache.extend(lease, 2)
    cache.publish(lease, tokens, 2)
    cache.release(lease)


def first_victim(policy: str, scene: list[tuple[str, int]]) -> str:
    cache = PrefixCache(100, policy=policy)
    for name, priority in scene:
        use(cache, name, priority)
    before = {chr(node.key[0]) for _, node in cache.walk()}
    cache.evict(1)
    (gone,) = before - {chr(node.key[0]) for _, node in cache.walk()}
    return gone


SCENE = [
    ("f", 1),  # in first; later used often
    *[("r", 1)] * 4,  # idle for longest; used often before
    *[("s", 1)] * 2,  # idle for longest of those reused less than twice
    *[("f", 1)] * 3,
    ("n", 1),  # never reused
    *[("p", 0)] * 4,  # of low priority
]


def test_each_policy_picks_another_victim() -> None:
    victims = {policy: first_victim(policy, SCENE) for policy in ("fifo", "lru", "slru", "lfu", "priority")}
    assert victims == {"fifo": "f", "lru": "r", "slru": "s", "lfu": "n", "priority": "p"}


def test_protection_ages() -> None:
    reused = [("r", 0)] * 3
    assert first_victim("slru", [*reused, ("n", 0), *[("a", 0)] * 4]) == "n"
    assert first_victim("slru", [*reused, *[("a", 0)] * 40, ("n", 0), *[("a", 0)] * 4]) == "r"


def test_a_node_keeps_the_highest_priority_that_used_it() -> None:
    assert first_victim("priority", [("a", 0), ("b", 1), ("a", 2), ("a", -5)]) == "b"


def test_an_unknown_policy_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'best': choose one of fifo, .*lfu, lru, priority, slru"):
        make_policy("best")


def test_a_policy_is_added_by_registering_it() -> None:
    @register("mru")
    class MRU(Policy):
        def order(self, node: Node) -> int:
            return -node.serial

    try:
        assert first_victim("mru", [("a", 0), ("b", 0)]) == "b"
    finally:
        del POLICIES["mru"]


@given(
    policy=st.sampled_from(["lru", "lfu", "fifo", "slru", "priority"]),
    uses=st.lists(st.integers(0, 3 * MIN_STALE), max_size=4 * MIN_STALE),
)
def test_many_stale_entries_are_mended_into_the_right_order(policy: str, uses: list[int]) -> None:
    rules = make_policy(policy)
    queue = EvictionQueue(rules)
    nodes = [Node(serial, None, b"1234", None, serial, 0) for serial in range(3 * MIN_STALE + 1)]
    for node in nodes:
        queue.offer(node)
    clock = len(nodes)
    for index in uses:
        nodes[index].last_access_time = clock
        nodes[index].hit_count += 1
        nodes[index].priority += index % 2
        queue.offer(nodes[index])
        clock += 1
    left = set(nodes)
    while left:

        def key(node: Node) -> tuple[object, ...]:
            class_, order = rules.class_of(node), rules.order(node)
            return rules.rank(class_, order, clock), class_, order, node.serial

        expected = min(left, key=key)
        assert queue.pop(clock) is expected
        left.remove(expected)
    assert queue.pop(clock) is None
