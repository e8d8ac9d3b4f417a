"""What is told of requests and their cache to who watches."""

import pytest

from radixserve.ipc import AbortRequest, WatchRequest
from radixserve.observe import watch
from tests.hash_runner import hash_engine
from tests.traffic import Traffic


def test_news_of_a_step_look_at_none_of_those_that_go_on_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = hash_engine(2000, max_running=2)
    traffic = Traffic(engine)
    for _ in range(300):
        traffic.send([1, 2, 3], 50)
    engine.receive(WatchRequest(True))
    engine.step()
    looked: list[str] = []
    progress = watch._progress
    monkeypatch.setattr(watch, "_progress", lambda req: looked.append(req.rid) or progress(req))
    new = traffic.send([1, 2, 3], 50)
    engine.receive(AbortRequest("200"))
    engine.step()
    assert len(engine.scheduler.waiting) == 298
    assert set(looked) == {req.rid for req in engine.scheduler.running} | {new}
