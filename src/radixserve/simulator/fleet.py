"""Engines behind a router, on one clock.

The router knows what it would know in service: what it sent where, first tokens and ends, and what the caches report. It hears of a
step's outcome when the step begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from radixserve.messages import Output, RequestFailed
from radixserve.routing.prompt import Prompt
from radixserve.routing.reporter import Reporter
from radixserve.routing.router import Router
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

    def run(self, requests: Sequence[SimRequest], progress: Progress) -> list[Timeline]:
        """Serves all requests, which are in order of arrival; returns what became of those of each engine."""

        def heard(output: Output | RequestFailed) -> None:
            if isinstance(output, Output) and output.completion_tokens == 1:
                self._router.started(output.rid)
            if isinstance(output, RequestFailed) or output.finish_reason is not None:
                self._router.ended(output.rid)
                progress()

        for arrival_s, arrived in groupby(requests, key=lambda request: request.arrival_s):
            for engine in self._engines.values():
                engine.advance(arrival_s, heard)
            for request in arrived:
                prompt = Prompt.of(request.prompt(), namespace(request))
                self._engines[self._router.route(str(request.number), prompt)].take(request)
        for engine in self._engines.values():
            engine.advance(float("inf"), heard)
        return [engine.sum_up() for engine in self._engines.values()]
