"""A flush of what is unused: it goes on beside the requests, a portion a step, and a replay of its recording does the same."""

from pathlib import Path

import pytest

from radixserve.cache import evictor
from radixserve.config import EngineConfig
from radixserve.ipc import CommandResult, FlushRequest
from radixserve.simulator.recordings import Recording
from radixserve.simulator.replay import Replay
from tests.property.test_recorded_runs import recorded_engine
from tests.traffic import Traffic, check_balance


@pytest.mark.parametrize("then_all", [False, True])
def test_what_nobody_uses_goes_and_what_runs_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then_all: bool) -> None:
    monkeypatch.setattr(evictor, "PORTION", 2)
    engine = recorded_engine(EngineConfig(), 300, tmp_path / "run")
    traffic = Traffic(engine)
    for number in range(10):
        traffic.send([number] * 5 + [40], 2)
    traffic.run()
    traffic.send([30] * 20, 30)
    traffic.step()
    traffic.step()
    unused, held = engine.cache.unused_size, engine.cache.protected_size
    assert unused > 30
    assert held > 0
    engine.receive(FlushRequest("unused", unused=True))
    answers: list[CommandResult] = []
    steps = 0
    while not answers:
        answers = [output for output in engine.step() if isinstance(output, CommandResult)]
        check_balance(engine)
        steps += 1
    assert steps > 3
    assert answers[0].figures["evicted_tokens"] == unused
    assert answers[0].figures["kept_tokens"] == engine.cache.protected_size > 0
    assert engine.cache.unused_size == 0
    assert engine.scheduler.has_work
    while engine.scheduler.has_work:
        engine.step()
    if then_all:
        engine.receive(FlushRequest("all"))
    while engine.has_work:
        engine.step()
    assert (engine.cache.free_size == engine.cache.num_slots) == then_all
    assert engine.recorder is not None
    engine.recorder.flush()
    replay = Replay(Recording(tmp_path / "run"))
    replay.run()
    assert replay.engine.cache.free_size == engine.cache.free_size
