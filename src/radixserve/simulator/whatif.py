"""`radixserve simulate`: which settings to try on what, one after another."""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import msgspec
import numpy as np

from radixserve.cache.eviction import POLICIES
from radixserve.config import EngineConfig, Order
from radixserve.errors import ConfigError
from radixserve.model_files import reading
from radixserve.routing.policies import POLICIES as ROUTERS
from radixserve.routing.router import Router
from radixserve.scheduler.admission import ORDERS
from radixserve.simulator.cost import CostModel, load
from radixserve.simulator.fleet import Fleet
from radixserve.simulator.optimum import Clairvoyant, infinite_hits, num_unique_tokens, uses_of
from radixserve.simulator.options import SimulateOptions, names, numbers, sizes
from radixserve.simulator.recorded_requests import from_recording
from radixserve.simulator.recordings import Recording, read_header
from radixserve.simulator.replay import Replay
from radixserve.simulator.requests import SimRequest, from_trace
from radixserve.simulator.simulate import Progress, Simulation, Timeline
from radixserve.simulator.traces import read_trace


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One column of the cross product."""

    num_slots: int
    policy: str
    order: Order
    page_size: int
    replicas: int
    router: str


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a setting would have done. Rates are shares of all prompt tokens; times in seconds."""

    setting: Setting
    requests: int
    following: int
    """Of these, those that come after the answer that they go on from; the others come at their recorded times."""
    refused: int
    """Requests that don't fit the pool."""
    hit_rate: float
    balance: float
    """Tokens computed by the replica that computed most, over the mean of all."""
    infinite_hit_rate: float
    optimal_hit_rate: float
    """Of the clairvoyant cache of the same size, all replicas' pools in one, that serves in the same order."""
    saved_tokens: int
    evicted_tokens: int
    preemptions: int
    ttft_median_s: float | None
    """None when no request got a token."""
    ttft_p99_s: float | None
    tokens_per_s: float
    """Generated tokens over the whole time."""
    arrived_s: float
    """When the last request arrived,"""
    end_s: float
    """and when the last answer was done."""
    simulated_in_s: float
    """What the simulation took."""


@dataclass
class Subject:
    """What is simulated, and the settings that it came with."""

    requests: list[SimRequest]
    config: EngineConfig
    num_slots: int | None
    """Recorded size of the pool."""
    replayed_steps: int | None = None
    """Steps of the recording that were replayed and found equal."""


def read(path: Path) -> Subject:
    """A recording, which is replayed and checked first, or a trace. Raises ConfigError when it is neither."""
    if read_header(path) is None:
        subject = Subject(from_trace(read_trace(path)), EngineConfig(), None)
    else:
        with reading(path, "record it again", ConfigError):
            recording = Recording(path)
            replay = Replay(recording)
            replay.run()
            config = msgspec.convert(recording.header.settings, EngineConfig)
            subject = Subject(from_recording(recording), config, recording.header.limits.num_slots, replay.num_steps)
    if not subject.requests:
        raise ConfigError(f"{path} has no request that was answered: there is nothing to simulate")
    return subject


def settings(subject: Subject, options: SimulateOptions, unique_tokens: int) -> list[Setting]:
    """All combinations, the pool's size varying fastest."""
    default_slots = "1%,5%,10%" if subject.num_slots is None else str(subject.num_slots)
    config = subject.config
    lists = (
        numbers("--replicas", options.replicas),
        names("--router", options.router, list(ROUTERS)),
        names("--policy", options.policy or config.eviction_policy, sorted(POLICIES)),
        names("--order", options.order or config.order, list(ORDERS)),
        numbers("--page-size", options.page_size or str(config.page_size)),
        sizes("--num-slots", options.num_slots or default_slots, unique_tokens),
    )
    return [
        Setting(num_slots=num_slots, policy=policy, order=cast(Order, order), page_size=page_size, replicas=replicas, router=router)
        for replicas, router, policy, order, page_size, num_slots in itertools.product(*lists)
        if replicas > 1 or router == lists[1][0]
    ]


