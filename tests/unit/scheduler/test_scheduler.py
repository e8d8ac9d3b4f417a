"""What runs, what waits, and for how long."""

import pytest

from radixserve.ipc import AbortRequest, FlushRequest, GenerateRequest, RequestFailed
from radixserve.sampling_params import SamplingParams
from radixserve.scheduler.events import Admitting, SchedulerEvent
from radixserve.tokens import token_bytes
from tests.hash_runner import hash_engine, solo
from tests.traffic import Traffic


def test_a_step_mixes_decodes_and_chunks_within_the_budget() -> None:
    engine = hash_engine(1000, max_batch_tokens=10)
    traffic = Traffic(engine)
    traffic.send([1, 2, 3], 50)
    traffic.step()
    traffic.send([4] * 30, 2)
    batches = []
    launch = engine.runner.launch
    engine.runner.launch = lambda batch: batches.append(batch.extend_lens) or launch(batch)
    for _ in range(4):
        traffic.step()
    assert batches == [[1, 9], [1, 9], [1, 9], [1, 3]]


def passed_by(traffic: Traffic, rid: str) -> int:
    """How many requests that came later than `rid` were admitted before it."""
    return sum(int(other) > int(rid) for other in traffic.ended) + sum(
        int(req.rid) > int(rid) for req in traffic.engine.scheduler.running
    )


