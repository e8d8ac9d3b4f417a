"""Whatever is cached, chunked, batched, preempted, aborted or flushed: every request is answered as if it ran alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radixserve.ipc import AbortRequest
from tests.hash_runner import VOCAB, hash_engine, solo
from tests.traffic import Traffic

prompts = st.builds(
    lambda shared, own: list(range(shared)) + own,
    st.sampled_from([0, 1, 5, 16, 17, 30, 40]),
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
)
actions = st.one_of(
    st.tuples(st.just("send"), prompts, st.integers(1, 12), st.sampled_from([None, None, "a"]), st.integers(0, 1)),
    st.tuples(st.just("step"), st.integers(1, 6)),
    st.tuples(st.just("abort"), st.integers(0, 30)),
    st.tuples(st.just("flush")),
)


@settings(max_examples=150)
@given(
    actions=st.lists(actions, min_size=3, max_size=40),
    page_size=st.sampled_from([1, 1, 3, 4, 16]),
    pool_pages=st.integers(0, 60),
    budget=st.sampled_from([1, 5, 16, 64]),
    max_running=st.sampled_from([1, 3, 8]),
    order=st.sampled_from(["prefix", "tree", "fcfs"]),
    policy=st.sampled_from(["lru", "lfu", "fifo", "slru", "priority", "learned"]),
    decode_reserve=st.sampled_from([0, 4]),
    prefix_cache=st.sampled_from([True, True, True, False]),
)
def test_answers_do_not_depend_on_the_schedule(
    actions: list[tuple], page_size: int, pool_pages: int, budget: int, max_running: int, order: str, policy: str,
    decode_reserve: int, prefix_cache: bool,
) -> None:  # fmt: skip
    num_slots = max(page_size * pool_pages, -(-64 // page_size) * page_size)  # the largest request of `prompts` fits
    engine = hash_engine(
        num_slots, page_size, eviction_policy=policy, order=order, max_batch_tokens=budget, max_running=max_running,
        decode_reserve=decode_reserve, prefix_cache=prefix_cache,
    )  # fmt: skip
    engine.cache.evictor.least_tail = 4
    traffic = Traffic(engine)
    traffic.play(actions)
    for rid, (prompt, max_tokens) in traffic.asked.items():
        answer = traffic.answers.get(rid, [])
        assert traffic.ended[rid] in {"length", "abort"}
        expected = solo(prompt, max_tokens)
        assert answer == (expected if traffic.ended[rid] == "length" else expected[: len(answer)])
        assert traffic.cached.get(rid, 0) < len(prompt)
    cache = engine.cache
    assert cache.protected_size == cache.request_size == 0
    cache.flush()
    while not cache.is_tidy:
        cache.tidy()
    assert cache.free_size == cache.num_slots
    assert engine.scheduler.slot_table.num_free_rows == max_running
    assert not engine._reqs
    assert not engine._answers


@pytest.mark.parametrize("page_size", [1, 4])
def test_preempted_requests_resume_with_the_same_answer(page_size: int) -> None:
    engine = hash_engine(160, page_size, max_batch_tokens=64, max_running=32, decode_reserve=0)
    traffic = Traffic(engine)
    shared = list(range(40)) + list(range(24))
    for i in range(32):
        traffic.send([*shared, i], 30)
    traffic.run()
    assert engine.stats().num_preemptions > 0
    for rid, (prompt, max_tokens) in traffic.asked.items():
        assert traffic.answers[rid] == solo(prompt, max_tokens)


def test_requests_with_the_same_prefix_wait_for_the_first_to_compute_it() -> None:
    engine = hash_engine(1000, max_batch_tokens=32)
    traffic = Traffic(engine)
    shared = [i % VOCAB for i in range(100)]
    for i in range(6):
        traffic.send([*shared, i, i], 2)
    traffic.run()
    stats = engine.stats()
    # The prefix once, two tokens of each question, and the first of two answer tokens: nothing twice.
    assert stats.computed_tokens == 100 + 6 * 2 + 6
    assert all(traffic.cached[str(i)] == 100 for i in range(1, 6))


@pytest.mark.parametrize("ending", ["abort", "finish"])
def test_waiting_for_a_prefix_ends_when_its_computation_does(ending: str) -> None:
    engine = hash_engine(1000, max_batch_tokens=16)
    traffic = Traffic(engine)
    shared = [i % VOCAB for i in range(90)]
    first = traffic.send([*shared, 1], 3)
    second = traffic.send([*shared, 2], 3)
    traffic.step()
    assert [req.rid for req in engine.scheduler.running] == [first]
    if ending == "abort":
        engine.receive(AbortRequest(first))
    traffic.run()
    assert traffic.answers[second] == solo([*shared, 2], 3)
    assert traffic.cached[second] == (16 if ending == "abort" else 90)


def test_an_identical_prompt_is_computed_once() -> None:
    engine = hash_engine(1000, max_batch_tokens=64)
    traffic = Traffic(engine)
    for _ in range(8):
        traffic.send([1, 2, 3, 4, 5, 6, 7], 1)
    traffic.run()
    assert engine.stats().computed_tokens == 7 + 7 * 1
