"""The requests of a recording, for simulations under other settings."""

from dataclasses import dataclass, field

from radixserve.ipc import GenerateRequest, LoadAdapter
from radixserve.simulator.recordings import Recording
from radixserve.simulator.requests import SimRequest
from radixserve.simulator.sessions import with_sessions
from radixserve.tokens import ExtraKey, token_bytes, token_len


@dataclass
class _Asked:
    """A request, and what it was given."""

    message: GenerateRequest
    extra_key: ExtraKey
    arrival_s: float
    output: list[int] = field(default_factory=list)
    answered_s: float = 0.0

    def add(self, token_ids: list[int], now_s: float) -> None:
        self.output += token_ids
        self.answered_s = now_s


def from_recording(recording: Recording) -> list[SimRequest]:
    """The requests that were given tokens, each with as many as it got. Flushes, pins and new weights are left out."""
    asked: list[_Asked] = []
    loads: list[str | None] = [None]
    for step in recording.steps():
        for message in step.messages:
            if isinstance(message, LoadAdapter):
                loads.append(message.name)
            elif isinstance(message, GenerateRequest):
                last_load = max(number for number, name in enumerate(loads) if name == message.adapter)
                extra_key = ExtraKey(message.adapter, message.cache_salt, last_load)
                asked.append(_Asked(message, extra_key, step.applied_s))
        for arrival, token_id in step.tokens:
            if token_id >= 0:
                asked[arrival].add([token_id], step.ended_s)
        for arrival, run in step.forced:
            asked[arrival].add(run, step.ended_s)
    answered = [each for each in asked if each.output]
    requests = [_request(number, each) for number, each in enumerate(answered)]
    return with_sessions(requests, [each.answered_s for each in answered])


def _request(number: int, asked: _Asked) -> SimRequest:
    message, output_len = asked.message, len(asked.output)
    return SimRequest(
        number=number,
        arrival_s=asked.arrival_s,
        prompt_len=token_len(message.prompt_ids),
        output_len=output_len,
        max_tokens=max(message.params.max_tokens or output_len, output_len),
        extra_key=asked.extra_key,
        priority=message.priority,
        tokens=message.prompt_ids + token_bytes(asked.output),
    )
