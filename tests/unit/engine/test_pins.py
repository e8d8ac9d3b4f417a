"""What is pinned leaves room: whoever is taken in can run, even beside all pins, and whoever fits is taken in."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixserve.cache.node import Node
from radixserve.cache.prefix_cache import PrefixCache
from radixserve.engine.engine import Engine
from radixserve.errors import InvalidRequestError
from radixserve.ipc import CacheCommand, GenerateRequest
from radixserve.req import Req
from radixserve.sampling_params import SamplingParams
from radixserve.scheduler import pins as pins_module
from radixserve.scheduler.pins import Pins
from radixserve.tokens import token_bytes
from tests.hash_runner import hash_engine, solo
from tests.traffic import Traffic
from tests.work import lines_run

PINNED = list(range(1, 9))


@pytest.fixture
def engine() -> Engine:
    """A pool of 14 slots, 8 of them pinned."""
    engine = hash_engine(14)
    traffic = Traffic(engine)
    traffic.send(PINNED, 1)
    traffic.run()
    engine.receive(CacheCommand("pin", "pin", prompt_ids=token_bytes(PINNED)))
    traffic.step()
    assert engine.pins.num_tokens == 8
    return engine


def test_a_prompt_without_an_answer_needs_all_of_its_slots(engine: Engine) -> None:
    traffic = Traffic(engine)
    fits, too_long = traffic.send([20] * 6, 0), traffic.send([30] * 7, 0)
    traffic.run()
    assert traffic.ended == {fits: "length", too_long: "invalid_request"}


@pytest.mark.parametrize(("scored_from", "end"), [(0, "invalid_request"), (1, "invalid_request"), (4, "length")])
def test_a_prompt_that_is_scored_needs_slots_for_what_it_computes_again(engine: Engine, scored_from: int, end: str) -> None:
    """Of 10 tokens those from `scored_from` on: beside the pins there is room for 6."""
    traffic = Traffic(engine)
    params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, logprob_start_len=scored_from)
    engine.receive(GenerateRequest("scored", token_bytes([*PINNED, 20, 21]), params))
    traffic.run()
    assert traffic.ended == {"scored": end}


def test_the_beginning_of_a_pin_is_shared_too(engine: Engine) -> None:
    traffic = Traffic(engine)
    rid = traffic.send([*PINNED[:5], 20, 21, 22, 23], 3)
    traffic.run()
    assert traffic.answers == {rid: solo([*PINNED[:5], 20, 21, 22, 23], 3)}
    assert traffic.cached == {rid: 5}


def test_who_is_refused_takes_no_number(engine: Engine) -> None:
    """A recording leaves refused requests out, and numbers the others as they came."""
    traffic = Traffic(engine)
    traffic.send([30] * 8, 3)
    traffic.send([20] * 3, 3)
    traffic.step()
    assert traffic.ended == {"0": "invalid_request"}
    assert [req.arrival for req in engine.scheduler.running] == [1], "one was asked for what is pinned"


def test_a_pin_that_leaves_no_room_for_who_runs_is_refused_whole(engine: Engine) -> None:
    engine.receive(CacheCommand("unpin", "unpin"))
    traffic = Traffic(engine)
    rid = traffic.send([20] * 5, 4)  # needs 8 slots; beside the pin there would be 6
    traffic.step()
    engine.receive(CacheCommand("pin", "pin", prompt_ids=token_bytes(PINNED)))
    traffic.run()
    assert traffic.ended == {"pin": "invalid_request", rid: "length"}
    assert not engine.pins.serials
    assert engine.pins.num_tokens == engine.cache.protected_size == 0


def test_what_pins_share_is_counted_once_and_so_is_what_is_above_them(engine: Engine) -> None:
    """A pinned leaf keeps its whole path: here 8 tokens of a first pin and 2 of its own."""
    traffic = Traffic(engine)
    traffic.send([*PINNED, 20, 21], 1)
    traffic.run()
    engine.receive(CacheCommand("pin", "pin", prompt_ids=token_bytes([*PINNED, 20, 21])))
    traffic.step()
    assert engine.pins.num_tokens == engine.cache.protected_size == 10
    first, second = engine.pins.serials
    engine.receive(CacheCommand("unpin", "unpin", second))
    traffic.step()
    assert (engine.pins.serials, engine.pins.num_tokens) == ([first], 8)
    engine.receive(CacheCommand("pin", "pin", second))
    engine.receive(CacheCommand("unpin", "unpin", first))  # and all below it
    traffic.step()
    assert engine.pins.num_tokens == engine.cache.protected_size == 0
    engine.receive(CacheCommand("pin", "pin", second))
    traffic.step()
    assert engine.pins.num_tokens == engine.cache.protected_size == 10


def put(cache: PrefixCache, tokens: list[int]) -> None:
    """Caches some tokens."""
    lease = cache.acquire(token_bytes(tokens))
    cache.extend(lease, len(tokens))
    cache.publish(lease, token_bytes(tokens), len(tokens))
    cache.release(lease)


ACTIONS = st.sampled_from(["put", "pin", "subtree", "unpin"])


@given(st.lists(st.tuples(ACTIONS, st.lists(st.integers(0, 2), min_size=1, max_size=6))))
def test_the_count_of_pinned_tokens_is_that_of_all_paths(actions: list[tuple[str, list[int]]]) -> None:
    """Splits, pins below pins and their ends: nobody else locks anything, so what is locked is what is pinned."""
    cache = PrefixCache(1_000)
    pins = Pins(cache)
    for action, tokens in actions:
        node = cache.end_of_match(token_bytes(tokens))
        if action == "put":
            put(cache, tokens)
        elif node is not None and action == "unpin":
            pins.unpin(node)
        elif node is not None:
            pins.pin(node, [], subtree=action == "subtree")
        assert pins.num_tokens == cache.protected_size
        assert all(bool(node.pin_ref) == bool(node.lock_ref) for _, node in cache.walk())
        cache.check()
    pins.clear()
    assert pins.num_tokens == cache.protected_size == 0


def test_a_request_is_checked_against_its_own_path_however_many_pins_there_are() -> None:
    cache = PrefixCache(10_000)
    pins = Pins(cache)
    req = Req("r", 0, token_bytes([1, 2, 3, 4]), 4, SamplingParams(max_tokens=4), 4, frozenset())
    works = []
    for first in range(100):
        put(cache, [first, 2, 3])
        node = cache.end_of_match(token_bytes([first, 2, 3]))
        assert node is not None
        pins.pin(node, [])
        works.append(lines_run(pins.check, req))
    assert works[-1] <= works[1]


def test_a_pin_ends_without_a_walk_of_what_is_not_pinned() -> None:
    works = []
    for num_other in (2, 200):
        cache = PrefixCache(10_000)
        pins = Pins(cache)
        for other in range(num_other):
            put(cache, [1, *range(10, 10 + other)])
        put(cache, [1, 2])
        node = cache.end_of_match(token_bytes([1]))
        assert node is not None
        pins.pin(node, [])
        works.append(lines_run(pins.unpin, node))
    assert works[1] <= works[0]


def test_more_pins_than_there_may_be_are_refused_whole_and_before_the_rest_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins_module, "MAX_PINS", 8)
    works = []
    for num_leaves in (8, 9, 400):
        cache = PrefixCache(10_000)
        pins = Pins(cache)
        for leaf in range(num_leaves):
            put(cache, [1, 2 + leaf])
        node = cache.end_of_match(token_bytes([1]))
        assert node is not None
        if num_leaves == 8:
            assert pins.pin(node, [], subtree=True) == 9
            put(cache, [3])
            other = cache.end_of_match(token_bytes([3]))
            assert other is not None
            with pytest.raises(InvalidRequestError, match="more than 8 pins, 8 are there already"):
                pins.pin(other, [])
            assert pins.pin(node, [], subtree=True) == 0, "those are pinned already"
            continue

        def refused(pins: Pins = pins, node: Node = node) -> None:
            with suppress(InvalidRequestError):
                pins.pin(node, [], subtree=True)

        works.append(lines_run(refused))
        assert (pins.serials, pins.num_tokens, cache.protected_size) == ([], 0, 0)
    assert works[1] <= works[0]
