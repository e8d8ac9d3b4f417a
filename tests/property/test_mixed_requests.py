"""Grammars that come late, forced tokens, scored prompts, choices, pins and evictions in one engine, all at once.

Every request is answered as if it ran alone, nothing is left of it, and a recording of the run replays to the last slot.
"""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from radixserve.config import EngineConfig
from radixserve.engine.grammars import Grammars
from radixserve.ipc import AbortRequest, CacheCommand, FlushRequest, GrammarFinished, TokenLogprob
from radixserve.sampling_params import Grammar
from radixserve.simulator.recorded_requests import from_recording
from radixserve.simulator.recordings import Recording
from radixserve.simulator.replay import Replay
from radixserve.tokens import token_bytes
from tests.hash_runner import prefix_hashes, solo
from tests.jumpy_grammar import JUMPY, JumpyGrammar, jumpy_solo
from tests.property.test_engine_schedules import prompts
from tests.property.test_recorded_runs import evictions, recorded_engine
from tests.traffic import Traffic

BAD = Grammar("regex", "bad")
OTHER_JUMPY = Grammar("regex", "jumpy, and compiled by itself")

kinds: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {"grammar": JUMPY},
        {"grammar": OTHER_JUMPY},
        {"grammar": JUMPY, "logprobs": 0},  # no jump
        {"grammar": BAD},
        {"prompt_logprobs": 0},
        {"prompt_logprobs": 0, "logprob_start_len": 5, "grammar": JUMPY},
    ]
)
actions = st.one_of(
    st.tuples(st.just("send"), prompts, st.integers(0, 14), st.sampled_from([None, None, "a"]), kinds, st.sampled_from([1, 1, 3])),
    st.tuples(st.just("step"), st.integers(1, 6)),
    st.tuples(st.just("compile")),
    st.tuples(st.just("abort"), st.integers(0, 30)),
    st.tuples(st.just("pin prefix"), prompts),
    st.tuples(st.sampled_from(["pin", "unpin", "evict"]), st.integers(0, 30)),
    st.tuples(st.just("flush")),
)


class HeldGrammars(Grammars):
    """Compiles one grammar whenever it is told to, in place of threads."""

    def __init__(self, *, jump_forward: bool) -> None:
        super().__init__(lambda: self, jump_forward=jump_forward)  # type: ignore[arg-type, return-value]
        self.begun: list[Grammar] = []
        self.finished: list[GrammarFinished] = []

    def compile(self, grammar: Grammar) -> None:
        self.begun.append(grammar)

    def give_up(self, grammar: Grammar) -> bool:
        """Too late for the one that is compiled."""
        given_up = grammar in self.begun[1:]
        if given_up:
            self.begun.remove(grammar)
        return given_up

    def take_finished(self) -> list[GrammarFinished]:
        messages, self.finished = self.finished, []
        return messages

    @property
    def has_finished(self) -> bool:
        return bool(self.finished)

    def finish_one(self) -> None:
        grammar = self.begun.pop(0)
        if grammar != BAD:
            self._made[grammar] = JumpyGrammar()
        self.finished.append(GrammarFinished(grammar, "bad" if grammar == BAD else None))


def act(traffic: Traffic, grammars: HeldGrammars, action: str, args: list[Any]) -> None:
    engine = traffic.engine
    match action:
        case "send":
            prompt, max_tokens, salt, kind, n = args
            for choice in range(n):
                scored = {} if choice == 0 else {"prompt_logprobs": None}
                traffic.send(prompt, max_tokens, salt=salt, **{"logprob_start_len": 0, **kind, **scored})
        case "step":
            for _ in range(args[0]):
                traffic.step()
        case "compile" if grammars.begun:
            grammars.finish_one()
        case "abort":
            engine.receive(AbortRequest(str(args[0])))
        case "pin prefix":
            engine.receive(CacheCommand("pin", "pin", prompt_ids=token_bytes(args[0])))
        case "pin" | "unpin" | "evict":
            serials = [node.serial for _, node in engine.cache.walk()]
            engine.receive(CacheCommand(action, action, serials[args[0] % len(serials)] if serials else 0))
        case "flush":
            engine.receive(FlushRequest("flush"))


def check_answers(traffic: Traffic) -> None:
    for rid, (prompt, max_tokens) in traffic.asked.items():
        asked, ended, answer = traffic.params[rid], traffic.ended[rid], traffic.answers.get(rid, [])
        expected = jumpy_solo(prompt, max_tokens)[0] if asked.grammar is not None else solo(prompt, max_tokens)
        match ended:
            case "length":
                assert answer == expected
            case "abort":
                assert answer == expected[: len(answer)]
            case "invalid_request":
                assert not answer
                continue
            case _:
                raise AssertionError(f"{rid} ended by {ended}")
        hashes = prefix_hashes(prompt)
        scored = range(asked.logprob_start_len, len(prompt) - 1) if asked.prompt_logprobs is not None else range(0)
        scores = [TokenLogprob(prompt[at + 1], float(hashes[at])) for at in scored]
        assert traffic.scores[rid] == (scores if answer or ended == "length" else scores[: len(traffic.scores[rid])])
        assert traffic.cached[rid] < len(prompt)


@settings(max_examples=150)
@given(
    script=st.lists(actions, min_size=5, max_size=40),
    page_size=st.sampled_from([1, 1, 4, 16]),
    pool_pages=st.integers(0, 60),
    budget=st.sampled_from([1, 5, 16, 64]),
    max_running=st.sampled_from([1, 3, 8]),
    jump_forward=st.booleans(),
)
def test_answers_are_those_of_a_request_alone(
    script: list[tuple], page_size: int, pool_pages: int, budget: int, max_running: int, jump_forward: bool
) -> None:
    num_slots = max(page_size * pool_pages, -(-66 // page_size) * page_size)  # the largest request of `prompts` fits
    config = EngineConfig(
        page_size=page_size, max_batch_tokens=budget, max_running=max_running, decode_reserve=0, jump_forward=jump_forward
    )
    grammars = HeldGrammars(jump_forward=jump_forward)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        engine = recorded_engine(config, num_slots, path, grammars)
        traffic, live = Traffic(engine), evictions(engine)
        for action, *args in script:
            act(traffic, grammars, action, args)
        traffic.run()
        while grammars.begun:
            grammars.finish_one()
            traffic.run()
        engine.receive(CacheCommand("unpin", "unpin"))
        engine.receive(FlushRequest("flush"))
        traffic.run()
        replay = Replay(Recording(path))
        simulated = evictions(replay.engine)
        replay.run()
        asked = from_recording(Recording(path))
    check_answers(traffic)
    assert engine.cache.free_size == engine.cache.num_slots
    assert engine.scheduler.slot_table.num_free_rows == max_running
    assert not engine._reqs
    assert not engine._answers
    assert not len(engine._grammars)
    assert not grammars._made
    given = [len(traffic.answers[rid]) for rid in traffic.asked if traffic.answers.get(rid) or traffic.ended[rid] == "length"]
    assert [request.output_len for request in asked] == [max(length, 1) for length in given]  # one was sampled at least
    assert replay.engine.stats() == engine.stats()
    assert simulated == live
    assert replay.engine.cache.pool.free_slots().tolist() == engine.cache.pool.free_slots().tolist()
