from radixserve.cache.events import CacheEvent, Evicted, Flushed, Inserted, Split
from radixserve.cache.prefix_cache import PrefixCache
from radixserve.tokens import SHARED, token_bytes


def test_a_listener_can_follow_the_tree() -> None:
    events: list[CacheEvent] = []
    cache = PrefixCache(16)
    cache.listeners.append(events.append)
    for tokens in (token_bytes([1, 2, 3]), token_bytes([1, 9])):
        lease = cache.acquire(tokens)
        cache.extend(lease, len(tokens) // 4)
        cache.publish(lease, tokens, len(tokens) // 4)
        cache.release(lease)
    cache.evict(1)
    cache.flush()
    root, first, upper, second = 1, 2, 3, 4
    assert [event for event in events if isinstance(event, Inserted | Split | Evicted | Flushed)] == [
        Inserted(SHARED, first, root, token_bytes([1, 2, 3]), 0, token_bytes([1, 2, 3])),
        Split(first, upper, 1, token_bytes([1]), 1),
        Inserted(SHARED, second, upper, token_bytes([9]), 1, token_bytes([4])),
        Evicted(first, 2, 1, 1, token_bytes([2, 3]), None),
        Flushed(2),
    ]


def test_an_eviction_names_the_lease_that_needed_the_room() -> None:
    events: list[CacheEvent] = []
    cache = PrefixCache(3)
    lease = cache.acquire(first := token_bytes([1, 2, 3]))
    cache.extend(lease, 3)
    cache.publish(lease, first, 3)
    cache.release(lease)
    cache.listeners.append(events.append)
    needy = cache.acquire(token_bytes([7, 8]))
    cache.extend(needy, 2)
    assert [event.evicted_for for event in events if isinstance(event, Evicted)] == [needy.time] == [1]
