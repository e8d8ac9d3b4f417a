"""Runs a workload on an engine in this process, in a closed loop: `concurrency` sessions are open, the next starts when one ends.

What arrives when depends on steps alone, so that two engines are asked in the same pattern.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from radixserve.bench.record import Record
from radixserve.bench.workloads import TokenSession, Workload
from radixserve.errors import RadixServeError
from radixserve.ipc import EngineInput, EngineOutput, EngineStats, FlushRequest, GenerateRequest, Output, RequestFailed
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import token_bytes

TOP_LOGPROBS = 5
"""Asked of every request, so that a differing answer can be explained by the gap between the two tokens."""


class SteppedEngine(Protocol):
    """What the loop needs of an engine; see `radixserve.engine.engine`."""

    @property
    def has_work(self) -> bool: ...

    def receive(self, message: EngineInput) -> None: ...

    def step(self) -> list[EngineOutput]: ...

    def stats(self) -> EngineStats: ...


Answers = dict[tuple[int, int], Record]
"""Records by session and turn."""


@dataclass
class _Open:
    """A session with a request in the engine."""

    number: int
    session: TokenSession
    answers: list[Record] = field(default_factory=list)
    """To all turns before this one, as they stand in its history."""
    prompt: bytes = b""
    start_s: float = 0.0
    chunk_s: list[float] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)

    def finished(self, end_s: float) -> Record:
        last = self.outputs[-1]
        return Record(
            session=self.number,
            turn=len(self.answers),
            start_s=self.start_s,
            end_s=end_s,
            chunk_s=tuple(self.chunk_s),
            prompt_tokens=last.prompt_tokens,
            cached_tokens=last.cached_tokens,
            completion_tokens=last.completion_tokens,
            text="".join(output.text for output in self.outputs),
            finish_reason=last.finish_reason,
            prompt_ids=self.prompt,
            output_ids=token_bytes([token_id for output in self.outputs for token_id in output.token_ids]),
            logprobs=tuple(logprob for output in self.outputs for logprob in output.logprobs),
        )


class ClosedLoop:
    """One run of a workload on one engine."""

    def __init__(
        self,
        engine: SteppedEngine,
        workload: Workload,
        concurrency: int,
        history: Answers | None,
        on_record: Callable[[Record], None],
    ) -> None:
        self._engine = engine
        self._workload = workload
        self._concurrency = concurrency
        self._history = history
        self._on_record = on_record
        self._waiting = list(enumerate(workload.sessions))[::-1]
        self._open: dict[str, _Open] = {}
        self._zero_s = time.perf_counter()
        self.records: list[Record] = []

    def run(self) -> float:
        """Runs to the end and returns the seconds it took. Raises RadixServeError when the engine refuses a request."""
        for _ in range(min(self._concurrency, len(self._waiting))):
            self._start_next()
        while self._open:
            for output in self._engine.step():
                self._take(output)
        return self._now_s()

    def _now_s(self) -> float:
        return time.perf_counter() - self._zero_s

    def _start_next(self) -> None:
        if self._waiting:
            number, session = self._waiting.pop()
            assert isinstance(session, TokenSession), "an engine takes token ids"
            self._ask(_Open(number, session))

    def _ask(self, opened: _Open) -> None:
        rid = f"{self._workload.name} {opened.number}.{len(opened.answers)}"
        opened.prompt = opened.session.prompt(opened.answers)
        opened.start_s = self._now_s()
        max_tokens = opened.session.turns[len(opened.answers)].max_tokens
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=self._workload.ignore_eos, logprobs=TOP_LOGPROBS)
        self._open[rid] = opened
        self._engine.receive(GenerateRequest(rid=rid, prompt_ids=opened.prompt, params=params))

    def _take(self, output: EngineOutput) -> None:
        if isinstance(output, RequestFailed):
            raise RadixServeError(f"{output.rid}: {output.message}")
        if not isinstance(output, Output):
            return
        opened = self._open[output.rid]
        opened.outputs.append(output)
        if output.token_ids:
            opened.chunk_s.append(self._now_s())
        if output.finish_reason is not None:
            del self._open[output.rid]
            self._finish(opened)

    def _finish(self, opened: _Open) -> None:
        """Notes the answer and asks the session's next turn, or starts the next session."""
        record = opened.finished(self._now_s())
        self.records.append(record)
        self._on_record(record)
        in_history = record if self._history is None else self._history[record.session, record.turn]
        answers = [*opened.answers, in_history]
        if len(answers) < len(opened.session.turns):
            self._ask(_Open(opened.number, opened.session, answers))
        else:
            self._start_next()


def flush(engine: SteppedEngine) -> None:
    """Empties the engine's tree."""
    engine.receive(FlushRequest(rid="flush"))
    for output in engine.step():
        if isinstance(output, RequestFailed):
            raise RadixServeError(output.message)


def by_turn(records: Sequence[Record]) -> Answers:
    return {(record.session, record.turn): record for record in records}
