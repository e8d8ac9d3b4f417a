"""Adapters by name: which namespace a request gets, what unloading drops, and what is refused."""

from typing import Any

import pytest

from radixserve.engine.adapter_reader import NoWeights
from radixserve.engine.engine import Engine
from radixserve.ipc import (
    AbortRequest,
    CacheCommand,
    CommandResult,
    GenerateRequest,
    LoadAdapter,
    Output,
    RequestFailed,
    UnloadAdapter,
    UpdateWeightsRequest,
)
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import token_bytes
from tests.hash_runner import hash_engine
from tests.work import lines_run

PROMPT = list(range(10))


def run(engine: Engine) -> list[object]:
    outputs: list[object] = []
    while engine.has_work:
        outputs += engine.step()
    engine.cache.check()
    return outputs


def command(engine: Engine, message: LoadAdapter | UnloadAdapter | CacheCommand) -> CommandResult | RequestFailed:
    engine.receive(message)
    (answer,) = engine.step()
    assert isinstance(answer, CommandResult | RequestFailed)
    return answer


def command_among(engine: Engine, message: UnloadAdapter | CacheCommand) -> None:
    """While requests run."""
    engine.receive(message)
    assert any(isinstance(output, CommandResult) for output in engine.step())


def ask(engine: Engine, adapter: str | None = None, salt: str | None = None) -> int:
    """Tokens that a request for PROMPT found cached."""
    engine.receive(GenerateRequest("r", token_bytes(PROMPT), SamplingParams(max_tokens=2), cache_salt=salt, adapter=adapter))
    last = run(engine)[-1]
    assert isinstance(last, Output)
    return last.cached_tokens


def loaded(*names: str) -> Engine:
    engine = hash_engine(200)
    for name in names:
        assert isinstance(command(engine, LoadAdapter("l", name, f"/{name}")), CommandResult)
    return engine


def test_nothing_is_shared_between_adapters_or_with_the_base() -> None:
    engine = loaded("a", "b")
    for adapter in (None, "a", "b"):
        assert ask(engine, adapter) == 0
        assert ask(engine, adapter) == 9
        assert ask(engine, adapter, salt="s") == 0


def test_a_name_that_is_loaded_again_finds_nothing_of_before() -> None:
    engine = loaded("a")
    ask(engine, "a"), ask(engine)
    answer = command(engine, UnloadAdapter("u", "a"))
    assert isinstance(answer, CommandResult)
    assert "11 cached tokens were dropped" in answer.message
    assert [key.adapter for key in engine.cache.tree.roots] == [None]
    command(engine, LoadAdapter("l", "a", "/other"))
    assert ask(engine, "a") == 0
    assert [key.adapter_load for key in engine.cache.tree.roots] == [0, 2]
    assert ask(engine) == 9


class Weights(NoWeights):
    """Knows whose weights are there."""

    def __init__(self) -> None:
        self.present: set[int] = set()

    def put(self, number: int, adapter: Any) -> None:
        self.present.add(number)

    def remove(self, number: int) -> None:
        self.present.remove(number)


@pytest.mark.parametrize("end", ["length", "abort"])
@pytest.mark.parametrize("how", ["unload", "replace"])
def test_open_requests_end_with_the_adapter_that_they_began_with(how: str, end: str) -> None:
    weights = Weights()
    engine = hash_engine(200, adapters=weights, max_running=1)
    command(engine, LoadAdapter("l", "a", "/a"))
    ask(engine, "a", salt="cached before")
    for rid in ("running", "waiting"):
        engine.receive(GenerateRequest(rid, token_bytes(PROMPT), SamplingParams(max_tokens=4), adapter="a"))
    engine.step()
    engine.receive(UnloadAdapter("u", "a") if how == "unload" else LoadAdapter("l", "a", "/other", replace=True))
    answer = next(output for output in engine.step() if isinstance(output, CommandResult))
    begin = {"unload": "unloaded adapter 'a'", "replace": "loaded adapter 'a' (not read) in place of the one before"}[how]
    assert answer.message == f"{begin}; 11 cached tokens were dropped, 2 open requests end with it"
    engine.receive(GenerateRequest("new", token_bytes(PROMPT), SamplingParams(max_tokens=2), adapter="a"))
    if end == "abort":
        engine.receive(AbortRequest("running"))
    outputs = run(engine)
    ended = {output.rid: output for output in outputs if isinstance(output, Output) and output.finish_reason is not None}
    assert ended["running"].finish_reason == end
    assert ended["waiting"].finish_reason == "length"
    assert ended["waiting"].cached_tokens == 9
    if how == "unload":
        assert [output.rid for output in outputs if isinstance(output, RequestFailed)] == ["new"]
    else:
        assert ended["new"].cached_tokens == 0
    left = {"unload": set(), "replace": {2}}[how]
    assert weights.present == left
    assert {key.adapter_load for key in engine.cache.tree.roots} == left


