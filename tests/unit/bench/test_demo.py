"""The demo on engines that only pretend: its workloads, its loop, its comparison and its exit code."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console

from radixserve.bench.demo import run as demo
from radixserve.bench.demo.comparison import Comparison, Run, first_difference, merge
from radixserve.bench.demo.loop import ClosedLoop
from radixserve.bench.demo.run import DemoOptions, compare, run
from radixserve.bench.demo.workloads import FULL, QUICK, Scale, demo_workloads, next_turn
from radixserve.bench.infinite_cache import InfiniteCache
from radixserve.bench.record import Record
from radixserve.bench.workloads import TokenSession, Turn, Workload
from radixserve.config import EngineConfig
from radixserve.errors import ConfigError, RadixServeError
from radixserve.ipc import (
    CommandResult,
    EngineInfo,
    EngineInput,
    EngineOutput,
    EngineStats,
    FlushRequest,
    GenerateRequest,
    Output,
    RequestFailed,
    TokenLogprob,
)
from radixserve.limits import Limits
from radixserve.tokens import as_ids, token_bytes

SMALL = Scale(num_chats=2, num_turns=3, num_questions=3, num_users=2, num_branches=2)


class Letters:
    """A tokenizer whose tokens are characters, with a template that only appends."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> np.ndarray:
        return np.array([1] * add_special_tokens + [ord(character) for character in text], np.int32)

    def encode_chat(self, messages: list[dict[str, Any]]) -> np.ndarray:
        text = "".join(f"[{message['role']}]{message['content']}|" for message in messages)
        return self.encode(text + "[assistant]")


class FakeEngine:
    """Answers with a token a step that depends on the prompt and the position alone, and counts what it would compute."""

    def __init__(self, *, cached: bool, flips: frozenset[int] = frozenset(), dtype: str = "float32") -> None:
        self.cached = cached
        self.flips = flips
        """Positions of answers at which this engine picks the runner-up."""
        self.info = EngineInfo("fake", dtype, "cpu", Limits(200_000, 8192, 32768, 1), 0, 2)
        self.tokenizer = Letters()
        self.prompts: list[bytes] = []
        self.most_running = 0
        self._tree = InfiniteCache()
        self._running: list[Iterator[Output]] = []
        self._inbox: list[EngineInput] = []
        self._computed = 0

    @property
    def has_work(self) -> bool:
        return bool(self._inbox or self._running)

    def receive(self, message: EngineInput) -> None:
        self._inbox.append(message)

    def stats(self) -> EngineStats:
        return EngineStats(computed_tokens=self._computed)

    def step(self) -> list[EngineOutput]:
        outputs: list[EngineOutput] = []
        for message in self._inbox:
            if isinstance(message, FlushRequest):
                self._tree = InfiniteCache()
                outputs.append(CommandResult(message.rid, "flushed"))
            elif isinstance(message, GenerateRequest):
                self._running.append(self._answer(message))
        self._inbox.clear()
        self.most_running = max(self.most_running, len(self._running))
        running, self._running = self._running, []
        for answer in running:
            output = next(answer)
            outputs.append(output)
            if output.finish_reason is None:
                self._running.append(answer)
        return outputs

    def _answer(self, request: GenerateRequest) -> Iterator[Output]:
        prompt, max_tokens = request.prompt_ids, request.params.max_tokens
        assert max_tokens is not None
        self.prompts.append(prompt)
        length = len(prompt) // 4
        hit = min(self._tree.match(prompt), length - 1) if self.cached else 0
        self._tree.insert(prompt)
        self._computed += length - hit
        for position in range(max_tokens):
            best = 1000 + (sum(prompt) + position) % 7
            top = ((best, -0.50), (best + 1, -0.75))
            token_id = top[position in self.flips][0]
            logprob = TokenLogprob(token_id, dict(top)[token_id], top)
            is_last = position == max_tokens - 1
            yield Output(
                rid=request.rid,
                text="x",
                token_ids=(token_id,),
                prompt_tokens=length,
                cached_tokens=hit,
                completion_tokens=position + 1,
                finish_reason="length" if is_last else None,
                logprobs=(logprob,),
            )


