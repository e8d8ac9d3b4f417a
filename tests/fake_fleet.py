"""Workers that only take time, behind a router: each computes what its cache lacks, one prompt after another."""

import heapq
from collections import deque
from dataclasses import dataclass, field

from radixserve.routing.prompt import Prompt
from radixserve.routing.router import Router
from radixserve.tokens import SHARED, ExtraKey, token_bytes

DECODE_S = 0.5


def prompt(*parts: tuple[int, int], extra_key: ExtraKey = SHARED) -> Prompt:
    """(token, how often), one after the other."""
    return Prompt.of(token_bytes([token for token, count in parts for _ in range(count)]), extra_key)


@dataclass
class Worker:
    """Computes `speed` tokens a second and forgets nothing."""

    speed: float
    pages: set[int] = field(default_factory=set)
    queue: deque[tuple[str, Prompt]] = field(default_factory=deque)
    computed: int = 0
    served: int = 0


class FakeFleet:
    """Runs by its own clock: events are (time, order, what happens)."""

    def __init__(self, router: Router, speeds: list[float], num_slots: int = 100_000) -> None:
        self.router = router
        self.now_s = 0.0
        self.workers = {f"w{i}": Worker(speed) for i, speed in enumerate(speeds)}
        self.lost: list[str] = []
        self.asked: dict[str, Prompt] = {}
        self.ratios: list[float] = []
        """Longest queue over the mean one, in tokens, at every arrival."""
        self._events: list[tuple[float, int, str, str, str]] = []
        self._order = 0
        for name in self.workers:
            router.join(name, num_slots)

    def send(self, sent: Prompt, at_s: float) -> str:
        """A request that arrives after all before it; returns the worker's name."""
        self.run(at_s)
        rid = str(len(self.asked))
        self.asked[rid] = sent
        name = self._route(rid)
        queues = [replica.queue_tokens for replica in self.router.replicas.values()]
        self.ratios.append(max(queues) * len(queues) / max(sum(queues), 1))
        return name

    def kill(self, name: str) -> None:
        """The worker is gone with all that it had; what was there is sent again."""
        del self.workers[name]
        self.lost = self.router.leave(name)
        for rid in self.lost:
            self._route(rid)

    def run(self, until_s: float = float("inf")) -> None:
        """Lets time pass; without a time, until everything is done."""
        while self._events and self._events[0][0] <= until_s:
            self.now_s, _, what, name, rid = heapq.heappop(self._events)
            if name in self.workers:
                self._computed(name, rid) if what == "computed" else self.router.ended(rid)
        if until_s < float("inf"):
            self.now_s = until_s

    def _route(self, rid: str) -> str:
        name = self.router.route(rid, self.asked[rid])
        worker = self.workers[name]
        worker.queue.append((rid, self.asked[rid]))
        if len(worker.queue) == 1:
            self._compute(name)
        return name

    def _compute(self, name: str) -> None:
        worker = self.workers[name]
        rid, sent = worker.queue[0]
        num_held = next((i for i, page in enumerate(sent.pages) if page not in worker.pages), len(sent.pages))
        missing = sent.num_missing(num_held)
        worker.computed += missing
        self._later(missing / worker.speed, "computed", name, rid)

    def _computed(self, name: str, rid: str) -> None:
        worker = self.workers[name]
        _, sent = worker.queue.popleft()
        worker.pages |= set(sent.pages)
        worker.served += 1
        self.router.started(rid)
        self._later(DECODE_S, "ended", name, rid)
        if worker.queue:
            self._compute(name)

    def _later(self, seconds: float, what: str, name: str, rid: str) -> None:
        self._order += 1
        heapq.heappush(self._events, (self.now_s + seconds, self._order, what, name, rid))
