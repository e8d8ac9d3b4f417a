"""Requests that sleep while another computes what they share."""

import gc

from radixserve.ipc import AbortRequest
from radixserve.scheduler.admission import Candidate
from tests.hash_runner import hash_engine, solo
from tests.traffic import Traffic


def test_who_sleeps_wakes_when_a_third_request_publishes_more_than_the_one_slept_on() -> None:
    """An answer ends, and is published whole, while a prompt that begins with it is computed a few tokens a step."""
    engine = hash_engine(400, max_batch_tokens=8)
    traffic = Traffic(engine)
    start = [1, 2, 3, 4]
    answer = solo(start, 30)
    first = traffic.send(start, 30)
    while len(traffic.answers.get(first, ())) < 27:
        traffic.step()
    slow = traffic.send([*start, *answer, *[5] * 60], 1)
    traffic.step()
    asleep = traffic.send([*start, *answer[:29], 6, 7], 1)
    while first not in traffic.ended:
        traffic.step()
        assert asleep not in traffic.ended
    slow_req = next(req for req in engine.scheduler.running if req.rid == slow)
    assert slow_req.lease is not None
    assert slow_req.lease.tree_len < 33, "what is cached ends beyond what the slow one has published"
    traffic.step()
    assert traffic.ended[asleep] == "length"
    assert traffic.cached[asleep] == 33
    assert slow_req.lease.tree_len < 33 + 8
    traffic.run()


def test_nothing_is_left_of_who_is_aborted_asleep() -> None:
    engine = hash_engine(400, max_batch_tokens=8)
    traffic = Traffic(engine)
    traffic.send([1] * 200, 1)
    traffic.step()
    rids = [traffic.send([1] * 150 + [2 + number], 1) for number in range(20)]
    traffic.step()
    reqs = [candidate.req for candidate in engine.scheduler.waiting.values()]
    assert len(reqs) == 20
    for rid in rids:
        engine.receive(AbortRequest(rid))
    traffic.step()
    assert not engine.scheduler.waiting
    assert len(engine.scheduler.running) == 1, "the one they slept on is still computed"
    traffic.step()
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is Candidate and each.req in reqs]
