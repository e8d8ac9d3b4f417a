"""Ranks that are fed the same messages have the same trees, whatever comes; one that differs is noticed before it computes."""

import contextlib
import random
import socket
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest

from radixserve.config import EngineConfig
from radixserve.engine.engine import Engine
from radixserve.engine.ranks.follow import follow
from radixserve.engine.ranks.leader import Leader
from radixserve.engine.ranks.link import Fault, Link, PeerLostError
from radixserve.engine.ranks.runners import FollowingRunner, LeadingRunner
from radixserve.errors import RankError
from radixserve.ipc import AbortRequest, FlushRequest, GenerateRequest
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import token_bytes
from tests.hash_runner import hash_engine, solo
from tests.traffic import Traffic


@contextlib.contextmanager
def engines_of(size: int, **settings: object) -> Iterator[list[Engine]]:
    """Engines over hashes: the first leads, the others follow on threads, until the end of the block."""
    leader = Leader(EngineConfig())
    engines = [hash_engine(**settings) for _ in range(size)]  # type: ignore[arg-type]
    engines[0].leader = leader
    engines[0].runner = LeadingRunner(engines[0].runner, leader, engines[0].cache)
    threads = []
    for rank, engine in enumerate(engines[1:], 1):
        ours, theirs = socket.socketpair()
        leader.links.append(Link(Connection(ours.detach())))
        link = Link(Connection(theirs.detach()))
        engine.runner = FollowingRunner(engine.runner, link, rank, engine.cache)
        threads.append(threading.Thread(target=_follow, args=(engine, link)))
        threads[-1].start()
    try:
        yield engines
    finally:
        for link in leader.links:
            link.close()
        for thread in threads:
            thread.join()


def _follow(engine: Engine, link: Link) -> None:
    try:
        follow(engine, link)
    except PeerLostError:
        pass
    except RankError as error:
        link.try_to_send(Fault(str(error)))
    finally:
        link.close()


def why_it_ends(traffic: Traffic, rank: int) -> str:
    """What ends the traffic: a rank that differs, which rank 0 may hear of only after its last step, since hashes need no sums."""
    leader = traffic.engine.leader
    assert leader is not None
    try:
        traffic.run()
    except RankError as error:
        return str(error)
    fault = leader.links[rank - 1].last_words(20)
    assert fault is not None
    return fault.reason


def tree_of(engine: Engine) -> list[tuple]:
    """Everything about a tree: shape, tokens, slots, times, locks."""
    return [
        (parent, node.serial, bytes(node.key), node.value.tolist(), node.last_access_time, node.lock_ref, node.hit_count)
        for parent, node in engine.cache.walk()
    ]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("policy", ["lru", "learned"])
def test_trees_are_the_same_after_any_traffic(size: int, page_size: int, policy: str) -> None:
    draw = random.Random(f"{size} {page_size} {policy}")
    settings = {"num_slots": 120, "page_size": page_size, "eviction_policy": policy, "decode_reserve": 0, "max_batch_tokens": 32}
    with engines_of(size, **settings) as engines:
        traffic = Traffic(engines[0])
        for turn in range(120):
            shared = list(range(draw.choice([0, 5, 16, 30])))
            traffic.send(shared + [draw.randrange(4) for _ in range(draw.randint(1, 12))], draw.randint(1, 25))
            if draw.random() < 0.2:
                engines[0].receive(AbortRequest(str(draw.randrange(turn + 1))))
            for _ in range(draw.randrange(4)):
                traffic.step()
            if draw.random() < 0.1:
                traffic.run()
                engines[0].receive(FlushRequest("flush"))
        traffic.run()
        stats = engines[0].stats()
        assert stats.num_preemptions > 0
        assert stats.evicted_tokens > 0
        assert stats.finished["abort"] > 0
        for rid, (prompt, max_tokens) in traffic.asked.items():
            answer = traffic.answers.get(rid, [])
            assert answer == solo(prompt, max_tokens)[: len(answer)]
    for other in engines[1:]:  # their threads have ended
        assert tree_of(other) == tree_of(engines[0])
        assert other.cache.free_size == engines[0].cache.free_size
        assert other.stats().num_preemptions == stats.num_preemptions
        assert other.stats().evicted_tokens == stats.evicted_tokens


def test_a_rank_that_decides_otherwise_is_named_with_the_step() -> None:
    with engines_of(3, num_slots=100) as engines:
        engines[2].scheduler.max_batch_tokens = 15  # the others have 16
        traffic = Traffic(engines[0])
        for i in range(4):
            traffic.send([1, 2, 3, i], 2)
            traffic.run()
        step = engines[0].stats().num_steps + 1
        traffic.send(list(range(30)), 2)
        assert f"the ranks differ since step {step}: the digest of rank 0 is" in why_it_ends(traffic, 2)


def test_a_rank_with_a_request_of_its_own_differs() -> None:
    with engines_of(2, num_slots=100) as engines:
        traffic = Traffic(engines[0])
        engines[1].receive(GenerateRequest("another", token_bytes([7]), SamplingParams(max_tokens=3)))
        traffic.send([1, 2, 3], 2)
        assert "the ranks differ since step 1" in why_it_ends(traffic, 1)


def test_a_rank_without_anything_to_compute_differs() -> None:
    with engines_of(2, num_slots=100) as engines:
        traffic = Traffic(engines[0])
        engines[1].scheduler.plan = lambda: None  # type: ignore[method-assign]
        traffic.send([1, 2, 3], 5)
        assert "the ranks differ since step 1: rank 0 computes a batch" in why_it_ends(traffic, 1)