class WhatIf:
    """Predictions for one subject."""

    def __init__(self, subject: Subject, options: SimulateOptions) -> None:
        self.cost: CostModel = load(options.cost_model)
        self._requests = [
            replace(request, arrival_s=request.arrival_s / options.speed, pause_s=request.pause_s / options.speed)
            for request in subject.requests
        ]
        self._config = replace(
            subject.config,
            max_running=min(options.max_running or subject.config.max_running, len(subject.requests)),
            max_batch_tokens=options.max_batch_tokens or subject.config.max_batch_tokens,
        )
        self._uses = uses_of(self._requests)
        self._prompt_tokens = sum(request.prompt_len for request in self._requests)
        self._infinite_hits = infinite_hits(self._uses)
        self._optima: dict[tuple[int, tuple[int, ...]], int] = {}
        self.settings = settings(subject, options, num_unique_tokens(self._uses))

    def predictions(self, progress: Progress) -> Iterator[Prediction]:
        """One for each of `settings`; `progress` is called for every request that ends."""
        for setting in self.settings:
            start_s = time.perf_counter()
            fleet = Fleet([self._engine(setting) for _ in range(setting.replicas)], Router(setting.router))
            timelines = fleet.run(self._requests, progress)
            yield self._predict(setting, timelines, time.perf_counter() - start_s)

    def _engine(self, setting: Setting) -> Simulation:
        config = replace(self._config, eviction_policy=setting.policy, order=setting.order, page_size=setting.page_size)
        if setting.num_slots < setting.page_size:
            raise ConfigError(f"--num-slots {setting.num_slots} is less than one page of {setting.page_size}: raise it")
        max_len = max(request.prompt_len + request.max_tokens for request in self._requests)
        return Simulation(config, setting.num_slots, max_len, self.cost)

    def _predict(self, setting: Setting, timelines: list[Timeline], simulated_in_s: float) -> Prediction:
        cached_tokens = sum(timeline.cached_tokens for timeline in timelines)
        ttft_s = [ttft for timeline in timelines for ttft in timeline.ttft_s]
        end_s = max(timeline.end_s for timeline in timelines)
        served = tuple(number for _, number in sorted(first for timeline in timelines for first in timeline.served))
        return Prediction(
            setting=setting,
            requests=len(self._requests),
            following=sum(request.follows is not None for request in self._requests),
            refused=sum(len(timeline.refused) for timeline in timelines),
            hit_rate=cached_tokens / self._prompt_tokens,
            balance=_balance(timelines),
            infinite_hit_rate=self._infinite_hits / self._prompt_tokens,
            optimal_hit_rate=self._optimum(setting.num_slots * setting.replicas, served) / self._prompt_tokens,
            saved_tokens=cached_tokens,
            evicted_tokens=sum(timeline.evicted_tokens for timeline in timelines),
            preemptions=sum(timeline.preemptions for timeline in timelines),
            ttft_median_s=float(np.median(ttft_s)) if ttft_s else None,
            ttft_p99_s=float(np.percentile(ttft_s, 99)) if ttft_s else None,
            tokens_per_s=sum(timeline.generated_tokens for timeline in timelines) / max(end_s, 1e-9),
            arrived_s=max(timeline.arrived_s for timeline in timelines),
            end_s=end_s,
            simulated_in_s=simulated_in_s,
        )

    def _optimum(self, num_slots: int, served: tuple[int, ...]) -> int:
        """Of the requests that were served, in the order of their first tokens: an order of admission may bring requests together
        that share a prefix, and a cache that knows the future of another order reuses less than that."""
        key = num_slots, served
        if key not in self._optima:
            self._optima[key] = Clairvoyant([self._uses[number] for number in served], num_slots).hits
        return self._optima[key]


def _balance(timelines: list[Timeline]) -> float:
    computed = [timeline.computed_tokens for timeline in timelines]
    return max(computed) * len(computed) / max(sum(computed), 1)
