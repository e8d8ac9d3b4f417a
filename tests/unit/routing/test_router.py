"""What the router does with fake workers: affinity, balance, corrections, and books that balance."""

import random

import pytest

from radixserve.errors import ConfigError
from radixserve.routing.policies import POLICIES
from radixserve.routing.prompt import PAGE_LEN, Prompt
from radixserve.routing.router import NoReplicaError, Router
from radixserve.tokens import ExtraKey
from tests.fake_fleet import FakeFleet, Worker, prompt

SHARED_LEN, OWN_LEN = 900, 100


def with_shared_prefix(number: int) -> Prompt:
    return prompt((1, SHARED_LEN), (1000 + number, OWN_LEN))


def counts(router: Router) -> list[tuple[int, int]]:
    return [(replica.queue_tokens, replica.num_requests) for replica in router.replicas.values()]


def three(num_slots: int = 100_000) -> Router:
    router = Router()
    for name in "abc":
        router.join(name, num_slots)
    return router


def finish(router: Router, rid: str) -> None:
    router.started(rid)
    router.ended(rid)


def test_sessions_stay_where_they_began_while_nothing_queues() -> None:
    fleet = FakeFleet(Router(), [1e6] * 4)
    homes: dict[int, set[str]] = {}
    for turn in range(1, 6):
        for session in range(12):
            homes.setdefault(session, set()).add(fleet.send(prompt((session, 500 * turn)), fleet.now_s + 1))
    fleet.run()
    assert all(len(home) == 1 for home in homes.values())
    assert {worker.served for worker in fleet.workers.values()} == {15}


def test_a_shared_prefix_stays_on_few_workers_while_one_is_enough() -> None:
    fleet = FakeFleet(Router(), [1e6] * 4)
    homes = {fleet.send(with_shared_prefix(i), fleet.now_s + 1) for i in range(100)}
    assert len(homes) == 1


