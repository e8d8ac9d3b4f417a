"""A subtree is evicted by command a portion a step; the answer comes when it is done, and a replay does the same."""

from pathlib import Path

import pytest

from radixserve.cache import evictor
from radixserve.config import EngineConfig
from radixserve.engine.engine import Engine
from radixserve.ipc import CacheCommand, CommandResult, FlushRequest, GenerateRequest, LoadAdapter, UnloadAdapter
from radixserve.sampling_params import SamplingParams
from radixserve.simulator.recordings import Recording
from radixserve.simulator.replay import Replay
from radixserve.tokens import token_bytes
from tests.hash_runner import hash_engine
from tests.property.test_recorded_runs import recorded_engine
from tests.traffic import Traffic, check_balance


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evictor, "PORTION", 3)


def results(engine: Engine, num_steps: int) -> list[CommandResult]:
    return [output for _ in range(num_steps) for output in engine.step() if isinstance(output, CommandResult)]


@pytest.mark.parametrize("then_flush", [False, True])
def test_a_large_subtree_goes_while_requests_run(tmp_path: Path, then_flush: bool) -> None:
    engine = recorded_engine(EngineConfig(), 300, tmp_path / "run")
    traffic = Traffic(engine)
    for number in range(10):
        traffic.send([7, 7, number, number], 2)
    traffic.run()
    top = next(node for depth, node in engine.cache.walk() if depth == 0)
    traffic.send([7, 7, 3, 3, 5], 40)
    traffic.step()
    traffic.step()
    unused = sum(node.num_tokens for node in engine.cache.tree.walk_below(top) if not node.lock_ref)
    engine.receive(CacheCommand("evict", "evict", top.serial))
    assert results(engine, 1) == []
    for _ in range(20):
        check_balance(engine)
        if answers := results(engine, 1):
            break
    assert answers[0].figures["evicted_tokens"] == unused
    assert answers[0].figures["kept_tokens"] > 0
    while engine.scheduler.has_work:
        engine.step()
    engine.receive(CacheCommand("evict", "evict", top.serial))
    if then_flush:
        engine.receive(FlushRequest("flush"))
    while engine.has_work:
        engine.step()
    check_balance(engine)
    assert engine.cache.free_size == engine.cache.num_slots
    assert engine.recorder is not None
    engine.recorder.flush()
    replay = Replay(Recording(tmp_path / "run"))
    replay.run()
    assert replay.engine.cache.free_size == engine.cache.free_size
    assert replay.engine.cache.num_evicted == engine.cache.num_evicted


def test_what_an_unloaded_adapter_left_goes_while_requests_run() -> None:
    engine = hash_engine(300)
    engine.receive(LoadAdapter("l", "a", "/a"))
    for number in range(10):
        engine.receive(GenerateRequest(str(number), token_bytes([number] * 4), SamplingParams(max_tokens=2), adapter="a"))
    while engine.has_work:
        engine.step()
    num_nodes = engine.cache.num_nodes
    engine.receive(UnloadAdapter("u", "a"))
    (answer,) = results(engine, 1)
    assert "cached tokens were dropped so far" in answer.message
    assert 0 < engine.cache.num_nodes < num_nodes
    while engine.has_work:
        engine.step()
    engine.cache.check()
    assert engine.cache.free_size == engine.cache.num_slots
