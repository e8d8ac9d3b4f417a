"""Engines behind a router, on one clock.

The router knows what it would know in service: what it sent where, first tokens and ends, and what the caches report. It hears of a
step's outcome when the step begins.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from radixserve.ipc import Output, RequestFailed
from radixserve.routing.prompt import Prompt
from radixserve.routing.reporter import Reporter
from radixserve.routing.router import Router
from radixserve.simulator.arrivals import Arrivals
from radixserve.simulator.requests import SimRequest
from radixserve.simulator.simulate import Progress, Simulation, Timeline, namespace


@dataclass(frozen=True)
class Reports:
    """What one engine's cache tells the router."""

    router: Router
    name: str

    def stored(self, pages: list[int]) -> None:
        self.router.stored(self.name, pages)

    def removed(self, pages: list[int]) -> None:
        self.router.removed(self.name, pages)

    def flushed(self) -> None:
        self.router.flushed(self.name)


class Fleet:
    """The engines, each of which must be new."""

    def __init__(self, engines: Sequence[Simulation], router: Router) -> None:
        """Every engine joins the router, which must be empty."""
        self._engines = {str(number): engine for number, engine in enumerate(engines)}
        self._router = router
        for name, engine in self._engines.items():
            router.join(name, engine.engine.cache.num_slots)
            engine.engine.cache.listeners.append(Reporter(Reports(router, name)))

    def run(self, requests: Iterable[SimRequest], progress: Progress) -> list[Timeline]:
        """Serves all requests; returns what became of those of each engine."""
        arrivals = Arrivals(requests)
        while True:
            busy = sorted((engine for engine in self._engines.values() if engine.is_busy), key=lambda engine: engine.now_s)
            if busy and busy[0].now_s < arrivals.next_s:
                self._go_on(busy, arrivals, progress)
            elif arrivals.next_s < inf:
                self._route(arrivals.take())
            else:
                return [engine.sum_up() for engine in self._engines.values()]

    def _go_on(self, busy: Sequence[Simulation], arrivals: Arrivals, progress: Progress) -> None:
        """Lets the engine that is farthest behind go on, though not beyond the next arrival.

        An answer that another is about to give may bring a request: then it doesn't jump beyond that one's time either.
        """
        first = busy[0]
        until_s = busy[1].now_s if len(busy) > 1 and arrivals.depend_on_answers else inf

        def heard(output: Output | RequestFailed) -> None:
            if isinstance(output, Output) and output.completion_tokens == 1:
                self._router.started(output.rid)
            if isinstance(output, RequestFailed) or output.finish_reason is not None:
                self._router.ended(output.rid)
                arrivals.answered(int(output.rid), first.now_s)
                progress()

        first.go_on(min(until_s, arrivals.next_s), heard)

    def _route(self, request: SimRequest) -> None:
        prompt = Prompt.of(request.prompt(), namespace(request))
        self._engines[self._router.route(str(request.number), prompt)].take(request)
