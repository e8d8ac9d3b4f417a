"""The order of admission."""

import pytest

from radixserve.cache.prefix_cache import PrefixCache
from radixserve.errors import ConfigError
from radixserve.req import Req
from radixserve.sampling_params import SamplingParams
from radixserve.scheduler.admission import find_order
from radixserve.scheduler.queue import Queue
from radixserve.tokens import token_bytes


def cache_of(*sequences: list[int]) -> PrefixCache:
    cache = PrefixCache(10_000)
    for tokens in sequences:
        lease = cache.acquire(token_bytes(tokens))
        cache.extend(lease, len(tokens))
        cache.publish(lease, token_bytes(tokens), len(tokens))
        cache.release(lease)
    return cache


def queue_of(cache: PrefixCache, order: str, *prompts: list[int], priorities: tuple[int, ...] = ()) -> Queue:
    queue, params = Queue(cache, find_order(order), max_passed_over=10), SamplingParams(max_tokens=1)
    reqs = [Req(str(i), i, token_bytes(p), len(p), params, 1, frozenset()) for i, p in enumerate(prompts)]
    for req, priority in zip(reqs, priorities, strict=False):
        req.priority = priority
    for req in reqs:
        queue.add(req)
    return queue


def names(queue: Queue) -> list[str]:
    """Empties the queue in the order in which it would be admitted."""
    queue.begin_pass([])
    names = []
    while (candidate := queue.first()) is not None:
        names.append(candidate.req.rid)
        queue.remove(candidate.req.rid)
    return names


def test_prefix_takes_the_fewest_tokens_to_compute_first() -> None:
    cache = cache_of([1, 2, 3, 4, 5, 6])
    assert names(queue_of(cache, "prefix", [9] * 4, [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 9, 9, 9])) == ["1", "2", "0"]


def test_prefix_gives_ties_to_the_longest_cached_prefix() -> None:
    cache = cache_of([1, 2, 3], [5, 6, 7, 8])
    assert names(queue_of(cache, "prefix", [9], [1, 2, 3, 0], [5, 6, 7, 8, 0], [5, 6, 7, 8, 4])) == ["2", "3", "1", "0"]


def test_tree_goes_depth_first_and_takes_the_heaviest_branch_first() -> None:
    cache = cache_of([1, 2, 3, 4], [1, 2, 5, 6], [7, 8, 9])
    queue = queue_of(
        cache,
        "tree",
        [7, 8, 9, 0],  # the light branch, one request
        [1, 2, 3, 4, 0],  # the heavy branch: two at 1-2-3-4, one at 1-2-5-6, one at their parent
        [1, 2, 0],
        [1, 2, 5, 6, 0],
        [1, 2, 3, 4, 5],
        [0, 0],  # nothing cached: after every branch
    )
    assert names(queue) == ["1", "4", "3", "2", "0", "5"]


def test_tree_survives_a_chain_deeper_than_the_recursion_limit() -> None:
    cache = PrefixCache(10_000)
    chain = list(range(3_000))
    lease = cache.acquire(b"")
    for length in range(1, len(chain) + 1):
        cache.extend(lease, length)
        cache.publish(lease, token_bytes(chain[:length]), length)
    cache.release(lease)
    assert names(queue_of(cache, "tree", [0, 1, 7], [*chain, 7], [5, 5])) == ["1", "0", "2"]


def test_fcfs_keeps_the_order_of_arrival() -> None:
    cache = cache_of([1, 2, 3, 4, 5, 6])
    assert names(queue_of(cache, "fcfs", [9] * 4, [1, 2, 3, 4, 5, 6, 7], [8])) == ["0", "1", "2"]


@pytest.mark.parametrize("order", ["prefix", "tree", "fcfs"])
def test_priority_and_starvation_come_before_any_order(order: str) -> None:
    cache = cache_of([1, 2, 3, 4, 5, 6])
    queue = queue_of(cache, order, [1, 2, 3, 4, 5, 6, 7], [9] * 4, [9] * 5, [8] * 6, priorities=(0, 1, 0, 0))
    starved = queue.candidates["3"].req
    queue.remove("3")
    starved.starved = True
    queue.add(starved)  # as after a preemption
    assert names(queue) == ["3", "1", "0", "2"]


def test_of_many_that_wait_only_those_are_matched_again_that_a_change_concerns(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = cache_of([1, 2, 3, 4])
    queue = queue_of(cache, "prefix", *([1, 2, 3, 4, token] for token in range(100)), *([token] * 8 for token in range(5, 105)))
    queue.begin_pass([])
    followed, follow = [], cache.follow
    monkeypatch.setattr(cache, "follow", lambda match: followed.append(match) or follow(match))

    def first_after(tokens: list[int]) -> str:
        lease = cache.acquire(token_bytes(tokens))
        cache.extend(lease, len(tokens))
        cache.publish(lease, token_bytes(tokens), len(tokens))
        cache.release(lease)
        queue.begin_pass([])
        candidate = queue.first()
        assert candidate is not None
        return candidate.req.rid

    assert first_after([1, 2, 9, 9]) == "0"  # splits the node in which a hundred matches end
    assert not followed
    assert first_after([1, 2, 3, 4, 200, 201]) == "0"
    assert not followed
    assert first_after([50, 50, 50, 50, 50, 50, 50, 51]) == "145"
    assert followed == [queue.candidates["145"]]
    assert queue.candidates["145"].cached_len == 7


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(ConfigError, match="'random': must be one of prefix, tree, fcfs"):
        find_order("random")
