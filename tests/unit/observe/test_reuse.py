"""The estimate of what other sizes would reuse, against the real cache in those sizes and against a plain count."""

import random
from collections import OrderedDict
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radixserve.cache.fingerprints import go_on, start
from radixserve.cache.prefix_cache import PrefixCache
from radixserve.cache_report import SIZES
from radixserve.observe.reuse import LARGEST, ReuseEstimator
from radixserve.tokens import SHARED, token_bytes

PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=30)


def chats(seed: int, num_requests: int, turn: int) -> Iterator[list[int]]:
    """Conversations under few system prompts, interleaved: popular ones go on more often, and some end."""
    draw = random.Random(seed)
    systems = [[draw.randrange(50_000) for _ in range(turn * draw.randint(2, 8))] for _ in range(6)]
    talks: list[list[int]] = []
    for _ in range(num_requests):
        if len(talks) < 60 or draw.random() < 0.15:
            talks.append(list(draw.choices(systems, weights=[32, 16, 8, 4, 2, 1])[0]))
        talk = talks[min(int(draw.expovariate(1 / 25)), len(talks) - 1)]
        talk += [draw.randrange(50_000) for _ in range(draw.randint(1, 2 * turn))]
        yield list(talk)
        if len(talk) > 40 * turn:
            talks.remove(talk)


def estimate(prompts: list[list[int]], num_slots: int, max_samples: int) -> ReuseEstimator:
    """Beside the real cache of `num_slots`, which serves one request after another."""
    cache, estimator = PrefixCache(num_slots), ReuseEstimator(num_slots, max_samples)
    for prompt in prompts:
        tokens, begin = token_bytes(prompt), start(SHARED)
        prefixes = go_on(begin, tokens)[0]
        estimator.admit(begin, prefixes, len(prefixes) - 1, serve(cache, tokens))
    return estimator


def serve(cache: PrefixCache, tokens: bytes) -> int:
    """Returns how many tokens were reused."""
    lease = cache.acquire(tokens[:-4])
    cache.extend(lease, len(tokens) // 4)
    cached_len = lease.cached_len
    cache.publish(lease, tokens, len(tokens) // 4)
    cache.release(lease)
    return cached_len


def real_rate(prompts: list[list[int]], num_slots: int) -> float:
    cache = PrefixCache(num_slots)
    return sum(serve(cache, token_bytes(prompt)) for prompt in prompts) / sum(map(len, prompts))


def count(prompts: list[list[int]], size: int) -> int:
    """Tokens that token-wise LRU of `size` tokens reuses. Of one sequence the start counts as used last."""
    held: OrderedDict[tuple[int, ...], None] = OrderedDict()
    reused = 0
    for prompt in prompts:
        prefixes = [tuple(prompt[:length]) for length in range(1, len(prompt) + 1)]
        reused += sum(prefix in held for prefix in prefixes[:-1])
        for prefix in reversed(prefixes):
            held[prefix] = None
            held.move_to_end(prefix)
        while len(held) > size:
            held.popitem(last=False)
    return reused


@given(prompts=PROMPTS, num_slots=st.integers(12, 40))
@settings(max_examples=150)
def test_without_sampling_distances_are_exact(prompts: list[list[int]], num_slots: int) -> None:
    estimator = estimate(prompts, num_slots, LARGEST * num_slots)
    assert estimator.stratum == 1
    for size in SIZES:
        assert estimator.reused[size] == count(prompts, int(size * num_slots))
    assert estimator.reused_ever == count(prompts, 10**9)


def test_the_histogram_counts_each_reused_token_once() -> None:
    """Used again after two others of four tokens, and at once: 12 tokens lie between, then 4."""
    estimator = estimate([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [1, 2, 3, 4], [1, 2, 3, 4]], 12, 96)
    assert estimator.sum_distances == (9 + 10 + 11) + (1 + 2 + 3)
    assert estimator.distances == [6] + [0] * 10


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_hit_rates_are_within_two_points_of_the_real_cache_in_those_sizes(seed: int) -> None:
    prompts, num_slots = list(chats(seed, 1500, 12)), 2500
    estimator = estimate(prompts, num_slots, 1024)
    assert estimator.stratum == 20
    for size in SIZES:
        assert estimator.hit_rate(size) == pytest.approx(real_rate(prompts, int(size * num_slots)), abs=0.02)
    assert estimator.hit_rate(None) == pytest.approx(real_rate(prompts, 10**7), abs=0.02)


def test_its_memory_is_bounded() -> None:
    estimator = ReuseEstimator(100, max_samples=64)
    draw = random.Random(0)
    for _ in range(3000):
        begin = start(SHARED)
        prefixes = go_on(begin, token_bytes([draw.randrange(1000) for _ in range(40)]))[0]
        estimator.admit(begin, prefixes, len(prefixes) - 1, 0)
    assert len(estimator._last) <= 3 * 64
    assert len(estimator._used_at) < 10_000
