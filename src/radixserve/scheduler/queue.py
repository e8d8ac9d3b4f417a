"""The waiting requests, and which of them is to be admitted next.

What a pass costs depends on what is admitted and on what changed, not on how many wait: a heap in the order of admission; matches
that the tree reports when they may have changed (`cache/followed.py`); and requests that sleep while what they need is computed
(`in_flight.py`). Only the order `tree` looks at everybody, once a pass.

Invariant: a candidate has an entry in the heap and is followed, or it sleeps, or it is one of those that the tree has reported.
"""

from heapq import heapify, heappop, heappush

from radixserve.cache.node import Node
from radixserve.cache.prefix_cache import PrefixCache
from radixserve.cache.radix_tree import name
from radixserve.req import Req
from radixserve.scheduler.admission import Candidate, Key, Order
from radixserve.scheduler.in_flight import InFlight
from radixserve.scheduler.passes import Passes


class Queue:
    """The queue of one scheduler."""

    def __init__(self, cache: PrefixCache, order: Order, max_passed_over: int) -> None:
        self.candidates: dict[str, Candidate] = {}
        """By request id, in the order in which they were added."""
        self._cache = cache
        self._order = order
        self._passes = Passes(max_passed_over)
        self._in_flight = InFlight(cache)
        self._heap: list[tuple[Key, Candidate]] = []
        """Some entries are stale: those that are not their candidate's `entry`."""

    def add(self, req: Req) -> None:
        """A request begins to wait, or does again."""
        candidate = self.candidates[req.rid] = Candidate(req)
        if not req.starved:
            self._passes.add(candidate)
        self._follow(candidate)

    def remove(self, rid: str) -> bool:
        """Ends the waiting of a request; False if it doesn't wait."""
        candidate = self.candidates.pop(rid, None)
        if candidate is None:
            return False
        self._passes.remove(candidate)
        self._in_flight.remove(candidate)
        self._take_out(candidate)
        return True

    def begin_pass(self, running: list[Req]) -> None:
        """Takes in what the running requests have computed since the last pass."""
        for candidate in self._in_flight.look_at(running):
            self._follow(candidate)
        self._refresh()
        if self._order.number is not None:
            self._order.number(self.candidates.values(), self._cache)
            self._sort()

    def first(self) -> Candidate | None:
        """Who is to be admitted next; None if nobody waits but those that sleep."""
        self._refresh()
        while self._heap:
            entry, candidate = self._heap[0]
            if candidate.entry is entry:
                place = self._in_flight.put_to_sleep(candidate)
                if place is None:
                    return candidate
                self._take_out(candidate)
                candidate.place = place
            heappop(self._heap)
        return None

    def admit(self, candidate: Candidate) -> None:
        """A request has been admitted and is running now."""
        del self.candidates[candidate.req.rid]
        self._take_out(candidate)
        self._in_flight.add(candidate.req)
        for starved in self._passes.admit(candidate):
            starved.req.starved = True
            if starved.entry is not None:
                self._put(starved)

    def has_match_at(self, node: Node) -> bool:
        """Whether the match of a waiting request ends in the edge of a node, or at its end."""
        return self._cache.tree.followed.has_any_at(name(node)) or self._in_flight.has_sleepers_at(name(node))

    def _refresh(self) -> None:
        """Matches those again whose match may have changed."""
        for candidate in self._cache.take_changed():
            assert isinstance(candidate, Candidate)
            self._follow(candidate)

    def _follow(self, candidate: Candidate) -> None:
        self._cache.follow(candidate)
        self._put(candidate)

    def _put(self, candidate: Candidate) -> None:
        """Puts a candidate into the heap, or to another place there."""
        candidate.entry = self._entry(candidate)
        if len(self._heap) > 2 * len(self.candidates) + 64:
            self._sort()
        else:
            heappush(self._heap, (candidate.entry, candidate))

    def _sort(self) -> None:
        """Makes the heap again, of those that have an entry."""
        self._heap = []
        for candidate in self.candidates.values():
            if candidate.entry is not None:
                candidate.entry = self._entry(candidate)
                self._heap.append((candidate.entry, candidate))
        heapify(self._heap)

    def _entry(self, candidate: Candidate) -> Key:
        req = candidate.req
        return (0, -req.priority, req.arrival) if req.starved else (1, -req.priority, *self._order.key(candidate))

    def _take_out(self, candidate: Candidate) -> None:
        """Nothing is to be heard of its match, and it can't be first."""
        if candidate.entry is not None:
            self._cache.unfollow(candidate)
            candidate.entry = None