def test_the_end_of_a_request_costs_no_look_at_the_others_once_an_adapter_is_unloaded() -> None:
    works = []
    for num_open in (3, 100):
        engine = loaded("a")
        for number in range(num_open):
            engine.receive(GenerateRequest(str(number), token_bytes(PROMPT), SamplingParams(max_tokens=4), adapter="a"))
        engine.receive(UnloadAdapter("u", "a"))
        engine.step()
        req = next(iter(engine._reqs.values()))
        del engine._reqs[req.rid]
        works.append(lines_run(engine._adapters.end, req))
    assert works[1] <= works[0]


def test_nothing_of_an_adapter_that_left_stays_pinned() -> None:
    engine = loaded("a")
    engine.receive(GenerateRequest("r", token_bytes(PROMPT), SamplingParams(max_tokens=4), adapter="a"))
    engine.step()
    command_among(engine, UnloadAdapter("u", "a"))
    node = max(node.serial for _, node in engine.cache.walk())
    command_among(engine, CacheCommand("p", "pin", node=node))
    assert engine.pins.num_tokens > 0
    run(engine)
    assert (engine.pins.num_tokens, engine.cache.free_size) == (0, 200)


def test_a_name_is_replaced_only_by_what_can_be_had_and_only_when_asked() -> None:
    engine = loaded("a")
    assert isinstance(command(engine, LoadAdapter("l", "a", "/other")), RequestFailed)
    assert ask(engine, "a") == 0
    assert ask(engine, "a") == 9
    assert isinstance(command(engine, LoadAdapter("l", "b", "/b", replace=True)), CommandResult)
    assert ask(engine, "a") == 9


def test_unloading_ends_pins_of_its_namespace_alone() -> None:
    engine = loaded("a")
    ask(engine, "a"), ask(engine)
    for adapter in ("a", None):
        act = CacheCommand("p", "pin", prompt_ids=token_bytes(PROMPT), adapter=adapter)
        assert isinstance(command(engine, act), CommandResult)
    before = engine.pins.num_tokens
    command(engine, UnloadAdapter("u", "a"))
    assert engine.pins.num_tokens == before / 2
    assert engine.cache.protected_size == before / 2
    engine.cache.check()


def test_what_is_not_loaded_is_refused_with_what_is() -> None:
    engine = loaded("a", "b")
    engine.receive(GenerateRequest("r", token_bytes(PROMPT), SamplingParams(), adapter="c"))
    (failed,) = engine.step()
    assert isinstance(failed, RequestFailed)
    assert (failed.message, failed.code) == ("adapter 'c' is not loaded: loaded are 'a', 'b'", "model_not_found")
    unknown = command(engine, UnloadAdapter("u", "c"))
    assert isinstance(unknown, RequestFailed)
    assert unknown.code == "model_not_found"


def test_a_name_must_be_free_and_sensible() -> None:
    engine = loaded("a")
    for name, fault in (
        ("a", "is loaded already"),
        ("", "1 to 128 printable"),
        ("x" * 129, "1 to 128"),
        ("a=b", "no ="),
        ("a\nb", "printable"),
    ):
        failed = command(engine, LoadAdapter("l", name, "/x"))
        assert isinstance(failed, RequestFailed)
        assert fault in failed.message


def test_rows_of_one_adapter_come_together_in_a_step() -> None:
    engine = loaded("a", "b")
    for number, adapter in enumerate(("b", None, "a", "b", None, "a")):
        prompt = token_bytes([number, number])
        engine.receive(GenerateRequest(str(number), prompt, SamplingParams(max_tokens=4), adapter=adapter))
    seen = []
    launch = engine.runner.launch

    def watch(batch):  # type: ignore[no-untyped-def]
        seen.append(([req.extra_key.adapter_load for req in batch.reqs], [tuple(run) for run in batch.adapters]))
        return launch(batch)

    engine.runner.launch = watch  # type: ignore[method-assign]
    run(engine)
    assert seen[0] == ([0, 0, 1, 1, 2, 2], [(1, 4, 8), (2, 8, 12)])
    assert seen[1] == ([0, 0, 1, 1, 2, 2], [(1, 2, 4), (2, 4, 6)])


def test_other_weights_are_refused_while_adapters_are_loaded_for_these() -> None:
    engine = loaded("a", "b")
    engine.receive(UpdateWeightsRequest("w", "other"))
    (failed,) = engine.step()
    assert isinstance(failed, RequestFailed)
    assert failed.message == "adapters are loaded that were made for the present weights: unload a, b first"
