"""Replicas in a simulation: one clock, one router, caches of their own."""

import pytest

from radixserve.config import EngineConfig
from radixserve.routing.policies import POLICIES
from radixserve.routing.router import Router
from radixserve.simulator.cost import CostModel
from radixserve.simulator.fleet import Fleet
from radixserve.simulator.requests import SimRequest, from_trace
from radixserve.simulator.simulate import Simulation, Timeline
from radixserve.simulator.traces import PAGE_LEN, TraceRequest

COST = CostModel(0.001, 0.0001, 0.0, 0.0)
MAX_LEN = 20_000


def conversations(num_sessions: int, num_turns: int) -> list[SimRequest]:
    """Sessions that begin alike and grow by two pages a turn; one request a second."""
    trace = []
    for turn in range(num_turns):
        for session in range(num_sessions):
            own = [1000 * (session + 1) + page for page in range(2 * turn + 2)]
            length = PAGE_LEN * (len(own) + 1)
            trace.append(TraceRequest(length, 10, [0, *own], 1000.0 * len(trace)))
    return from_trace(trace)


def engine(num_slots: int) -> Simulation:
    return Simulation(EngineConfig(), num_slots, MAX_LEN, COST)


def serve(requests: list[SimRequest], router: Router, num_replicas: int, num_slots: int = 100_000) -> list[Timeline]:
    ended: list[None] = []
    timelines = Fleet([engine(num_slots) for _ in range(num_replicas)], router).run(requests, lambda: ended.append(None))
    assert len(ended) == len(requests)
    return timelines


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_with_one_replica_there_is_no_choice(policy: str) -> None:
    requests = conversations(5, 4)
    assert serve(requests, Router(policy), 1, 20_000) == serve(requests, Router(), 1, 20_000)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_counts_return_to_zero_and_reports_are_heard(policy: str) -> None:
    router = Router(policy)
    timelines = serve(conversations(8, 6), router, 4, 7000)
    assert sum(timeline.evicted_tokens for timeline in timelines) > 0
    for replica in router.replicas.values():
        assert (replica.queue_tokens, replica.num_requests) == (0, 0)
        assert len(replica.held) <= 7000 // 64


def test_by_prefix_sessions_hit_as_in_one_cache() -> None:
    requests = conversations(12, 5)
    found = {policy: serve(requests, Router(policy), 4, 25_000) for policy in ("prefix", "random")}
    cached = {policy: sum(timeline.cached_tokens for timeline in timelines) for policy, timelines in found.items()}
    (alone,) = serve(requests, Router(), 1, 100_000)
    assert cached["prefix"] > 0.8 * alone.cached_tokens
    assert cached["random"] < 0.6 * alone.cached_tokens
    computed = [timeline.computed_tokens for timeline in found["prefix"]]
    assert max(computed) < 2 * sum(computed) / 4


def test_a_request_too_long_for_a_replica_is_counted_out() -> None:
    router = Router()
    timelines = serve(conversations(1, 4), router, 2, 2000)
    assert sum(len(timeline.refused) for timeline in timelines) == 3
    assert [replica.num_requests for replica in router.replicas.values()] == [0, 0]
