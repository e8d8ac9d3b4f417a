"""Other weights are found and read while steps go on, and swapped between two of them."""

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from radixserve.engine.engine import Engine
from radixserve.engine.recording import Recorder
from radixserve.errors import ModelError
from radixserve.ipc import CommandResult, LoadAdapter, RequestFailed, UpdateWeightsRequest
from radixserve.simulator.recordings import Recording
from radixserve.simulator.replay import Replay
from tests.hash_runner import hash_engine
from tests.traffic import Traffic


class SlowHub:
    """A hub that answers when it is told to. `put_paths`: whose weights were swapped in."""

    reads_files = True

    def __init__(self, fault: Exception | None = None) -> None:
        self.may_answer = threading.Event()
        self.fault = fault
        self.put_paths: list[str] = []

    def read(self, model: str) -> tuple[str, Any]:
        assert self.may_answer.wait(timeout=20)
        if self.fault is not None:
            raise self.fault
        return f"/hub/{model}", f"weights of {model}"

    def put(self, path: str, weights: Any) -> None:
        assert weights == f"weights of {path.removeprefix('/hub/')}"
        self.put_paths.append(path)


def engine_of(hub: SlowHub) -> tuple[Engine, threading.Event]:
    """And what is set whenever the engine is to look again."""
    engine, woken = hash_engine(200, weights=hub), threading.Event()
    engine.notify(woken.set)
    return engine, woken


def answer_of(engine: Engine) -> CommandResult | RequestFailed:
    (answer,) = engine.step()
    assert isinstance(answer, CommandResult | RequestFailed)
    return answer


def finish(engine: Engine, hub: SlowHub, woken: threading.Event) -> CommandResult | RequestFailed:
    """Lets the hub answer, and applies what came of it."""
    hub.may_answer.set()
    assert woken.wait(timeout=20)
    woken.clear()
    assert engine.has_work
    return answer_of(engine)


def test_steps_go_on_while_a_hub_is_slow_and_the_swap_is_between_two_of_them() -> None:
    hub = SlowHub()
    engine, woken = engine_of(hub)
    traffic = Traffic(engine)
    first = traffic.send([1, 2, 3, 4], 3)
    traffic.run()
    engine.receive(UpdateWeightsRequest("update", "owner/name"))
    assert engine.step() == []
    assert not engine.has_work
    again = traffic.send([1, 2, 3, 4], 3)
    traffic.run()
    assert traffic.ended.keys() == {first, again}
    assert traffic.cached[again] == 3
    assert hub.put_paths == []
    answer = finish(engine, hub, woken)
    assert isinstance(answer, CommandResult)
    assert answer.message == "loaded owner/name, flushed 6 tokens"
    assert hub.put_paths == ["/hub/owner/name"]
    assert engine.cache.evictable_size == 0


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (ModelError("no such model"), "no such model"),
        (OSError(36, "File name too long"), "owner/name could not be read: OSError: [Errno 36] File name too long"),
        (MemoryError("too large"), "owner/name could not be read: MemoryError: too large"),
    ],
)
def test_weights_that_can_not_be_read_leave_the_running_model(fault: Exception, said: str) -> None:
    hub = SlowHub(fault)
    engine, woken = engine_of(hub)
    traffic = Traffic(engine)
    traffic.send([1, 2, 3, 4], 3)
    traffic.run()
    engine.receive(UpdateWeightsRequest("update", "owner/name"))
    assert engine.step() == []
    failed = finish(engine, hub, woken)
    assert isinstance(failed, RequestFailed)
    assert (failed.kind, failed.message) == ("invalid_request", said)
    again = traffic.send([1, 2, 3, 4], 3)
    traffic.run()
    assert traffic.cached[again] == 3
    assert hub.put_paths == []
    hub.fault = None
    engine.receive(UpdateWeightsRequest("better", "owner/name"))
    assert engine.step() == []
    assert isinstance(finish(engine, hub, woken), CommandResult)


def test_a_second_update_is_refused_while_the_weights_of_the_first_are_read() -> None:
    hub = SlowHub()
    engine, woken = engine_of(hub)
    engine.receive(UpdateWeightsRequest("first", "owner/one"))
    assert engine.step() == []
    engine.receive(UpdateWeightsRequest("second", "owner/two"))
    second = answer_of(engine)
    assert isinstance(second, RequestFailed)
    assert (second.rid, second.kind) == ("second", "busy")
    assert "those of owner/one are being read" in second.message
    first = finish(engine, hub, woken)
    assert first.rid == "first"
    assert hub.put_paths == ["/hub/owner/one"]


def test_weights_are_not_swapped_under_requests_that_came_while_they_were_read() -> None:
    hub = SlowHub()
    engine, woken = engine_of(hub)
    engine.receive(UpdateWeightsRequest("update", "owner/name"))
    assert engine.step() == []
    traffic = Traffic(engine)
    rid = traffic.send([1, 2, 3, 4], 30)
    traffic.step()
    hub.may_answer.set()
    assert woken.wait(timeout=20)
    traffic.run()
    assert traffic.ended["update"] == "busy"
    assert traffic.ended[rid] == "length"
    assert hub.put_paths == []


def test_weights_are_not_swapped_under_an_adapter_that_was_loaded_while_they_were_read() -> None:
    hub = SlowHub()
    engine, woken = engine_of(hub)
    engine.receive(UpdateWeightsRequest("update", "owner/name"))
    assert engine.step() == []
    engine.receive(LoadAdapter("load", "a", "/a"))
    assert isinstance(answer_of(engine), CommandResult)
    failed = finish(engine, hub, woken)
    assert isinstance(failed, RequestFailed)
    assert failed.message == "adapters are loaded that were made for the present weights: unload a first"


def test_a_recording_has_an_update_in_the_step_of_its_swap(tmp_path: Path) -> None:
    hub, path = SlowHub(), tmp_path / "run.jsonl"
    engine, woken = engine_of(hub)
    settings: dict[str, Any] = {"max_batch_tokens": 16, "max_running": 8, "decode_reserve": 4}
    engine.recorder = Recorder(path, msgspec.structs.replace(engine.info, settings=settings), real_tokens=True)
    traffic = Traffic(engine)
    for number, fault in enumerate((None, ModelError("broken"))):
        hub.fault = fault
        hub.may_answer.clear()
        traffic.send([1, 2, 3, 4], 3)
        traffic.run()
        engine.receive(UpdateWeightsRequest(f"update {number}", "owner/name"))
        traffic.step()
        traffic.send([1, 2, 3, 4], 3)
        traffic.run()
        finish(engine, hub, woken)
    traffic.send([1, 2, 3, 4], 3)
    traffic.run()
    assert list(traffic.cached.values()) == [0, 3, 0, 3, 3]
    engine.recorder.flush()
    replay = Replay(Recording(path))
    replay.run()
    assert replay.engine.stats() == engine.stats()
