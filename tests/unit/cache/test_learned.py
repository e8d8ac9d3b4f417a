import numpy as np
import pytest

from radixserve.cache.learned import Learned
from radixserve.cache.prefix_cache import PrefixCache
from radixserve.tokens import token_bytes


def serve(cache: PrefixCache, tokens: list[int]) -> int:
    """One request from start to end; returns the tokens that it reused."""
    data = token_bytes(tokens)
    lease = cache.acquire(data)
    cached_len = lease.cached_len
    cache.extend(lease, len(tokens))
    cache.publish(lease, data, len(tokens))
    cache.release(lease)
    return cached_len


def chats(policy: str, num_requests: int) -> tuple[int, PrefixCache]:
    """Tokens reused of long prompts that never return, and of one chat with a turn every tenth request; the pool holds five."""
    cache, chat, hits = PrefixCache(500, policy=policy), [0] * 40, 0
    for number in range(num_requests):
        if number % 10 == 0:
            chat = chat + [1 + number] * 4 if number % 100 else [1 + number] * 40
            hits += serve(cache, chat)
        else:
            hits += serve(cache, [1 + number] * 100)
        cache.check()
    return hits, cache


def test_it_keeps_a_chat_that_lru_loses_to_a_flood() -> None:
    lru, _ = chats("lru", 1_200)
    learned, _ = chats("learned", 1_200)
    assert lru == 0
    assert learned > 60 * 40 * 0.5, "half of the chat's turns from the 512th request on"


@pytest.mark.parametrize("num_requests", [100, 512])
def test_it_is_lru_until_it_has_seen_enough(num_requests: int) -> None:
    rng = np.random.default_rng(1)
    caches = [PrefixCache(200, policy=policy) for policy in ("lru", "learned")]
    for prompt in rng.zipf(1.5, num_requests) % 50:
        assert len({serve(cache, [int(prompt)] * 10 + [0] * 9) for cache in caches}) == 1
    trees = [sorted(node.key for _, node in cache.walk()) for cache in caches]
    assert trees[0] == trees[1]


def test_the_turns_of_a_chat_count_on_though_the_cache_lost_it() -> None:
    cache = PrefixCache(60, policy="learned")
    chat: list[int] = []
    for turn in range(1, 5):
        chat += [turn] * 10
        lease = cache.acquire(token_bytes(chat))
        assert lease.cached_len == 0
        assert lease.use is not None
        assert (lease.use.turn, lease.use.count) == (turn, turn)
        cache.extend(lease, len(chat))
        cache.publish(lease, token_bytes(chat), len(chat))
        cache.release(lease)
        serve(cache, [100 + turn] * 60)


def test_one_request_in_many_parts_is_one_use() -> None:
    cache, tokens = PrefixCache(100, policy="learned"), token_bytes(list(range(50)))
    lease = cache.acquire(tokens)
    for length in range(10, 51, 10):
        cache.extend(lease, length)
        cache.publish(lease, tokens, length)
    cache.release(lease)
    assert len({id(node.use) for _, node in cache.walk()}) == 1
    cache.release(cache.acquire(tokens[: 30 * 4]))
    uses = [node.use for _, node in cache.walk() if node.use is not None]
    assert [(use.time, use.turn, use.count, use.returned) for use in uses] == [(1, 1, 2, False)] * 3 + [(0, 1, 1, True)] * 2


def test_rank_compares_worth() -> None:
    policy = Learned()
    assert policy.rank(0, 5, 511) == 5
    assert 0 < policy.rank(0, 512, 1_000) < policy.rank(0, 999, 1_000)
