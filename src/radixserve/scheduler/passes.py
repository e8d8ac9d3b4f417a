"""Who was passed over how often: how many later arrivals were admitted before a waiting request."""

from bisect import bisect_left

from radixserve.scheduler.admission import Candidate


class Passes:
    """Counts for all waiting requests until they were passed over `most` times.

    Who is admitted passes everybody that came before it. So of two that wait the earlier was passed at least as often, and the
    first of all is the first to reach the limit. Counts are kept as differences: that of a request is the sum from it to the end.
    An admission changes one of them.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._arrivals: list[int] = []
        """Of the candidates, ascending."""
        self._candidates: list[Candidate] = []
        self._differences: list[int] = []
        self._sum = 0

    def add(self, candidate: Candidate) -> None:
        """A request begins to wait. One that was preempted counts as passed over as often as the next that came after it."""
        at = bisect_left(self._arrivals, candidate.req.arrival)
        self._arrivals.insert(at, candidate.req.arrival)
        self._candidates.insert(at, candidate)
        self._differences.insert(at, 0)

    def remove(self, candidate: Candidate) -> None:
        """A request ends while it waits."""
        at = bisect_left(self._arrivals, candidate.req.arrival)
        if at < len(self._arrivals) and self._candidates[at] is candidate:
            self._take(at)

    def admit(self, candidate: Candidate) -> list[Candidate]:
        """A request is admitted. Takes out, and returns, those that must not be passed over any more."""
        at = bisect_left(self._arrivals, candidate.req.arrival)
        if at:
            self._differences[at - 1] += 1
            self._sum += 1
        self.remove(candidate)
        starved = []
        while self._arrivals and self._sum >= self._most:
            starved.append(self._candidates[0])
            self._take(0)
        return starved

    def _take(self, at: int) -> None:
        """Removes one entry; what it was passed over, those before it were too."""
        del self._arrivals[at], self._candidates[at]
        difference = self._differences.pop(at)
        if at:
            self._differences[at - 1] += difference
        else:
            self._sum -= difference
