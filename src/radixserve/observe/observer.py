"""What an engine notes of its requests and its cache, beyond the totals of its steps. Nothing it does changes a decision."""

import time
from bisect import bisect_left
from collections.abc import Callable

import numpy as np

from radixserve.cache.events import CacheEvent, Evicted, TreeChange
from radixserve.cache.fingerprints import Fingerprints, Point, TreeFingerprints, go_on, start
from radixserve.cache_report import AGES, SIZES, CacheReport
from radixserve.explanation import Explanation
from radixserve.observe.explain import Explainer
from radixserve.observe.kv_events import EventBatch, KVEvents
from radixserve.observe.reuse import ReuseEstimator
from radixserve.req import Req
from radixserve.scheduler.events import Admitted, Admitting, Leaving, SchedulerEvent
from radixserve.scheduler.scheduler import Scheduler


class Observer:
    """Listens to one scheduler and its cache, from their start on. `publish` takes the KV events of each step."""

    def __init__(self, scheduler: Scheduler, policy: str, publish: Callable[[EventBatch], None] | None = None) -> None:
        self._policy = policy
        self._enabled = scheduler.cache.enabled
        self._tree = TreeFingerprints()
        self._explainer = Explainer(scheduler)
        self._kv_events = KVEvents(scheduler.cache.page_size) if publish is not None else None
        self._publish = publish
        self._reuse = ReuseEstimator(scheduler.cache.num_slots)
        self._prompts: dict[str, tuple[Fingerprints, Point]] = {}
        """Of running requests: the fingerprints of their prompts' prefixes, and where they end."""
        self._num_admissions = 0
        self._from_tree = self._from_copy = 0
        self._num_evictions = self._sum_ages = 0
        self._ages = [0] * (len(AGES) + 1)
        scheduler.cache.listeners.append(self._on_cache)
        scheduler.listeners.append(self._on_scheduler)

    def explanations(self, request_id: str) -> list[Explanation]:
        """Of a recent request, one a prompt and choice; none if it is unknown or forgotten."""
        return self._explainer.find(request_id)

    def report(self) -> CacheReport:
        """What was counted so far."""
        reuse = self._reuse
        return CacheReport(
            num_admissions=self._num_admissions,
            cached_by_source={"tree": self._from_tree, "copy": self._from_copy},
            policy=self._policy,
            num_evictions=self._num_evictions,
            ages=tuple(self._ages),
            sum_ages=self._sum_ages,
            distances=tuple(reuse.distances),
            sum_distances=reuse.sum_distances,
            lru_reused={f"{size:g}x": reuse.reused[size] for size in SIZES} | {"infinite": int(reuse.reused_ever)},
            hit_rates={f"{size:g}x": reuse.hit_rate(size) for size in SIZES} | {"infinite": reuse.hit_rate(None)},
        )

    def end_step(self) -> None:
        """Publishes what happened to the tree since the last step."""
        if self._kv_events is not None and self._publish is not None and (batch := self._kv_events.take()) is not None:
            self._publish(batch)

    def _on_cache(self, event: CacheEvent) -> None:
        if not isinstance(event, TreeChange):
            return
        fingerprints = self._tree.follow(event)
        self._explainer.on_cache(event, fingerprints)
        if self._kv_events is not None:
            self._kv_events.add(event, self._tree, fingerprints)
        if isinstance(event, Evicted):
            age = event.time - event.last_access_time
            self._num_evictions += 1
            self._sum_ages += age
            self._ages[bisect_left(AGES, age)] += 1

    def _on_scheduler(self, event: SchedulerEvent) -> None:
        req = event.req
        match event:
            case Admitting():
                self._begin(req)
            case Admitted():
                self._admit(req)
            case Leaving():
                self._leave(req)

    def _begin(self, req: Req) -> None:
        prefixes, end = go_on(start(req.extra_key), req.prompt)
        self._prompts[req.rid] = prefixes, end
        self._explainer.admitting(req, prefixes)

    def _admit(self, req: Req) -> None:
        self._num_admissions += 1
        self._explainer.admitted(req)
        if req.admitted_s is None:
            req.admitted_s = time.monotonic()
            self._count(req, self._prompts[req.rid][0])

    def _count(self, req: Req, prefixes: Fingerprints) -> None:
        """Counts a first admission."""
        assert req.lease is not None
        assert req.cached_len is not None
        self._from_tree += req.lease.tree_len
        self._from_copy += req.cached_len - req.lease.tree_len
        if self._enabled:
            self._reuse.admit(start(req.extra_key), prefixes, req.reusable_len, req.cached_len)

    def _leave(self, req: Req) -> None:
        self._explainer.leaving(req)
        prefixes, end = self._prompts.pop(req.rid)
        if self._enabled and req.computed_len > req.prompt_len:
            generated = go_on(end, req.token_ids(req.prompt_len, req.computed_len).tobytes())[0]
            self._reuse.use(start(req.extra_key), np.concatenate([prefixes, generated]))
