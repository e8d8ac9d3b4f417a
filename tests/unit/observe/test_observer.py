"""What an observer counts is what happened, and what it estimates is what engines with other pools do on the same traffic."""

import random

import pytest

from radixserve.cache_report import CacheReport
from radixserve.ipc import Output
from tests.hash_runner import hash_engine
from tests.traffic import Traffic


def talks(seed: int, num_requests: int) -> list[list[int]]:
    """Prompts that go on where earlier ones ended, recent ones more often."""
    draw, prompts = random.Random(seed), [[1, 2, 3, 4]]
    for _ in range(num_requests):
        before = prompts[-min(1 + int(draw.expovariate(1 / 12)), len(prompts))]
        start = before if len(before) < 120 else before[:4]
        prompts.append([*start, *(draw.randrange(50) for _ in range(draw.randint(1, 12)))])
    return prompts


def serve(num_slots: int, prompts: list[list[int]], *, together: int = 1) -> Traffic:
    traffic = Traffic(hash_engine(num_slots, observed=True, max_batch_tokens=256))
    for first in range(0, len(prompts), together):
        for prompt in prompts[first : first + together]:
            traffic.send(prompt, 2)
        while traffic.engine.has_work:
            for output in traffic.engine.step():
                if isinstance(output, Output):
                    traffic.cached[output.rid] = output.cached_tokens
    return traffic


def hit_rate(traffic: Traffic) -> float:
    return sum(traffic.cached.values()) / sum(len(prompt) for prompt, _ in traffic.asked.values())


def test_counts_are_what_happened() -> None:
    traffic = serve(160, talks(1, 80), together=3)
    stats = traffic.engine.stats()
    report = stats.cache
    assert report.cached_by_source == {"tree": sum(traffic.cached.values()), "copy": 0}
    assert report.num_admissions == len(traffic.asked) + stats.num_preemptions
    assert report.num_evictions == sum(report.ages) > 0
    assert report.policy == "lru"


def test_a_preempted_request_is_counted_and_explained_once() -> None:
    engine = hash_engine(100, observed=True, max_batch_tokens=64, decode_reserve=0)
    traffic = Traffic(engine)
    for i in range(8):
        traffic.send([*range(20), i], 20)
    traffic.run()
    stats = engine.stats()
    assert stats.num_preemptions > 0
    assert stats.cache.num_admissions == 8 + stats.num_preemptions
    assert stats.cache.cached_by_source["tree"] == sum(traffic.cached.values())
    assert engine.observer is not None
    assert [len(engine.observer.explanations(rid)) for rid in traffic.asked] == [1] * 8


def test_an_answer_counts_as_used_for_the_next_turn() -> None:
    traffic = Traffic(hash_engine(100, observed=True))
    traffic.send([1, 2, 3], 10)
    traffic.run()
    traffic.send([1, 2, 3, *traffic.answers["0"], 4], 1)
    traffic.run()
    rates = traffic.engine.stats().cache.hit_rates
    assert rates["infinite"] == rates["8x"] == 12 / 17
    assert traffic.engine.stats().cache.lru_reused["infinite"] == 12


def test_parts_of_pages_and_ages_are_counted_apart() -> None:
    traffic = Traffic(hash_engine(16, page_size=4, observed=True))
    for prompt in ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 6, 9], list(range(20, 35))):
        traffic.send(prompt, 1)
        traffic.run()
    report = traffic.engine.stats().cache
    assert report.cached_by_source == {"tree": 4 + 4, "copy": 2}
    assert sum(report.ages) == report.num_evictions > 0
    assert report.sum_ages == sum(age * report.ages[bucket] for bucket, age in enumerate((1, 2)))


def test_an_engine_without_an_observer_counts_nothing() -> None:
    assert hash_engine(16).stats().cache == CacheReport()


@pytest.mark.parametrize("together", [1, 4])
def test_hit_rates_of_other_pools_are_what_engines_with_such_pools_get(together: int) -> None:
    prompts = talks(2, 200)
    traffic = serve(300, prompts, together=together)
    told = traffic.engine.stats().cache.hit_rates
    assert told["1x"] == pytest.approx(hit_rate(traffic))
    assert told["2x"] == pytest.approx(hit_rate(serve(600, prompts, together=together)), abs=0.02)
    assert told["infinite"] == pytest.approx(hit_rate(serve(5_000, prompts, together=together)), abs=0.02)


def test_an_observer_changes_no_decision() -> None:
    told = []
    for observed in (False, True):
        traffic = Traffic(hash_engine(120, page_size=2, observed=observed))
        for number, prompt in enumerate(talks(3, 60)):
            traffic.send(prompt[:80], 3, salt="a" if number % 5 == 0 else None)
            traffic.step()
        traffic.run()
        stats = traffic.engine.stats()
        told.append((traffic.answers, traffic.cached, stats.evicted_tokens, stats.num_steps, stats.num_preemptions))
    assert told[0] == told[1]
