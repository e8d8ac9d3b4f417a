"""Live equals simulated: whatever happened to an engine, its recording leads to the same batches, slots, hits and evictions."""

import re
import tempfile
from dataclasses import asdict
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radixserve.cache.events import CacheEvent, Evicted
from radixserve.config import EngineConfig
from radixserve.engine.assemble import assemble
from radixserve.engine.engine import Engine
from radixserve.engine.grammars import Grammars
from radixserve.engine.recording import Recorder
from radixserve.errors import InvalidRequestError
from radixserve.ipc import (
    AbortRequest,
    CacheCommand,
    EngineInfo,
    GenerateRequest,
    LoadAdapter,
    UnloadAdapter,
    UpdateWeightsRequest,
)
from radixserve.limits import Limits
from radixserve.routing.router import Router
from radixserve.sampling.select import NO_TOKEN
from radixserve.sampling_params import Grammar, SamplingParams
from radixserve.simulator.cost import load as load_cost_model
from radixserve.simulator.fleet import Fleet
from radixserve.simulator.free_grammars import FreeGrammar
from radixserve.simulator.recorded_requests import from_recording
from radixserve.simulator.recordings import Recording
from radixserve.simulator.replay import Replay
from radixserve.simulator.simulate import Simulation
from radixserve.tokens import token_bytes
from tests.hash_runner import VOCAB, HashRunner
from tests.property.test_engine_schedules import actions
from tests.traffic import Traffic

MUST_STOP = 7
"""Ends every answer in which it is sampled."""


def recorded_engine(config: EngineConfig, num_slots: int, path: Path, grammars: Grammars | None = None) -> Engine:
    limits = Limits(VOCAB, 512, num_slots, config.page_size)
    info = EngineInfo(model="hash", dtype="none", device="cpu", limits=limits, kv_bytes=0, num_threads=1, settings=asdict(config))
    runner = HashRunner(num_slots, config.page_size)
    engine = assemble(config, info, runner, eos_ids=frozenset({MUST_STOP}), grammars=grammars)
    engine.recorder = Recorder(path, info)
    return engine


def evictions(engine: Engine) -> list[tuple[int, int, int, int]]:
    """A list that fills with the engine's evictions: who, how long, when, last used when."""
    found: list[tuple[int, int, int, int]] = []

    def listen(event: CacheEvent) -> None:
        if isinstance(event, Evicted):
            found.append((event.serial, event.num_tokens, event.time, event.last_access_time))

    engine.cache.listeners.append(listen)
    return found


