"""Adapters are read beside the steps, and come into the engine between two of them."""

import threading
from typing import Any

from radixserve.engine.adapter_reader import AdapterReader
from radixserve.engine.engine import Engine
from radixserve.errors import ModelError
from radixserve.ipc import CommandResult, GenerateRequest, LoadAdapter, Output, RequestFailed
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import token_bytes
from tests.hash_runner import hash_engine


class SlowWeights:
    """Reads a directory when it is told to. `present`: what was put and not removed, by number."""

    reads_files = True

    def __init__(self) -> None:
        self.may_read = threading.Event()
        self.present: dict[int, Any] = {}

    def read(self, directory: str) -> tuple[Any, str]:
        assert self.may_read.wait(timeout=20)
        if directory == "/broken":
            raise ModelError("/broken is broken")
        if directory == "/odd":
            raise MemoryError("too large")
        return directory, "small"

    def put(self, number: int, adapter: Any) -> None:
        self.present[number] = adapter

    def remove(self, number: int) -> None:
        del self.present[number]


def engine_of(weights: SlowWeights) -> tuple[Engine, threading.Event]:
    """And what is set whenever the engine is to look again."""
    engine, woken = hash_engine(200, adapters=weights), threading.Event()
    engine.notify(woken.set)
    return engine, woken


def load(engine: Engine, woken: threading.Event, directory: str) -> CommandResult | RequestFailed:
    engine.receive(LoadAdapter(directory, directory[1:], directory))
    assert woken.wait(timeout=20)
    woken.clear()
    (answer,) = engine.step()
    assert isinstance(answer, CommandResult | RequestFailed)
    return answer


def test_no_step_waits_for_a_file() -> None:
    weights = SlowWeights()
    engine, woken = engine_of(weights)
    engine.receive(LoadAdapter("load", "a", "/a"))
    assert not engine.has_work
    params = SamplingParams(max_tokens=3)
    engine.receive(GenerateRequest("base", token_bytes([1, 2]), params))
    engine.receive(GenerateRequest("early", token_bytes([1, 2]), params, adapter="a"))
    first = engine.step()
    assert [output.rid for output in first if isinstance(output, RequestFailed)] == ["early"]
    while engine.has_work:
        last = engine.step()
    assert isinstance(last[0], Output)
    assert last[0].finish_reason == "length"
    assert weights.present == {}
    weights.may_read.set()
    assert woken.wait(timeout=20)
    assert engine.has_work
    engine.receive(GenerateRequest("late", token_bytes([1, 2]), params, adapter="a"))
    assert [type(output) for output in engine.step()] == [RequestFailed, CommandResult]  # it was sent before the load was applied
    assert weights.present == {1: "/a"}
    engine.receive(GenerateRequest("later", token_bytes([1, 2]), params, adapter="a"))
    assert [type(output) for output in engine.step()] == [Output]


def test_whatever_is_wrong_with_an_adapter_the_engine_lives_and_counts_no_load() -> None:
    weights = SlowWeights()
    weights.may_read.set()
    engine, woken = engine_of(weights)
    broken, odd = load(engine, woken, "/broken"), load(engine, woken, "/odd")
    assert isinstance(broken, RequestFailed)
    assert broken.message == "adapter 'broken': /broken is broken"
    assert isinstance(odd, RequestFailed)
    assert odd.message == "adapter 'odd': /odd could not be read: MemoryError: too large"
    assert isinstance(load(engine, woken, "/a"), CommandResult)
    assert weights.present == {1: "/a"}


def test_messages_come_back_in_the_order_of_reading() -> None:
    weights = SlowWeights()
    reader = AdapterReader(weights)
    messages = [LoadAdapter(str(number), "a", f"/{number}") for number in range(5)]
    read = threading.Semaphore(0)
    reader.on_read = read.release
    assert all(reader.begin(message) for message in messages)
    assert not reader.has_finished
    weights.may_read.set()
    for _ in messages:
        assert read.acquire(timeout=20)
    assert reader.take_finished() == messages
    assert [reader.result(message) for message in messages] == [(f"/{number}", "small") for number in range(5)]
