"""Messages in, messages out."""

import dataclasses

from radixserve.engine.counting_runner import CountedStep
from radixserve.ipc import AbortRequest, GenerateRequest, RequestFailed, UpdateWeightsRequest
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import token_bytes
from tests.hash_runner import hash_engine, solo
from tests.traffic import Traffic


def request(rid: str, prompt: list[int], **fields: object) -> GenerateRequest:
    return GenerateRequest(rid, token_bytes(prompt), SamplingParams(max_tokens=4, temperature=0), **fields)  # type: ignore[arg-type]


def test_messages_are_applied_at_the_start_of_a_step_in_order() -> None:
    engine = hash_engine(100)
    engine.receive(request("a", [1, 2]))
    engine.receive(AbortRequest("a"))
    engine.receive(request("a", [1, 3]))
    assert not engine.scheduler.has_work
    outputs = engine.step()
    assert [(output.rid, output.finish_reason, output.token_ids) for output in outputs] == [
        ("a", "abort", ()),
        ("a", None, (solo([1, 3], 1)[0],)),
    ]


def test_a_request_id_in_use_is_refused_and_its_owner_unharmed() -> None:
    """Case: a repeated request id crashed the detokenizer or hung the second caller."""
    engine = hash_engine(100)
    traffic = Traffic(engine)
    rid = traffic.send([1, 2, 3], 4)
    engine.receive(request(rid, [9]))
    (refused, _) = engine.step()
    assert isinstance(refused, RequestFailed)
    assert refused.kind == "invalid_request"
    assert rid in refused.message
    while engine.has_work:
        traffic.step()
    assert traffic.answers[rid] == solo([1, 2, 3], 4)[1:]
    engine.receive(request(rid, [1]))
    assert not isinstance(engine.step()[0], RequestFailed)


def test_bad_requests_are_refused_and_others_go_on() -> None:
    engine = hash_engine(100)
    traffic = Traffic(engine)
    rid = traffic.send([1, 2, 3], 6)
    traffic.step()
    for name, prompt, fields in (
        ("empty", [], {}),
        ("negative id", [-1], {}),
        ("unknown id", [50], {}),
        ("adapter", [1], {"adapter": "none"}),
        ("too long", [1] * 600, {}),
    ):
        engine.receive(request(name, prompt, **fields))
    traffic.run()
    assert all(traffic.ended[name] == "invalid_request" for name in ("empty", "negative id", "unknown id", "adapter", "too long"))
    assert traffic.answers[rid] == solo([1, 2, 3], 6)


def test_logits_that_are_not_numbers_end_their_request_alone() -> None:
    engine = hash_engine(100)
    launch = engine.runner.launch

    def broken(batch):
        step = launch(batch)
        ids = [
            -1 if req.rid == "0" and req.seq_len == 4 else token for req, token in zip(batch.sampled, step.token_ids, strict=True)
        ]
        return CountedStep(ids, step.logprobs)

    engine.runner.launch = broken  # type: ignore[method-assign]
    traffic = Traffic(engine)
    bad, good = traffic.send([1, 2, 3], 5), traffic.send([4, 5, 6], 5)
    traffic.run()
    assert traffic.ended[bad] == "internal"
    assert traffic.answers[good] == solo([4, 5, 6], 5)
    assert engine.cache.protected_size == engine.cache.request_size == 0


def test_the_same_messages_give_the_same_steps() -> None:
    """Case: two ranks that each looked at their own clock diverged."""

    def run() -> list[object]:
        engine = hash_engine(90, max_batch_tokens=24, decode_reserve=0)
        seen: list[object] = []
        for i in range(30):
            engine.receive(request(str(i), [*range(i % 3 * 10), i, i + 1]))
            seen.append(engine.step())
            seen.append([(depth, node.key, node.value.tolist()) for depth, node in engine.cache.walk()])
        return seen

    assert run() == run()


def test_stats_add_up() -> None:
    engine = hash_engine(100)
    traffic = Traffic(engine)
    for _ in range(3):
        traffic.send(list(range(20)), 4)
    traffic.run()
    stats = engine.stats()
    assert stats.prompt_tokens == 60
    assert stats.cached_tokens == 38
    assert stats.computed_tokens == 20 + 2 + 3 * 3
    assert stats.generated_tokens == 12
    assert stats.finished == {"length": 3}
    assert stats.free_slots + stats.evictable_slots == stats.num_slots == 100
    assert set(dataclasses.asdict(engine.totals)) <= set(stats.__struct_fields__)


def test_updating_weights_is_refused_while_requests_run() -> None:
    engine = hash_engine(100)
    traffic = Traffic(engine)
    traffic.send([1, 2, 3], 4)
    engine.receive(UpdateWeightsRequest("update", "other"))
    traffic.run()
    assert traffic.ended["update"] == "busy"