@settings(max_examples=100)
@given(
    actions=st.lists(actions, min_size=3, max_size=40),
    page_size=st.sampled_from([1, 1, 3, 4, 16]),
    pool_pages=st.integers(0, 60),
    budget=st.sampled_from([1, 5, 16, 64]),
    max_running=st.sampled_from([1, 3, 8]),
    order=st.sampled_from(["prefix", "tree", "fcfs"]),
    policy=st.sampled_from(["lru", "lfu", "fifo", "slru", "priority", "learned"]),
    decode_reserve=st.sampled_from([0, 4]),
    stops=st.booleans(),
)
def test_a_recording_replays_exactly(
    actions: list[tuple], page_size: int, pool_pages: int, budget: int, max_running: int, order: str, policy: str,
    decode_reserve: int, stops: bool,
) -> None:  # fmt: skip
    num_slots = max(page_size * pool_pages, -(-64 // page_size) * page_size)
    config = EngineConfig(
        page_size=page_size, eviction_policy=policy, order=order, max_batch_tokens=budget, max_running=max_running,
        decode_reserve=decode_reserve,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        engine = recorded_engine(config, num_slots, path)
        traffic, live = Traffic(engine, ignore_eos=not stops), evictions(engine)
        traffic.play(actions)
        replay = Replay(Recording(path))
        simulated = evictions(replay.engine)
        replay.run()
    assert replay.engine.stats() == engine.stats()
    assert simulated == live
    assert replay.engine.cache.pool.free_slots().tolist() == engine.cache.pool.free_slots().tolist()


def test_preemptions_are_replayed(tmp_path: Path) -> None:
    config = EngineConfig(max_batch_tokens=64, max_running=32, decode_reserve=0)
    engine = recorded_engine(config, 160, tmp_path / "run.jsonl")
    traffic = Traffic(engine)
    for i in range(32):
        traffic.send([*range(40), *range(24), i], 30)
    traffic.run()
    assert engine.stats().num_preemptions > 0
    replay = Replay(Recording(tmp_path / "run.jsonl"))
    replay.run()
    assert replay.engine.stats() == engine.stats()


def test_new_weights_flush_the_replayed_tree_too(tmp_path: Path) -> None:
    """In the step in which they are swapped, not in that in which their reading begins."""
    engine = recorded_engine(EngineConfig(), 160, tmp_path / "run.jsonl")
    traffic = Traffic(engine)
    for _ in range(2):
        traffic.send([1, 2, 3, 4], 3)
        traffic.run()
        engine.receive(UpdateWeightsRequest("u", "other"))
    traffic.run()
    assert traffic.cached == {"0": 0, "1": 0}
    replay = Replay(Recording(tmp_path / "run.jsonl"))
    replay.run()
    assert replay.engine.stats() == engine.stats()


def test_adapters_are_replayed_and_keep_their_namespaces_in_simulations(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    engine = recorded_engine(EngineConfig(), 160, path)
    params = SamplingParams(max_tokens=3, ignore_eos=True)

    def ask(rid: str, adapter: str | None) -> None:
        engine.receive(GenerateRequest(rid, token_bytes([1, 2, 3, 4, 5]), params, adapter=adapter))
        while engine.has_work:
            engine.step()

    engine.receive(LoadAdapter("l", "sql", "/home/someone/sql"))
    for rid, adapter in (("0", "sql"), ("1", None), ("2", "sql")):
        ask(rid, adapter)
    engine.receive(UnloadAdapter("u", "sql"))
    engine.receive(LoadAdapter("l", "sql", "/other"))
    ask("3", "sql")
    assert not re.search(rb"someone|sql", path.read_bytes())
    replay = Replay(Recording(path))
    replay.run()
    assert replay.engine.stats() == engine.stats()
    assert engine.stats().cached_tokens == 4
    asked = from_recording(Recording(path))
    assert [request.extra_key.adapter_load for request in asked] == [1, 0, 1, 2]
    simulation = Simulation(EngineConfig(), 160, 64, load_cost_model(None))
    (timeline,) = Fleet([simulation], Router()).run(asked, lambda: None)
    assert timeline.cached_tokens == 4


def test_nothing_but_lengths_and_equality_shows(tmp_path: Path) -> None:
    """Request ids, namespaces, token ids and their numbers are hidden; equal prefixes are not."""
    path = tmp_path / "run.jsonl"
    engine = recorded_engine(EngineConfig(), 160, path)
    traffic = Traffic(engine)
    for prompt in ([1, 2, 3, 4], [1, 2, 9, 9]):
        traffic.send(prompt, 3, salt="tenant-a")
    traffic.run()
    assert "tenant-a" not in path.read_text()
    first, second = (
        memoryview(message.prompt_ids).cast("i").tolist() for step in Recording(path).steps() for message in step.messages
    )
    assert first[:2] == second[:2]
    assert first[2] != second[2] == second[3]
    assert msgspec.json.decode(path.read_text().splitlines()[0])["salted"] is True


def test_nothing_that_a_client_wrote_is_recorded(tmp_path: Path) -> None:
    """Stops, biases, seeds, grammars and why they were refused, ids, the prompts of pins."""
    path = tmp_path / "run.jsonl"
    engine = recorded_engine(EngineConfig(), 160, path, Grammars(PickyBackend))
    traffic = Traffic(engine)
    more = {"stop": ("secret stop",), "stop_token_ids": (41,), "logit_bias": {43: 7.125}, "seed": 424242}
    traffic.send([31, 32, 33, 34], 3, salt="secret salt", grammar=Grammar("regex", "secret(regex)"), **more)
    traffic.send([31, 32, 33, 34], 3, grammar=Grammar("regex", "(secret at the wrong place"))
    while len(traffic.ended) < 2:
        traffic.step()
    engine.receive(CacheCommand("secret act", "pin", prompt_ids=token_bytes([31, 32, 33]), cache_salt="secret salt"))
    traffic.run()
    text = path.read_text()
    assert not re.search("secret|unterminated|parenthesis|424242|7\\.125", text)
    messages = [message for step in Recording(path).steps() for message in step.messages]
    first, *_, pin = messages
    assert isinstance(first, GenerateRequest)
    assert isinstance(pin, CacheCommand)
    assert (first.params.stop_token_ids, first.params.logit_bias) == ((), {})
    assert first.prompt_ids[:12] == pin.prompt_ids != token_bytes([31, 32, 33])
    assert first.cache_salt == pin.cache_salt


def test_failures_are_replayed(tmp_path: Path) -> None:
    """A request whose logits are no numbers ends in the same step again, and holds nothing any more."""
    engine = recorded_engine(EngineConfig(), 160, tmp_path / "run.jsonl")
    choose = engine.runner._choose  # type: ignore[attr-defined]
    failing = lambda req, held: NO_TOKEN if req.rid == "1" and len(req.output_ids) == 3 else choose(req, held)  # noqa: E731
    engine.runner._choose = failing  # type: ignore[attr-defined]
    traffic = Traffic(engine)
    for number in range(3):
        traffic.send([1, 2, 3, number], 8)
    traffic.run()
    assert traffic.ended == {"0": "length", "1": "internal", "2": "length"}
    replay = Replay(Recording(tmp_path / "run.jsonl"))
    replay.run()
    assert replay.engine.stats() == engine.stats()


def test_grammars_are_replayed_as_messages(tmp_path: Path) -> None:
    """Requests that wait for a grammar, one that is refused, one that is aborted while it waits."""
    engine = recorded_engine(EngineConfig(), 160, tmp_path / "run.jsonl", Grammars(PickyBackend))
    traffic = Traffic(engine)
    word, bad = Grammar("regex", "[a-z]+"), Grammar("regex", "(")
    for grammar in (word, None, bad, word):
        traffic.send([1, 2, 3, 4], 5, grammar=grammar)
    engine.receive(AbortRequest("3"))
    while len(traffic.ended) < 4:
        traffic.step()
    assert sorted(traffic.ended.items()) == [("0", "length"), ("1", "length"), ("2", "invalid_request"), ("3", "abort")]
    traffic.send([1, 2, 3, 4], 5, grammar=word)
    traffic.run()
    replay = Replay(Recording(tmp_path / "run.jsonl"))
    replay.run()
    assert replay.engine.stats() == engine.stats()


@pytest.mark.parametrize("budget", [5, 512])
def test_forced_tokens_are_replayed(tmp_path: Path, budget: int) -> None:
    """Within answers, at their end, cut off by `max_tokens`; computed in several steps, or again after a preemption."""
    config = EngineConfig(max_batch_tokens=budget, decode_reserve=0)
    engine = recorded_engine(config, 60, tmp_path / "run.jsonl", Grammars(RunsBackend))
    traffic = Traffic(engine)
    for length in range(3, 23):
        traffic.send([1, 2, 3, length], length, grammar=Grammar("regex", "runs"))
    while len(traffic.ended) < 20:
        traffic.step()
    assert engine.stats().forced_tokens > 20
    assert set(traffic.ended.values()) == {"stop", "length"}
    assert (engine.stats().num_preemptions > 0) == (budget == 512)
    replay = Replay(Recording(tmp_path / "run.jsonl"))
    replay.run()
    assert replay.engine.stats() == engine.stats()
    asked = from_recording(Recording(tmp_path / "run.jsonl"))
    assert [request.output_len for request in asked] == [len(traffic.answers[str(i)]) for i in range(20)]


class RunsBackend(FreeGrammar):
    """Forces two tokens after each that is chosen, and ends the answer after 15."""

    left = 15

    def compile(self, grammar: Grammar) -> "RunsBackend":
        return self

    def matcher(self, *, ignore_eos: bool) -> "RunsBackend":
        return RunsBackend()

    @property
    def finished(self) -> bool:
        return self.left == 0

    def accept(self, token_id: int) -> bool:
        self.left -= 1
        return True

    def forced(self) -> list[int]:
        return [1, 2]


class PickyBackend(FreeGrammar):
    """Refuses what is no regular expression."""

    def compile(self, grammar: Grammar) -> FreeGrammar:
        try:
            re.compile(grammar.source)
        except re.error as error:
            raise InvalidRequestError(str(error), param="grammar") from error
        return self
