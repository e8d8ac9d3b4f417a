"""Requests through the real scheduler and the real cache, with a runner that only counts time.

A request arrives at its time, or when fewer than `MAX_WAITING` wait before it: an engine is not given more than it can order, and
the rest waits at the door, first come first served.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from radixserve.batch import ForwardBatch
from radixserve.config import EngineConfig
from radixserve.engine.counting_runner import CountedStep
from radixserve.ipc import GenerateRequest, Output, RequestFailed
from radixserve.limits import Limits
from radixserve.req import Req
from radixserve.sampling_params import SamplingParams
from radixserve.simulator.cost import CostModel, StepShape, shape_of
from radixserve.simulator.jump import find_steady
from radixserve.simulator.replay import counting_engine
from radixserve.simulator.requests import VOCAB_SIZE, SimRequest
from radixserve.tokens import SHARED, ExtraKey

MAX_WAITING = 128
"""Requests that wait inside an engine."""
END_ID = VOCAB_SIZE
"""Stops an answer that is shorter than was asked for."""

Progress = Callable[[], None]
"""Called for every request that has ended."""
Listen = Callable[[Output | RequestFailed], None]
"""Called for all that an engine answers."""


@dataclass
class Timeline:
    """What became of the requests of one engine."""

    arrived_s: float = 0.0
    """When the last one arrived,"""
    end_s: float = 0.0
    """and when the last answer was done."""
    ttft_s: list[float] = field(default_factory=list)
    """From arrival to first token, in order of first tokens."""
    served: list[tuple[float, int]] = field(default_factory=list)
    """When each request got its first token, and its number."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    computed_tokens: int = 0
    """Positions that the model would have run."""
    evicted_tokens: int = 0
    preemptions: int = 0
    steps: int = 0
    refused: list[int] = field(default_factory=list)
    """Numbers of the requests that can't fit the pool."""


class TimingRunner:
    """Gives each request the answer that it is known to get, and adds up the seconds that its steps would take."""

    def __init__(self, cost: CostModel) -> None:
        self.now_s = 0.0
        self.requests: dict[str, SimRequest] = {}
        self._cost = cost

    def launch(self, batch: ForwardBatch) -> CountedStep:
        self.pass_time(shape_of(batch.extend_lens, batch.seq_lens))
        tokens = [self.tokens(req, 1)[0] for req in batch.sampled]
        return CountedStep(tokens, [None] * len(tokens))

    def pass_time(self, shape: StepShape) -> None:
        """Lets a step pass."""
        self.now_s += self._cost.seconds(shape)

    def left(self, req: Req) -> int:
        """Tokens that a request will still be given."""
        return self.requests[req.rid].output_len - len(req.output_ids)

    def tokens(self, req: Req, count: int) -> list[int]:
        """The next tokens of a request's answer; the last one stops it where it is shorter than was asked for."""
        request, start = self.requests[req.rid], len(req.output_ids)
        tokens = request.output(start, start + count)
        if start + count == request.output_len < request.max_tokens:
            tokens[-1] = END_ID
        return tokens


class Simulation:
    """One engine and its clock."""

    def __init__(self, config: EngineConfig, num_slots: int, max_len: int, cost: CostModel, *, jumps: bool = True) -> None:
        """`max_len`: of the longest prompt and answer together. Without `jumps` every step is made."""
        self._jumps = jumps
        self.runner = TimingRunner(cost)
        limits = Limits(VOCAB_SIZE, max_len, num_slots // config.page_size * config.page_size, config.page_size)
        self.engine = counting_engine(config, limits, self.runner, END_ID)
        self.timeline = Timeline()
        self._coming: deque[SimRequest] = deque()

    @property
    def now_s(self) -> float:
        """Up to when it has gone: the next step begins then."""
        return self.runner.now_s

    @property
    def is_busy(self) -> bool:
        """Whether there is anything to do with what was taken."""
        return bool(self._coming) or self.engine.has_work

    def take(self, request: SimRequest) -> None:
        """A request that arrives after those taken before it; if the engine is idle, it waits for it."""
        if not self.is_busy:
            self.runner.now_s = max(self.now_s, request.arrival_s)
        self._coming.append(request)
        self.timeline.arrived_s = request.arrival_s

    def go_on(self, until_s: float, listen: Listen) -> None:
        """Makes the next step. What only lengthens before it is jumped over, but not beyond `until_s`: then that is all."""
        if not self._let_in() and self._jumps and self._jump(until_s):
            if self.now_s >= until_s:
                return
            self._let_in()
        self._step(listen)

    def _let_in(self) -> bool:
        """Takes in who has arrived; whether anybody has."""
        room = MAX_WAITING - len(self.engine.scheduler.waiting)
        anybody = False
        while room > 0 and self._has_arrived():
            request = self._coming.popleft()
            self.runner.requests[str(request.number)] = request
            self.engine.receive(_message(request))
            room, anybody = room - 1, True
        return anybody

    def _has_arrived(self) -> bool:
        return bool(self._coming) and self._coming[0].arrival_s <= self.runner.now_s

    def _jump(self, until_s: float) -> bool:
        """Makes the steps at once in which only lengths change, up to the next arrival or `until_s`; whether there were any."""
        scheduler = self.engine.scheduler
        steady = find_steady(scheduler, self.runner.left)
        if steady is None:
            return False
        has_room = len(scheduler.waiting) < MAX_WAITING
        num_steps = 0
        while num_steps < steady.num_steps and self.runner.now_s < until_s:
            if num_steps and has_room and self._has_arrived():
                break
            self.runner.pass_time(steady.shape(num_steps))
            num_steps += 1
        steady.take(self.engine, num_steps, self.runner.tokens)
        return num_steps > 0

    def _step(self, listen: Listen) -> None:
        for output in self.engine.step():
            assert isinstance(output, Output | RequestFailed)
            if isinstance(output, RequestFailed):
                self.timeline.refused.append(self.runner.requests[output.rid].number)
            elif output.completion_tokens == 1:
                request = self.runner.requests[output.rid]
                self.timeline.ttft_s.append(self.runner.now_s - request.arrival_s)
                self.timeline.served.append((self.runner.now_s, request.number))
            if isinstance(output, RequestFailed) or output.finish_reason is not None:
                del self.runner.requests[output.rid]
            listen(output)

    def sum_up(self) -> Timeline:
        """What became of all requests."""
        stats, timeline = self.engine.stats(), self.timeline
        timeline.end_s = self.runner.now_s
        timeline.prompt_tokens, timeline.cached_tokens = stats.prompt_tokens, stats.cached_tokens
        timeline.generated_tokens, timeline.evicted_tokens = stats.generated_tokens, stats.evicted_tokens
        timeline.preemptions, timeline.steps = stats.num_preemptions, stats.num_steps
        timeline.computed_tokens = stats.computed_tokens
        return timeline


def namespace(request: SimRequest) -> ExtraKey:
    """Where its tokens are kept. A simulated engine has no adapters: whatever tells namespaces apart becomes a salt."""
    return SHARED if request.extra_key == SHARED else ExtraKey(cache_salt=repr(tuple(request.extra_key)))


def _message(request: SimRequest) -> GenerateRequest:
    params = SamplingParams(max_tokens=request.max_tokens)
    salt = namespace(request).cache_salt
    return GenerateRequest(str(request.number), request.prompt(), params, request.priority, cache_salt=salt)
