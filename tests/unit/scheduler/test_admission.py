"""The order of admission."""

import pytest

from radixserve.cache.prefix_cache import PrefixCache
from radixserve.errors import ConfigError
from radixserve.req import Req, token_bytes
from radixserve.sampling_params import SamplingParams
from radixserve.scheduler.admission import Candidate, find_order, rank


def cache_of(*sequences: list[int]) -> PrefixCache:
    cache = PrefixCache(10_000)
    for tokens in sequences:
        lease = cache.acquire(token_bytes(tokens))
        cache.extend(lease, len(tokens))
        cache.publish(lease, token_bytes(tokens), len(tokens))
        cache.release(lease)
    return cache


def waiting(cache: PrefixCache, *prompts: list[int], priorities: tuple[int, ...] = ()) -> list[Candidate]:
    params = SamplingParams(max_tokens=1)
    reqs = [Req(str(i), i, token_bytes(p), len(p), params, 1, frozenset()) for i, p in enumerate(prompts)]
    for req, priority in zip(reqs, priorities, strict=False):
        req.priority = priority
    return [Candidate(req, cache) for req in reqs]


def names(candidates: list[Candidate], order: str, max_passed_over: int = 10) -> list[str]:
    return [c.req.rid for c in rank(candidates, find_order(order), max_passed_over)]


def test_prefix_takes_the_fewest_tokens_to_compute_first() -> None:
    cache = cache_of([1, 2, 3, 4, 5, 6])
    candidates = waiting(cache, [9] * 4, [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 9, 9, 9])
    assert names(candidates, "prefix") == ["1", "2", "0"]


def test_prefix_gives_ties_to_the_prefix_that_most_requests_share() -> None:
    cache = cache_of([1, 2, 3], [5, 6, 7], [8, 9, 10])
    candidates = waiting(cache, [1, 2, 3, 0], [5, 6, 7, 0], [5, 6, 7, 4], [8, 9, 10, 0])
    assert names(candidates, "prefix") == ["1", "2", "0", "3"]
    running = [cache.acquire(token_bytes([8, 9, 10])) for _ in range(3)]
    assert names(candidates, "prefix") == ["3", "1", "2", "0"]
    for lease in running:
        cache.release(lease)


def test_tree_goes_depth_first_and_takes_the_heaviest_branch_first() -> None:
    cache = cache_of([1, 2, 3, 4], [1, 2, 5, 6], [7, 8, 9])
    candidates = waiting(
        cache,
        [7, 8, 9, 0],  # the light branch, one request
        [1, 2, 3, 4, 0],  # the heavy branch: two at 1-2-3-4, one at 1-2-5-6, one at their parent
        [1, 2, 0],
        [1, 2, 5, 6, 0],
        [1, 2, 3, 4, 5],
        [0, 0],  # nothing cached: after every branch
    )
    assert names(candidates, "tree") == ["1", "4", "3", "2", "0", "5"]


def test_tree_survives_a_chain_deeper_than_the_recursion_limit() -> None:
    cache = PrefixCache(10_000)
    chain = list(range(3_000))
    lease = cache.acquire(b"")
    for length in range(1, len(chain) + 1):
        cache.extend(lease, length)
        cache.publish(lease, token_bytes(chain[:length]), length)
    cache.release(lease)
    candidates = waiting(cache, [0, 1, 7], [*chain, 7], [5, 5])
    assert names(candidates, "tree") == ["1", "0", "2"]


def test_fcfs_keeps_the_order_of_arrival() -> None:
    cache = cache_of([1, 2, 3, 4, 5, 6])
    assert names(waiting(cache, [9] * 4, [1, 2, 3, 4, 5, 6, 7], [8]), "fcfs") == ["0", "1", "2"]


@pytest.mark.parametrize("order", ["prefix", "tree", "fcfs"])
def test_priority_and_starvation_come_before_any_order(order: str) -> None:
    cache = cache_of([1, 2, 3, 4, 5, 6])
    candidates = waiting(cache, [1, 2, 3, 4, 5, 6, 7], [9] * 4, [9] * 5, [8] * 6, priorities=(0, 1, 0, 0))
    candidates[3].req.passed_over = 10
    assert names(candidates, order) == ["3", "1", "0", "2"]


def test_a_candidate_is_matched_again_only_when_its_part_of_the_tree_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = cache_of([1, 2, 3, 4], [5, 6, 7, 8])
    here, elsewhere = waiting(cache, [1, 2, 3, 4, 9, 9], [5, 6, 7, 8, 9, 9])
    lease = cache.acquire(token_bytes([1, 2, 3, 4, 9]))
    cache.extend(lease, 5)
    cache.publish(lease, token_bytes([1, 2, 3, 4, 9]), 5)
    matched = []
    match = cache.match
    monkeypatch.setattr(cache, "match", lambda *args: matched.append(args[0]) or match(*args))
    for candidate in (here, elsewhere):
        candidate.refresh(cache)
    assert matched == [here.key]
    assert here.match.cached_len == 5


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(ConfigError, match="'random': must be one of prefix, tree, fcfs"):
        find_order("random")
