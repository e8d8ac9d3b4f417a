"""What is asked in a simulation: requests with lengths and times, from a trace or from a recording.

Tokens of a trace are made when they are needed and not kept: a page is its id, repeated. So two pages differ from their first token
on, and memory doesn't grow with the trace. A trace has no answers: theirs are tokens that nobody else has.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from radixserve.simulator.traces import PAGE_LEN, PageIds, TraceRequest
from radixserve.tokens import SHARED, TOKEN_BYTES, ExtraKey

VOCAB_SIZE = 2**31 - 1
"""Of made-up tokens: prompts count up from 0, answers down from the end."""


@dataclass(frozen=True, kw_only=True)
class SimRequest:
    """One request. `number` counts from 0 in order of arrival; lengths in tokens."""

    number: int
    arrival_s: float
    """As recorded."""
    prompt_len: int
    output_len: int
    max_tokens: int
    """What was asked for; the answer may have stopped before."""
    extra_key: ExtraKey = SHARED
    priority: int = 0
    pages: Sequence[int] = ()
    """Ids of a trace's pages, where `tokens` is None."""
    tokens: bytes | None = field(default=None, repr=False)
    """int32 prompt and answer, where they are known."""
    follows: int | None = None
    """Number of the request whose answer it goes on from: it comes `pause_s` after that is done, whenever it came really."""
    pause_s: float = 0.0

    def prompt(self) -> bytes:
        """The prompt's tokens, int32."""
        if self.tokens is not None:
            return self.tokens[: self.prompt_len * TOKEN_BYTES]
        return np.repeat(np.array(self.pages, dtype=np.int32), PAGE_LEN)[: self.prompt_len].tobytes()

    def output(self, start: int, end: int) -> list[int]:
        """The answer's tokens [start, end)."""
        if self.tokens is None:
            return [VOCAB_SIZE - 1 - self.number] * (end - start)
        return (
            memoryview(self.tokens)[(self.prompt_len + start) * TOKEN_BYTES : (self.prompt_len + end) * TOKEN_BYTES]
            .cast("i")
            .tolist()
        )


def from_trace(trace: Sequence[TraceRequest]) -> list[SimRequest]:
    """The requests of a trace, in order of time; a turn with a `delay` has that of the turn before, and the delay."""
    before, times_ms = _turns(trace)
    order = sorted(range(len(trace)), key=times_ms.__getitem__)
    place = {line: number for number, line in enumerate(order)}
    pages: dict[int, int] = {}
    requests = []
    for number, line in enumerate(order):
        request, follows = trace[line], before[line]
        requests.append(
            SimRequest(
                number=number,
                arrival_s=times_ms[line] / 1000,
                prompt_len=request.input_length,
                output_len=max(request.output_length, 1),
                max_tokens=max(request.output_length, 1),
                pages=[pages.setdefault(page, len(pages)) for page in request.hash_ids],
                follows=None if follows is None else place[follows],
                pause_s=0.0 if follows is None else (request.delay or 0.0) / 1000,
            )
        )
    return requests


def _turns(trace: Sequence[TraceRequest]) -> tuple[list[int | None], list[float]]:
    """Of each line, the line whose answer it waits for, if any, and the earliest time at which it can come, in ms."""
    before: list[int | None] = []
    times_ms: list[float] = []
    last: dict[str | int, int] = {}
    for line, request in enumerate(trace):
        previous = None if request.session_id is None or request.delay is None else last.get(request.session_id)
        before.append(previous)
        times_ms.append(request.timestamp if previous is None else times_ms[previous] + (request.delay or 0.0))
        if request.session_id is not None:
            last[request.session_id] = line
    return before, times_ms


def to_trace(requests: Sequence[SimRequest]) -> list[TraceRequest]:
    """The lossy form: lengths, times in milliseconds, and which pages of 512 tokens are equal."""
    pages = PageIds()
    numbers: dict[tuple[ExtraKey, int], int] = {}
    trace = []
    for request in requests:
        own = pages.of(request.prompt())
        hash_ids = [numbers.setdefault((request.extra_key, page), len(numbers)) for page in own]
        trace.append(TraceRequest(request.prompt_len, request.output_len, hash_ids, round(request.arrival_s * 1000, 3)))
    return trace