@pytest.mark.parametrize("max_running", [1, 4, 24])
@pytest.mark.parametrize("order", ["prefix", "tree"])
def test_a_cold_request_is_passed_over_no_more_often_than_the_bound_says(order: str, max_running: int) -> None:
    """Case: longest-prefix order starved cold requests. Case: a bound of steps let many pass in each."""
    engine = hash_engine(640, max_batch_tokens=256, max_running=max_running, max_passed_over=20, order=order)
    traffic = Traffic(engine)
    hot = [1] * 40
    traffic.send([*hot, 2], 1)
    traffic.run()
    for i in range(24):
        traffic.send([*hot, i], 3)
    cold = traffic.send([3] * 224, 1)
    for i in range(500):
        for j in range(24):
            traffic.send([*hot, j, i % 50, i // 50], 3)
        passed = passed_by(traffic, cold)
        traffic.step()
        if cold not in engine.scheduler.waiting:
            break
    assert cold not in engine.scheduler.waiting
    assert passed <= 20
    assert passed_by(traffic, cold) >= 20  # it was passed over, and then it was not


def test_each_of_many_is_passed_over_no_more_often_than_the_bound_says() -> None:
    """Also those that were preempted, or waited for a prefix, or came when others had been passed over already."""
    engine = hash_engine(400, max_batch_tokens=64, max_running=6, max_passed_over=5)
    traffic = Traffic(engine)
    hot = [1] * 40
    started: list[int] = []

    def note(event: SchedulerEvent) -> None:
        if isinstance(event, Admitting) and event.req.cached_len is None:
            started.append(event.req.arrival)

    engine.scheduler.listeners.append(note)
    traffic.send([*hot, 2], 1)
    traffic.run()
    for i in range(60):
        traffic.send([*hot, i % 50], 2)
        traffic.send([i % 7 + 2] * (i % 30 + 1), 2)
        if i % 3 == 0:
            traffic.step()
    traffic.run()
    assert sorted(started) == list(range(121))
    passed = [sum(other > arrival for other in started[:at]) for at, arrival in enumerate(started)]
    assert max(passed) == 5


def test_who_waited_for_an_aborted_prefix_can_be_passed_over_like_all_others() -> None:
    engine = hash_engine(2000, max_batch_tokens=64, max_running=2, max_passed_over=20)
    traffic = Traffic(engine)
    hot = [1] * 40
    traffic.send([*hot, 2], 1)
    traffic.run()
    first = traffic.send([3] * 400, 1)
    traffic.step()
    waits = traffic.send([*[3] * 100, *[4] * 100], 1)
    traffic.step()
    assert list(engine.scheduler.waiting) == [waits]
    engine.receive(AbortRequest(first))
    for i in range(500):
        for j in range(4):
            traffic.send([*hot, j, i % 50, i // 50], 1)
        passed = passed_by(traffic, waits)
        traffic.step()
        if waits in traffic.ended:
            break
    assert traffic.ended[waits] == "length"
    assert 15 <= passed <= 30


def test_who_waits_for_a_prefix_goes_on_waiting_however_many_pass() -> None:
    engine = hash_engine(2000, max_batch_tokens=32, max_running=8, max_passed_over=3)
    traffic = Traffic(engine)
    traffic.send([1] * 40, 1)
    traffic.run()
    traffic.send([3] * 400, 1)
    traffic.step()
    waits = traffic.send([*[3] * 399, 4], 1)
    for i in range(20):
        traffic.send([*[1] * 39, i], 1)
    while waits not in traffic.ended:
        assert traffic.engine.has_work
        traffic.step()
    assert traffic.cached[waits] == 399


@pytest.mark.parametrize(("max_running", "max_batch_tokens"), [(8, 3), (64, 1), (5, 5)])
def test_no_more_requests_run_than_a_step_has_tokens(max_running: int, max_batch_tokens: int) -> None:
    """Case: the latest of those that ran got no token until others had ended."""
    engine = hash_engine(400, max_batch_tokens=max_batch_tokens, max_running=max_running)
    traffic = Traffic(engine)
    for i in range(10):
        traffic.send([i], 12)
    while engine.has_work:
        before = {req.rid: len(req.output_ids) for req in engine.scheduler.running if req.output_ids}
        traffic.step()
        assert len(engine.scheduler.running) <= max_batch_tokens
        assert all(len(traffic.answers[rid]) == number + 1 for rid, number in before.items())
    assert all(traffic.answers[rid] == solo(prompt, n) for rid, (prompt, n) in traffic.asked.items())


def test_without_a_cache_nobody_waits_for_a_prefix() -> None:
    engine = hash_engine(2000, max_batch_tokens=64, prefix_cache=False)
    traffic = Traffic(engine)
    for _ in range(3):
        traffic.send([1] * 40, 1)
    traffic.run()
    assert engine.stats().num_steps == 2  # 120 tokens, in steps of 64


@pytest.mark.parametrize("prompt_len", [40, 47, 48])
def test_nobody_waits_for_a_part_of_a_page_that_will_not_be_published(prompt_len: int) -> None:
    engine = hash_engine(2000, 16, max_batch_tokens=256)
    traffic = Traffic(engine)
    for _ in range(8):
        traffic.send([1] * prompt_len, 1)
    traffic.step()
    assert engine.stats().computed_tokens == prompt_len
    traffic.step()
    assert len(traffic.ended) == 8
    alone = 1 if prompt_len == 48 else prompt_len - 32
    assert engine.stats().computed_tokens == prompt_len + 7 * alone


def test_a_higher_priority_is_admitted_first_and_preempted_last() -> None:
    engine = hash_engine(60, max_batch_tokens=64, max_running=4, decode_reserve=0)
    traffic = Traffic(engine)
    ended: list[str] = []
    low = [traffic.send([i] * 10, 20) for i in range(3)]
    high = traffic.send([9] * 10, 20, priority=5)
    while engine.has_work:
        traffic.step()
        ended += [rid for rid in traffic.ended if rid not in ended]
    assert ended[0] == high
    assert engine.scheduler.num_preemptions > 0
    assert all(traffic.answers[rid] == solo([i] * 10, 20) for i, rid in enumerate(low))


def test_admission_keeps_room_for_the_answers_of_those_that_run() -> None:
    engine = hash_engine(60, max_batch_tokens=64, decode_reserve=256)
    traffic = Traffic(engine)
    for i in range(3):
        traffic.send([i] * 10, 30)
    while engine.has_work:
        traffic.step()
        assert len(engine.scheduler.running) <= 1
    assert engine.scheduler.num_preemptions == 0


def test_a_request_that_can_never_fit_is_refused_and_the_next_one_served() -> None:
    """Case: a prompt above the pool but under the context limit waited for ever and held up the queue."""
    engine = hash_engine(256, max_context_len=1024)
    engine.receive(GenerateRequest("big", token_bytes([1] * 400), SamplingParams(max_tokens=1)))
    engine.receive(GenerateRequest("small", token_bytes([1] * 10), SamplingParams(max_tokens=1)))
    first, second = engine.step()
    assert isinstance(first, RequestFailed)
    assert "400" in first.message
    assert "256" in first.message
    assert second.rid == "small"


def test_a_lone_request_may_fill_the_pool_to_its_last_slot() -> None:
    """Case: a lone decode filled the pool and nobody was left to preempt."""
    engine = hash_engine(128)
    traffic = Traffic(engine)
    prompt = [i % 50 for i in range(100)]
    fits = traffic.send(prompt, 29)
    refused = traffic.send(prompt, 30)
    after = traffic.send([1, 2], 5)
    traffic.run()
    assert traffic.answers[fits] == solo(prompt, 29)
    assert traffic.ended[refused] == "invalid_request"
    assert traffic.answers[after] == solo([1, 2], 5)


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_the_pool_may_be_full_of_cached_prompts(page_size: int) -> None:
    """Case: evictable cache counted as used memory, so that prefill stopped."""
    engine = hash_engine(256, page_size, max_batch_tokens=64)
    traffic = Traffic(engine)
    for i in range(20):
        traffic.send([i] * 40, 3)
    traffic.run()
    assert engine.cache.num_evicted > 0
    for i in range(8):
        traffic.send([i, *[i + 20] * 39], 12)
    most_running = 0
    while engine.has_work:
        traffic.step()
        most_running = max(most_running, len(engine.scheduler.running))
    assert most_running >= 4
    assert all(traffic.answers[rid] == solo(prompt, n) for rid, (prompt, n) in traffic.asked.items())


@pytest.mark.parametrize("page_size", [1, 4])
def test_a_page_to_copy_from_never_keeps_a_lone_request_waiting(page_size: int) -> None:
    engine = hash_engine(32, page_size, max_batch_tokens=64)
    traffic = Traffic(engine)
    traffic.send(list(range(20)), 1)
    traffic.run()
    second = traffic.send([*range(18), 40, *range(9)], 5)
    traffic.run()
    assert traffic.answers[second] == solo([*range(18), 40, *range(9)], 5)


def test_a_flush_is_refused_while_requests_wait_or_run() -> None:
    """Case: a flush during a request replaced the root, and releasing walked past it."""
    engine = hash_engine(200, max_batch_tokens=8)
    traffic = Traffic(engine)
    rid = traffic.send([1] * 30, 4)
    engine.receive(FlushRequest("queued"))
    traffic.step()
    engine.receive(FlushRequest("between chunks"))
    engine.receive(FlushRequest("twice"))
    traffic.run()
    assert [traffic.ended[name] for name in ("queued", "between chunks", "twice")] == ["busy"] * 3
    assert traffic.answers[rid] == solo([1] * 30, 4)
    engine.receive(FlushRequest("idle"))
    traffic.run()
    assert engine.cache.free_size == 200
    again = traffic.send([1] * 30, 4)
    traffic.run()
    assert traffic.cached[again] == 0


def test_an_abort_before_the_first_forward_publishes_nothing() -> None:
    """Case: slots that were allocated and never computed became 'cached'."""
    engine = hash_engine(200)
    traffic = Traffic(engine)
    rid = traffic.send([1] * 30, 4)
    engine.receive(AbortRequest(rid))
    traffic.run()
    assert traffic.ended[rid] == "abort"
    again = traffic.send([1] * 30, 4)
    traffic.run()
    assert traffic.cached[again] == 0
    assert traffic.answers[again] == solo([1] * 30, 4)


def test_an_abort_frees_everything_within_one_step() -> None:
    engine = hash_engine(200, max_batch_tokens=8, max_running=2)
    traffic = Traffic(engine)
    rids = [traffic.send([i] * 20, 50) for i in range(5)]
    for _ in range(6):
        traffic.step()
    for rid in rids:
        engine.receive(AbortRequest(rid))
    traffic.step()
    assert not engine.scheduler.has_work
    assert engine.cache.protected_size == engine.cache.request_size == 0


def test_a_pass_over_a_long_queue_matches_only_what_changed() -> None:
    """Case: every pass matched the whole queue again."""
    engine = hash_engine(100_000, max_batch_tokens=64, max_running=1, max_context_len=2000)
    traffic = Traffic(engine)
    traffic.send([i % 50 for i in range(1000)], 300)
    traffic.step()
    for i in range(2000):
        engine.receive(GenerateRequest(f"w{i}", token_bytes([i % 40 + 2] * 1000), SamplingParams(max_tokens=1)))
    engine.step()
    matches = []
    match, follow = engine.cache.match, engine.cache.follow
    engine.cache.match = lambda *args: matches.append(args) or match(*args)
    engine.cache.follow = lambda *args: matches.append(args) or follow(*args)
    for _ in range(30):
        engine.step()
    assert len(engine.scheduler.waiting) == 2000
    assert len(matches) <= 2 * 30


def test_a_cached_request_does_not_wait_for_a_long_prompt() -> None:
    engine = hash_engine(2000, max_batch_tokens=32)
    traffic = Traffic(engine)
    traffic.send([1] * 40, 1)
    traffic.run()
    long = traffic.send([2] * 400, 1)
    traffic.step()
    hot = traffic.send([*[1] * 40, 3], 1)
    traffic.step()
    assert hot in traffic.ended
    assert long not in traffic.ended
    traffic.run()
    assert engine.stats().num_steps <= 16
