"""Requests through the real scheduler and the real cache, with a runner that only counts time.

A request arrives at its time, or when fewer than `MAX_WAITING` wait before it: an engine is not given more than it can order, and
the rest waits at the door, first come first served. Replicas are engines of their own; a router gives each request to one.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from radixserve.batch import ForwardBatch
from radixserve.config import EngineConfig
from radixserve.engine.counting_runner import CountedStep
from radixserve.errors import ModelError
from radixserve.limits import Limits
from radixserve.messages import GenerateRequest, Output, RequestFailed
from radixserve.sampling_params import SamplingParams
from radixserve.simulator.cost import CostModel, shape_of
from radixserve.simulator.replay import counting_engine
from radixserve.simulator.requests import VOCAB_SIZE, SimRequest

MAX_WAITING = 256
"""Requests that wait inside an engine."""
END_ID = VOCAB_SIZE
"""Stops an answer that is shorter than was asked for."""

Progress = Callable[[], None]
"""Called for every request that has ended."""


@dataclass
class Timeline:
    """What became of the requests of one engine."""

    end_s: float = 0.0
    ttft_s: list[float] = field(default_factory=list)
    """From arrival to first token, in order of first tokens."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    evicted_tokens: int = 0
    preemptions: int = 0
    steps: int = 0
    refused: int = 0
    """Requests that can't fit the pool."""


class TimingRunner:
    """Gives each request the answer that it is known to get, and adds up the seconds that its steps would take."""

    def __init__(self, cost: CostModel) -> None:
        self.now_s = 0.0
        self.requests: dict[str, SimRequest] = {}
        self._cost = cost

    def launch(self, batch: ForwardBatch) -> CountedStep:
        self.now_s += self._cost.seconds(shape_of(batch.extend_lens, batch.seq_lens))
        tokens = [self._token(req.rid, len(req.output_ids)) for req in batch.sampled]
        return CountedStep(tokens, [None] * len(tokens))

    def update_weights(self, model: str) -> None:
        raise ModelError(f"there are no weights to replace by {model!r}: this engine only counts")

    def _token(self, rid: str, at: int) -> int:
        request = self.requests[rid]
        stops = at + 1 == request.output_len < request.max_tokens
        return END_ID if stops else request.output_token(at)


class Simulation:
    """One engine and its clock."""

    def __init__(self, config: EngineConfig, num_slots: int, max_len: int, cost: CostModel) -> None:
        """`max_len`: of the longest prompt and answer together."""
        self.runner = TimingRunner(cost)
        limits = Limits(VOCAB_SIZE, max_len, num_slots // config.page_size * config.page_size, config.page_size)
        self.engine = counting_engine(config, limits, self.runner, END_ID)
        self.timeline = Timeline()

    def run(self, requests: Sequence[SimRequest], progress: Progress) -> Timeline:
        """Serves all requests, which are in order of arrival."""
        coming = deque(requests)
        while coming or self.engine.has_work:
            self._let_in(coming)
            self._step(progress)
        return self._sum_up()

    def _let_in(self, coming: deque[SimRequest]) -> None:
        """Takes in who has arrived; when there is nothing to do, time jumps to the next arrival."""
        if not self.engine.has_work:
            self.runner.now_s = max(self.runner.now_s, coming[0].arrival_s)
        room = MAX_WAITING - len(self.engine.scheduler.waiting)
        while coming and room > 0 and coming[0].arrival_s <= self.runner.now_s:
            request = coming.popleft()
            self.runner.requests[str(request.number)] = request
            self.engine.receive(_message(request))
            room -= 1

    def _step(self, progress: Progress) -> None:
        for output in self.engine.step():
            assert isinstance(output, Output | RequestFailed)
            if isinstance(output, RequestFailed):
                self.timeline.refused += 1
            elif output.completion_tokens == 1:
                self.timeline.ttft_s.append(self.runner.now_s - self.runner.requests[output.rid].arrival_s)
            if isinstance(output, RequestFailed) or output.finish_reason is not None:
                del self.runner.requests[output.rid]
                progress()

    def _sum_up(self) -> Timeline:
        stats, timeline = self.engine.stats(), self.timeline
        timeline.end_s = self.runner.now_s
        timeline.prompt_tokens, timeline.cached_tokens = stats.prompt_tokens, stats.cached_tokens
        timeline.generated_tokens, timeline.evicted_tokens = stats.generated_tokens, stats.evicted_tokens
        timeline.preemptions, timeline.steps = stats.num_preemptions, stats.num_steps
        return timeline


def _message(request: SimRequest) -> GenerateRequest:
    params = SamplingParams(max_tokens=request.max_tokens)
    extra = request.extra_key
    return GenerateRequest(
        str(request.number), request.prompt(), params, request.priority, cache_salt=extra.cache_salt, adapter=extra.adapter
    )


def split(requests: Sequence[SimRequest], num_replicas: int, choose: Callable[[SimRequest], int]) -> Iterator[list[SimRequest]]:
    """The requests of each replica; `choose` is asked for each in order of arrival."""
    parts: list[list[SimRequest]] = [[] for _ in range(num_replicas)]
    for request in requests:
        parts[choose(request)].append(request)
    yield from parts
