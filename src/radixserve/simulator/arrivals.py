"""When requests come: at their time, or a pause after the answer that they go on from, whenever that is done."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from heapq import heapify, heappop, heappush
from math import inf

from radixserve.simulator.requests import SimRequest


class Arrivals:
    """Requests that are still to come. Those of one time come in order of their numbers."""

    def __init__(self, requests: Iterable[SimRequest]) -> None:
        self._due: list[tuple[float, int, SimRequest]] = []
        self._following: dict[int, list[SimRequest]] = defaultdict(list)
        for request in requests:
            if request.follows is None:
                self._due.append((request.arrival_s, request.number, request))
            else:
                self._following[request.follows].append(request)
        heapify(self._due)

    @property
    def next_s(self) -> float:
        """When the next one comes, as far as is known; infinite if nobody does."""
        return self._due[0][0] if self._due else inf

    @property
    def depend_on_answers(self) -> bool:
        """Whether an answer will bring another request."""
        return bool(self._following)

    def take(self) -> SimRequest:
        """Whoever comes next."""
        return heappop(self._due)[2]

    def answered(self, number: int, now_s: float) -> None:
        """A request has its answer, or was refused: whoever goes on from it comes after the pause."""
        for request in self._following.pop(number, ()):
            arrival_s = now_s + request.pause_s
            heappush(self._due, (arrival_s, request.number, replace(request, arrival_s=arrival_s)))
