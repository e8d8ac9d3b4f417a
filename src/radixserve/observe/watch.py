"""Watches an engine's cache and its requests on behalf of the live page. Exists only while somebody looks; decides nothing."""

from itertools import islice

from radixserve.cache.events import CacheEvent
from radixserve.cache.lease import Lease
from radixserve.observe.news import News, NodeState, RequestState, RootState, Snapshot
from radixserve.req import Req
from radixserve.scheduler.admission import Candidate
from radixserve.scheduler.pins import Pins
from radixserve.scheduler.scheduler import Scheduler
from radixserve.tokens import TOKEN_BYTES

NUM_VICTIMS = 12
"""Leaves told of that go next."""

LAST_TOKENS = 48
"""Tokens of a prompt's end that are told, to know a request by."""


class Watch:
    """Collects the events of a scheduler's cache from its making until `stop`."""

    def __init__(self, scheduler: Scheduler, pins: Pins) -> None:
        self._scheduler = scheduler
        self._cache = scheduler.cache
        self._pins = pins
        self._events: list[CacheEvent] = []
        self._told: dict[str, _Told] = {}
        self._last: tuple[list[int], list[int]] = [], []
        self._listener = self._events.append
        self._cache.listeners.append(self._listener)

    def stop(self) -> None:
        """Listens no more."""
        self._cache.listeners.remove(self._listener)

    def snapshot(self) -> Snapshot:
        """Everything as of now; the next `news` counts from here."""
        cache = self._cache
        self._events.clear()
        self._told.clear()
        requests, _ = self._requests()
        self._last = self._pins.serials, self._victims()
        return Snapshot(
            num_slots=cache.num_slots,
            page_size=cache.page_size,
            clock=cache.clock,
            roots=[RootState(root.serial, key, root.lock_ref) for key, root in cache.tree.roots.items()],
            nodes=[
                NodeState(
                    node.serial,
                    node.parent.serial if node.parent is not None else 0,
                    node.key,
                    node.slots.tobytes(),
                    node.created,
                    node.last_access_time,
                    node.hit_count,
                    node.lock_ref,
                )
                for _, node in cache.walk()
            ],
            requests=requests,
            pins=self._last[0],
            victims=self._last[1],
        )

    def news(self) -> News | None:
        """What changed since the last `snapshot` or `news`; None if nothing did."""
        requests, ended = self._requests()
        now = self._pins.serials, self._victims()
        if not self._events and not requests and not ended and now == self._last:
            return None
        events, self._last = self._events.copy(), now
        self._events.clear()
        return News(events, self._cache.clock, requests, ended, pins=now[0], victims=now[1])

    def _victims(self) -> list[int]:
        return [node.serial for node in islice(self._cache.evictor.queue.upcoming(self._cache.clock), NUM_VICTIMS)]

    def _requests(self) -> tuple[list[RequestState], list[str]]:
        """The requests that are new or changed, and the ids of those that are gone."""
        running, waiting, changed = self._scheduler.running, self._scheduler.waiting, []
        for req in [*running, *self._new_waiting()]:
            told = self._told.get(req.rid)
            if told is None or told.progress != _progress(req):
                changed.append(_state(req, told))
                self._told[req.rid] = _Told(req, waiting.get(req.rid))
        ended: list[str] = []
        if len(self._told) > len(running) + len(waiting):
            rids = {req.rid for req in running}
            ended = [rid for rid in self._told if rid not in rids and rid not in waiting]
        for rid in ended:
            del self._told[rid]
        return changed, ended

    def _new_waiting(self) -> list[Req]:
        """Those that began to wait since the last time: the last ones. Nothing changes of a request while it waits."""
        new: list[Req] = []
        for rid, candidate in reversed(self._scheduler.waiting.items()):
            told = self._told.get(rid)
            if told is not None and told.candidate is candidate:
                break
            new.append(candidate.req)
        return new[::-1]


class _Told:
    """What was told of a request."""

    __slots__ = ("candidate", "lease", "num_slots", "progress")

    def __init__(self, req: Req, candidate: Candidate | None) -> None:
        self.candidate = candidate
        """As what it waited, if it did."""
        self.lease: Lease | None = req.lease
        self.num_slots = req.lease.num_slots if req.lease is not None else 0
        self.progress = _progress(req)


def _progress(req: Req) -> tuple[int | None, ...]:
    """Changes when anything changes that is told of a request."""
    lease = req.lease
    place = (lease.node.serial, lease.tree_len, lease.num_slots) if lease is not None else (0, 0, 0)
    return (req.cached_len, req.computed_len, len(req.output_ids), *place)


def _state(req: Req, told: _Told | None) -> RequestState:
    lease = req.lease
    restarted = told is None or told.lease is not lease
    new_slots, own_start = b"", 0
    if lease is not None:
        own_start = lease.tree_len
        new_slots = lease.slots[own_start if restarted or told is None else max(own_start, told.num_slots) :].tobytes()
    return RequestState(
        rid=req.rid,
        phase="waiting" if lease is None else "running",
        extra_key=req.extra_key,
        prompt_tokens=req.prompt_len,
        cached_tokens=req.cached_len,
        computed_tokens=req.computed_len,
        generated_tokens=len(req.output_ids),
        node=lease.node.serial if lease is not None else 0,
        own_start=own_start,
        new_slots=new_slots,
        restarted=restarted,
        last_tokens=req.prompt[-LAST_TOKENS * TOKEN_BYTES :] if told is None else b"",
    )