def lengths(workload: Workload) -> set[int]:
    return {len(session.prompt([])) // 4 for session in workload.sessions}


def record(output_ids: list[int], logprobs: tuple[TokenLogprob, ...] = (), session: int = 0) -> Record:
    return Record(
        session=session, turn=0, start_s=0.0, chunk_s=(1.0,), end_s=2.0, output_ids=token_bytes(output_ids), logprobs=logprobs
    )


def test_the_demos_workloads_are_as_large_as_promised() -> None:
    chats, few_shot, shared_prefix, branches = demo_workloads(Letters(), FULL)
    assert [len(session.turns) for session in chats.sessions] == [6] * 8
    assert (few_shot.num_requests, shared_prefix.num_requests, branches.num_requests) == (100, 100, 16)
    assert lengths(shared_prefix) == {3500}
    prompts = [session.prompt([]) for session in shared_prefix.sessions]
    assert len({prompt[: 2500 * 4] for prompt in prompts}) == 1
    assert len({prompt[2500 * 4 :] for prompt in prompts}) == 100
    assert len({session.prompt([])[: 1200 * 4] for session in branches.sessions}) == 1
    assert len({session.prompt([]) for session in branches.sessions}) == 16
    assert sum(workload.num_requests for workload in demo_workloads(Letters(), QUICK)) < 70


def test_the_demos_workloads_are_always_the_same() -> None:
    assert demo_workloads(Letters(), QUICK) == demo_workloads(Letters(), QUICK)


def test_the_few_shot_prompt_is_mostly_shared() -> None:
    few_shot = demo_workloads(Letters(), FULL)[1]
    prompts = [session.prompt([]) for session in few_shot.sessions]
    shared = len(prompts[0][: next(i for i, pair in enumerate(zip(*prompts, strict=False)) if len(set(pair)) > 1)])
    assert all(shared / len(prompt) > 0.85 for prompt in prompts)
    assert isinstance(prompts[0], bytes)
    text = "".join(map(chr, as_ids(prompts[0])[1:]))
    assert text.count("Question:") == 9
    assert text.count("The answer is") == 8


def test_a_turn_continues_where_the_answer_ended() -> None:
    assert next_turn(Letters(), "why?") == token_bytes([ord(c) for c in "|[user]why?|[assistant]"])


def test_a_template_that_rewrites_history_is_refused() -> None:
    class Rewriting(Letters):
        def encode_chat(self, messages: list[dict[str, Any]]) -> np.ndarray:
            return self.encode(f"{len(messages)} messages")

    with pytest.raises(ConfigError, match="rewrites earlier turns"):
        next_turn(Rewriting(), "why?")


def test_the_loop_keeps_its_concurrency_and_measures_every_request() -> None:
    workload = demo_workloads(Letters(), SMALL)[0]
    workload = Workload("many", workload.sessions * 3)
    engine = FakeEngine(cached=True)
    loop = ClosedLoop(engine, workload, concurrency=2, history=None, on_record=lambda record: None)
    duration_s = loop.run()
    assert engine.most_running == 2
    assert not engine.has_work
    assert {(record.session, record.turn) for record in loop.records} == {(s, t) for s in range(6) for t in range(3)}
    for record in loop.records:
        assert record.completion_tokens == len(record.chunk_s) == 32
        assert 0 <= record.start_s <= record.chunk_s[0] <= record.end_s <= duration_s


def test_a_refused_request_ends_the_run() -> None:
    class Refusing(FakeEngine):
        def step(self) -> list[EngineOutput]:
            return [RequestFailed("w 0.0", "invalid_request", "too long")]

    workload = Workload("w", (TokenSession((Turn(token_bytes([1, 2]), 1),)),))
    with pytest.raises(RadixServeError, match="too long"):
        ClosedLoop(Refusing(cached=True), workload, 1, None, lambda record: None).run()


def test_both_engines_are_asked_the_same_even_when_answers_differ() -> None:
    cached, uncached = FakeEngine(cached=True), FakeEngine(cached=False, flips=frozenset([5]))
    comparisons = compare(cached, uncached, demo_workloads(Letters(), SMALL), 2, Console(quiet=True))
    assert cached.prompts == uncached.prompts
    chats = comparisons[0]
    assert len(chats.differences) == 6
    assert chats.with_cache.computed_tokens < chats.without_cache.computed_tokens
    assert {found.position for found in chats.differences} == {5}
    found = chats.differences[0]
    assert found.gap_with == pytest.approx(0.25)
    assert found.gap_without == pytest.approx(0.25)
    assert chats.summary_without.cached_tokens == 0
    shared_prefix = comparisons[2]
    assert 2500 <= (shared_prefix.summary_with.cached_tokens or 0) < 2520


def test_the_first_difference_is_found_with_its_gap() -> None:
    near_tie = TokenLogprob(5, -0.7, ((5, -0.7), (6, -0.71)))
    far = TokenLogprob(6, -0.1, ((6, -0.1), (9, -3.0)))
    sure = TokenLogprob(1, -0.01, ((1, -0.01), (2, -5.0)))
    assert first_difference(record([1, 5]), record([1, 5])) is None
    found = first_difference(record([1, 5, 3], (sure, near_tie)), record([1, 6, 3], (sure, far)))
    assert found is not None
    assert (found.position, found.token_with, found.token_without) == (1, 5, 6)
    assert found.gap_with == pytest.approx(0.01)
    assert found.gap_without is None
    shorter = first_difference(record([1]), record([1, 2]))
    assert shorter is not None
    assert (shorter.position, shorter.token_with, shorter.token_without) == (1, -1, 2)


def test_speed_ups_are_ratios_and_workloads_add_up() -> None:
    def run_of(seconds: float, computed: int, sessions: int) -> Run:
        return Run(records=[record([1, 2], session=i) for i in range(sessions)], duration_s=seconds, computed_tokens=computed)

    first = Comparison("first", run_of(1.0, 10, 2), run_of(4.0, 50, 2))
    second = Comparison("second", run_of(2.0, 20, 3), run_of(2.0, 40, 3))
    assert first.speed_up == {"throughput": 4.0, "ttft_median": 1.0, "ttft_p99": 1.0, "computed_tokens": 5.0}
    everything = merge("all", [first, second])
    assert everything.speed_up["throughput"] == 2.0
    assert everything.speed_up["computed_tokens"] == 3.0
    assert sorted(one.session for one in everything.with_cache.records) == [0, 1, 2, 3, 4]
    assert everything.differences == []


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings of the fake engines that the demo is given; the test changes them before it runs."""
    settings: dict[str, Any] = {"flips": frozenset(), "dtype": "float32", "num_slots": 32768}

    def build(config: EngineConfig) -> FakeEngine:
        flips = frozenset() if config.prefix_cache else settings["flips"]
        engine = FakeEngine(cached=config.prefix_cache, flips=flips, dtype=settings["dtype"])
        engine.info = msgspec.structs.replace(engine.info, limits=Limits(200_000, 8192, settings["num_slots"], 1))
        return engine

    monkeypatch.setattr(demo, "build_engine", build)
    monkeypatch.setattr(demo, "QUICK", SMALL)
    return settings


def test_the_demo_prints_one_json(engines: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output_file = tmp_path / "demo.json"
    assert run(DemoOptions(quick=True, json=True, output_file=output_file)) == 0
    result = json.loads(capsys.readouterr().out)
    assert json.loads(output_file.read_text()) == result
    assert [one["name"] for one in result["workloads"]] == ["chats", "few-shot", "shared prefix", "branches", "all"]
    assert all(one["identical_answers"] == one["answers"] for one in result["workloads"])
    assert result["workloads"][2]["with_cache"]["median_reused_share"] == pytest.approx(2500 / 3500 / 2, abs=0.003)
    assert result["workloads"][-1]["answers"] == 13
    assert result["ok"] is True


def test_the_demo_fails_when_exact_answers_differ(engines: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    engines["flips"] = frozenset([3])
    assert run(DemoOptions(quick=True)) == 1
    captured = capsys.readouterr()
    assert "answers differ with and without the cache in float32" in captured.err
    assert "0/13" in captured.out
    rows = [line.split() for line in captured.out.splitlines() if line.strip().startswith("few-shot")]
    assert rows[-1] == ["few-shot", "3", "1", "4", "0.2500", "0.2500"]


def test_a_near_tie_in_bfloat16_is_told_and_no_failure(engines: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    engines |= {"flips": frozenset([3]), "dtype": "bfloat16"}
    assert run(DemoOptions(quick=True)) == 0
    assert "Answers that differ in bfloat16" in capsys.readouterr().out


def test_the_demo_refuses_no_concurrency() -> None:
    with pytest.raises(ConfigError, match="--concurrency is 0"):
        run(DemoOptions(concurrency=0))


def test_the_demo_refuses_a_pool_too_small_before_it_runs(engines: dict[str, Any]) -> None:
    engines["num_slots"] = 3000
    with pytest.raises(ConfigError, match="shared prefix need 3516 tokens: the context holds 8192 and the pool 3000"):
        run(DemoOptions(quick=True))