def test_a_hot_prefix_spreads_at_saturation() -> None:
    """Twice what the slow and the fast together can do; 90% of each prompt is shared.

    At first one worker has the prefix, and its queue grows until computing the prefix again is worth it.
    """
    fleet = FakeFleet(Router(), [1000, 1000, 1000, 250])
    for i in range(600):
        fleet.send(with_shared_prefix(i), i * OWN_LEN / 6500)
    assert all(ratio < 2 for ratio in fleet.ratios[200:])
    served = {name: worker.served for name, worker in fleet.workers.items()}
    fleet.run()
    assert counts(fleet.router) == [(0, 0)] * 4
    fast = [served[f"w{i}"] for i in range(3)]
    assert max(fast) < 1.5 * min(fast)
    computed = sum(worker.computed for worker in fleet.workers.values())
    assert computed == 600 * (1000 - SHARED_LEN // PAGE_LEN * PAGE_LEN) + 4 * (SHARED_LEN // PAGE_LEN * PAGE_LEN)


def test_a_cold_burst_is_spread() -> None:
    fleet = FakeFleet(Router(), [1000] * 4)
    sent = [fleet.send(prompt((i, 1000)), 0.0) for i in range(40)]
    assert [sent.count(f"w{i}") for i in range(4)] == [10] * 4


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_prompts_without_pages_are_spread_and_counts_return_to_zero(policy: str) -> None:
    fleet = FakeFleet(Router(policy), [1000] * 4)
    for i in range(400):
        fleet.send(prompt((7, 10)), i * 0.001)
    fleet.run()
    assert counts(fleet.router) == [(0, 0)] * 4
    assert all(50 <= worker.served <= 150 for worker in fleet.workers.values())


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_worker_dies(policy: str) -> None:
    fleet = FakeFleet(Router(policy), [1000] * 4)
    for i in range(80):
        fleet.send(with_shared_prefix(i), i * 0.02)
    dead = max(fleet.workers, key=lambda name: len(fleet.workers[name].queue))
    fleet.kill(dead)
    assert fleet.lost
    for i in range(80, 160):
        assert fleet.send(with_shared_prefix(i), i * 0.02) != dead
    fleet.run()
    assert counts(fleet.router) == [(0, 0)] * 3
    assert dead not in fleet.router.replicas


def test_memory_is_capped_on_unique_prompts() -> None:
    router = Router(max_pages=3000)
    for name in "abc":
        router.join(name, 100_000)
    for number in range(100_000):
        router.route(str(number), Prompt([4 * number, 4 * number + 1, 4 * number + 2], 200))
        finish(router, str(number - 20))
        held = sum(len(replica.held) for replica in router.replicas.values())
        assert held <= 3000
    assert held > 2900
    router.join("d", 100_000)
    assert sum(len(replica.held) for replica in router.replicas.values()) <= 3000


def test_a_replica_is_remembered_no_further_than_its_pool() -> None:
    router = Router()
    router.join("a", 10 * PAGE_LEN)
    router.route("0", prompt((1, 8 * PAGE_LEN)))
    router.route("1", prompt((2, 8 * PAGE_LEN)))
    held = router.replicas["a"].held
    assert (held.num_held(prompt((2, 8 * PAGE_LEN)).pages), held.num_held(prompt((1, 8 * PAGE_LEN)).pages)) == (8, 2)
    router.route("2", prompt((3, 50 * PAGE_LEN)))
    assert held.num_held(prompt((3, 50 * PAGE_LEN)).pages) == len(held) == 10


def test_namespaces_do_not_share() -> None:
    router = three()
    parts = (1, 1000)
    keys = [ExtraKey(), ExtraKey(adapter="x"), ExtraKey(cache_salt="x"), ExtraKey("x", "x")]
    homes = [router.route(str(i), prompt(parts, extra_key=key)) for i, key in enumerate(keys[:3])]
    assert sorted(homes) == ["a", "b", "c"]
    for replica in router.replicas.values():
        assert replica.held.num_held(prompt(parts, extra_key=keys[3]).pages) == 0
    assert [router.replicas[home].num_missing(prompt(parts, extra_key=key)) for home, key in zip(homes, keys, strict=False)] == [
        40
    ] * 3


@pytest.mark.parametrize("how", ["flushed", "restarted", "evicted"])
def test_what_a_replica_lost_is_forgotten_at_once(how: str) -> None:
    router = three()
    asked = prompt((1, 1000))
    home = router.route("0", asked)
    finish(router, "0")
    assert router.replicas[home].num_missing(asked) == 40
    if how == "flushed":
        router.flushed(home)
    elif how == "restarted":
        router.join(home, 100_000)
    else:
        router.removed(home, asked.pages[::-1])
    assert [replica.num_missing(asked) for replica in router.replicas.values()] == [1000] * 3
    assert len(router.replicas[home].held) == 0


def test_reported_pages_draw_a_request() -> None:
    router = three()
    asked = prompt((1, 1000))
    router.stored("c", asked.pages)
    assert router.route("0", asked) == "c"


def test_a_request_that_ends_before_its_first_token_teaches_nothing() -> None:
    router = three()
    home = router.route("0", prompt((1, 1000)))
    finish(router, "0")
    router.route("1", prompt((1, 1000), (2, 1000)))
    router.ended("1")
    assert router.replicas[home].held.num_held(prompt((1, 1000), (2, 1000)).pages) == 1000 // PAGE_LEN
    assert counts(router) == [(0, 0)] * 3


def test_a_draining_replica_finishes_and_gets_no_more() -> None:
    router = three()
    asked = prompt((1, 1000))
    home = router.route("0", asked)
    router.drain(home)
    others = {router.route(str(i), asked) for i in range(1, 10)}
    assert home not in others
    finish(router, "0")
    assert router.leave(home) == []
    assert router.leave(home) == []


def test_lost_requests_are_named_and_may_be_routed_again() -> None:
    router = three()
    homes = {str(i): router.route(str(i), prompt((i, 1000))) for i in range(9)}
    router.started("0")
    dead = homes["0"]
    lost = router.leave(dead)
    assert lost == [rid for rid, home in homes.items() if home == dead]
    for rid in lost:
        assert router.route(rid, prompt((int(rid), 1000))) != dead
    router.ended("unknown")
    assert sum(count for _, count in counts(router)) == 9


def test_a_new_replica_is_not_drowned() -> None:
    fleet = FakeFleet(Router(), [1000] * 3)
    for i in range(150):
        fleet.send(prompt((i, 1000)), i / 3)
    fleet.router.join("new", 100_000)
    fleet.workers["new"] = Worker(1000)
    sent = [fleet.send(prompt((i, 1000)), i / 3) for i in range(150, 230)]
    assert 15 <= sent.count("new") <= 30


def test_nobody_to_route_to() -> None:
    router = Router()
    with pytest.raises(NoReplicaError, match="none of 0 replicas takes requests"):
        router.route("0", prompt((1, 100)))
    with pytest.raises(ConfigError, match="'best': choose among prefix, round-robin, least-loaded, random"):
        Router("best")


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_the_same_calls_lead_to_the_same_choices(policy: str) -> None:
    def choices() -> list[str]:
        draw = random.Random(5)
        fleet = FakeFleet(Router(policy), [1000] * 5)
        return [fleet.send(prompt((draw.randrange(20), draw.randrange(2000) + 1)), i * 0.3) for i in range(200)]

    assert choices() == choices()
