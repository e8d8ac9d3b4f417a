"""Batches of decodes are brought up to date in place, as long as the same requests decode. What is in them HashRunner checks."""

import pytest

from radixserve.batch import ForwardBatch
from radixserve.ipc import AbortRequest, CacheCommand
from tests.hash_runner import hash_engine, solo
from tests.traffic import Traffic


def test_the_batch_of_the_same_decodes_is_the_same_until_one_comes_or_goes() -> None:
    engine = hash_engine(1000)
    batches: list[ForwardBatch] = []
    launch = engine.runner.launch
    engine.runner.launch = lambda batch: batches.append(batch) or launch(batch)
    traffic = Traffic(engine)
    first, second = traffic.send([1, 2, 3], 30), traffic.send([4, 5], 12)
    for _ in range(5):
        traffic.step()
    assert batches[0] is not batches[1], "a step that computes prompts"
    assert batches[1] is batches[2] is batches[3] is batches[4]
    third = traffic.send([7, 8, 9], 30)
    for _ in range(3):
        traffic.step()
    assert batches[4] is not batches[5] is not batches[6]
    assert batches[6] is batches[7]
    engine.receive(AbortRequest(third))
    traffic.run()
    assert len({id(batch) for batch in batches[8:]}) == 2, "one of two requests, one of the first alone"
    assert traffic.answers[first] == solo([1, 2, 3], 30)
    assert traffic.answers[second] == solo([4, 5], 12)


def test_a_prompt_computed_token_by_token_is_not_taken_for_a_decode() -> None:
    engine = hash_engine(1000, max_batch_tokens=1)
    traffic = Traffic(engine)
    rid = traffic.send([1, 2, 3, 4], 5)
    traffic.run()
    assert traffic.answers[rid] == solo([1, 2, 3, 4], 5)


@pytest.mark.parametrize("lead", [6, 14, 22])
def test_a_decode_that_resumes_with_a_page_to_copy_is_laid_out_anew(lead: int) -> None:
    """Preempted and admitted again in one step, by what it finds in the tree: a pinned answer, like its own and longer."""
    engine = hash_engine(96, page_size=4, max_batch_tokens=64, decode_reserve=0)
    traffic = Traffic(engine)
    traffic.send([9, 8, 7], 50)
    first = traffic.send([1, 2, 3, 4], 30)
    for _ in range(lead):
        traffic.step()
    second = traffic.send([1, 2, 3, 4], 34)
    while first not in traffic.ended:
        traffic.step()
    [leaf] = [node for _, node in engine.cache.walk() if not node.children and not node.lock_ref]
    engine.receive(CacheCommand("pin", "pin", leaf.serial))
    traffic.run()
    assert engine.scheduler.num_preemptions > 0
    assert traffic.answers[second] == solo([1, 2, 3, 4], 34)
