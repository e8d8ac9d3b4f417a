"""What is asked in a simulation: requests with lengths and times, from a trace or from a recording.

Tokens of a trace are made when they are needed and not kept: a page is its id, repeated. So two pages differ from their first token
on, and memory doesn't grow with the trace. A trace has no answers: theirs are tokens that nobody else has.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from radixserve.messages import GenerateRequest, LoadAdapter
from radixserve.req import SHARED, ExtraKey, token_bytes
from radixserve.simulator.recordings import Recording
from radixserve.simulator.traces import PAGE_LEN, PageIds, TraceRequest

VOCAB_SIZE = 2**31 - 1
"""Of made-up tokens: prompts count up from 0, answers down from the end."""


@dataclass(frozen=True, kw_only=True)
class SimRequest:
    """One request. `number` counts from 0 in order of arrival; lengths in tokens."""

    number: int
    arrival_s: float
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

    def prompt(self) -> bytes:
        """The prompt's tokens, int32."""
        if self.tokens is not None:
            return self.tokens[: self.prompt_len * 4]
        return np.repeat(np.array(self.pages, dtype=np.int32), PAGE_LEN)[: self.prompt_len].tobytes()

    def output(self, start: int, end: int) -> list[int]:
        """The answer's tokens [start, end)."""
        if self.tokens is None:
            return [VOCAB_SIZE - 1 - self.number] * (end - start)
        return memoryview(self.tokens)[(self.prompt_len + start) * 4 : (self.prompt_len + end) * 4].cast("i").tolist()


def from_trace(trace: Sequence[TraceRequest]) -> list[SimRequest]:
    """The requests of a trace, in order of time."""
    numbers: dict[int, int] = {}
    return [
        SimRequest(
            number=number,
            arrival_s=request.timestamp / 1000,
            prompt_len=request.input_length,
            output_len=max(request.output_length, 1),
            max_tokens=max(request.output_length, 1),
            pages=[numbers.setdefault(page, len(numbers)) for page in request.hash_ids],
        )
        for number, request in enumerate(sorted(trace, key=lambda request: request.timestamp))
    ]


def from_recording(recording: Recording) -> list[SimRequest]:
    """The requests that were given tokens, each with as many as it got. Flushes, pins and new weights are left out."""
    asked: list[tuple[float, GenerateRequest, ExtraKey]] = []
    given: list[list[int]] = []
    loads: list[str | None] = [None]
    for step in recording.steps():
        for message in step.messages:
            if isinstance(message, LoadAdapter):
                loads.append(message.name)
            elif isinstance(message, GenerateRequest):
                last_load = max(number for number, name in enumerate(loads) if name == message.adapter)
                asked.append((step.time_s, message, ExtraKey(message.adapter, message.cache_salt, last_load)))
                given.append([])
        for arrival, token_id in step.tokens:
            if token_id >= 0:
                given[arrival].append(token_id)
        for arrival, run in step.forced:
            given[arrival] += run
    answered = [(*request, output) for request, output in zip(asked, given, strict=True) if output]
    return [
        SimRequest(
            number=number,
            arrival_s=time_s,
            prompt_len=len(message.prompt_ids) // 4,
            output_len=len(output),
            max_tokens=max(message.params.max_tokens or len(output), len(output)),
            extra_key=extra_key,
            priority=message.priority,
            tokens=message.prompt_ids + token_bytes(output),
        )
        for number, (time_s, message, extra_key, output) in enumerate(answered)
    ]


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
