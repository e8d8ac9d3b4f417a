"""The queue admits whom a queue would that matches and sorts everybody again before each admission."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from radixserve.cache.followed import Place
from radixserve.cache.node import Node
from radixserve.cache.prefix_cache import PrefixCache
from radixserve.cache.radix_tree import name
from radixserve.engine.engine import Engine
from radixserve.ipc import AbortRequest, CacheCommand, FlushRequest
from radixserve.req import Req
from radixserve.scheduler.admission import Candidate, Order, find_order
from radixserve.scheduler.digest import Digest
from radixserve.scheduler.in_flight import MIN_SHARED_TOKENS
from radixserve.scheduler.queue import Queue
from radixserve.tokens import token_bytes
from tests.hash_runner import hash_engine
from tests.traffic import Traffic


class NaiveQueue(Queue):
    """Says the same as a Queue, and looks at all that wait and all that run for it. Remembers nothing but who was passed over."""

    def __init__(self, cache: PrefixCache, order: Order, max_passed_over: int) -> None:
        super().__init__(cache, order, max_passed_over)
        self.max_passed_over = max_passed_over
        self.passed: dict[str, int] = {}
        self.running: list[Req] = []

    def add(self, req: Req) -> None:
        later = [c for c in self.candidates.values() if c.req.arrival > req.arrival and not c.req.starved]
        self.candidates[req.rid] = Candidate(req)
        self.passed[req.rid] = self.passed[min(later, key=lambda c: c.req.arrival).req.rid] if later else 0

    def remove(self, rid: str) -> bool:
        return self.candidates.pop(rid, None) is not None

    def begin_pass(self, running: list[Req]) -> None:
        self.running = running
        self.match_all()
        if self._order.number is not None:
            self._order.number(self.candidates.values(), self._cache)

    def first(self) -> Candidate | None:
        self.match_all()
        candidates = sorted(self.candidates.values(), key=self.key)
        return next((c for c in candidates if not any(self.computes(req, c) for req in self.running)), None)

    def admit(self, candidate: Candidate) -> None:
        del self.candidates[candidate.req.rid]
        for other in self.candidates.values():
            if other.req.arrival < candidate.req.arrival:
                self.passed[other.req.rid] += 1
                other.req.starved |= self.passed[other.req.rid] >= self.max_passed_over

    def has_match_at(self, node: Node) -> bool:
        self.match_all()
        return any(c.place.node is node for c in self.candidates.values())

    def match_all(self) -> None:
        for c in self.candidates.values():
            match = self._cache.match(c.key, c.extra_key)
            c.cached_len, c.path_len, c.place = match.cached_len, match.path_len, Place(name(match.node))

    def key(self, c: Candidate) -> tuple[int, ...]:
        if c.req.starved:
            return 0, -c.req.priority, c.req.arrival
        return 1, -c.req.priority, *self._order.key(c)

    def computes(self, req: Req, c: Candidate) -> bool:
        """Whether a running request computes the candidate's next page, and enough of what follows."""
        assert req.lease is not None
        page_size, start = self._cache.page_size, req.lease.tree_len
        tokens = req.tokens(min(req.seq_len - 1, req.seq_len - req.seq_len % page_size))
        page = slice(start * 4, (start + page_size) * 4)
        if not self._cache.enabled or req.extend_len <= 1 or (req.extra_key, start) != (c.extra_key, c.path_len):
            return False
        if not c.key[page] or tokens[page] != c.key[page]:
            return False
        least = max(req.lease.cached_len + MIN_SHARED_TOKENS, start + len(c.key[page]) // 4)
        return tokens.startswith(c.key[: least * 4])


def naive_engine(*args: Any, order: str, max_passed_over: int, **settings: Any) -> Engine:
    engine = hash_engine(*args, order=order, max_passed_over=max_passed_over, **settings)
    engine.scheduler.queue = NaiveQueue(engine.cache, find_order(order), max_passed_over)
    return engine


prompts = st.builds(
    lambda shared, more, own: list(range(shared)) + [7] * more + own,
    st.sampled_from([0, 1, 5, 16, 17, 30, 40, 48]),
    st.sampled_from([0, 0, 1, 8, 16, 20]),
    st.lists(st.integers(0, 3), min_size=1, max_size=9),
)
actions = st.one_of(
    st.lists(
        st.tuples(prompts, st.integers(1, 20), st.sampled_from([None, None, None, "a"]), st.sampled_from([0, 0, 0, 1])),
        min_size=1,
        max_size=6,
    ).map(lambda requests: ("send", requests)),
    st.tuples(st.just("step"), st.integers(1, 8)),
    st.tuples(st.just("abort"), st.integers(0, 30)),
    st.tuples(st.just("evict"), st.integers(1, 60)),
    st.tuples(st.just("pin"), prompts),
    st.tuples(st.sampled_from(["unpin", "flush"]), st.none()),
)


@settings(max_examples=60)
@given(
    actions=st.lists(actions, min_size=3, max_size=25),
    page_size=st.sampled_from([1, 1, 3, 4, 16]),
    pool_len=st.integers(100, 400),
    budget=st.sampled_from([1, 5, 16, 64]),
    max_running=st.sampled_from([1, 3, 8]),
    order=st.sampled_from(["prefix", "prefix", "tree", "fcfs"]),
    max_passed_over=st.sampled_from([1, 3, 8, 32]),
    decode_reserve=st.sampled_from([0, 4]),
    prefix_cache=st.sampled_from([True, True, True, False]),
)
def test_the_queue_decides_as_if_it_matched_and_sorted_everybody_each_time(
    actions: list[tuple[str, Any]], page_size: int, pool_len: int, **settings: Any
) -> None:
    settings["max_batch_tokens"] = settings.pop("budget")
    engines = [make(pool_len, page_size, **settings) for make in (hash_engine, naive_engine)]
    both = [Traffic(engine) for engine in engines]
    digests = [record(engine) for engine in engines]
    for number, (action, what) in enumerate([*actions, ("step", 2_000)]):
        for traffic in both:
            play(traffic, action, what, str(number))
        assert digests[0] == digests[1]
        assert list(engines[0].scheduler.waiting) == list(engines[1].scheduler.waiting)
    assert not engines[0].has_work
    assert both[0].ended == both[1].ended
    assert both[0].cached == both[1].cached
    assert not list(engines[0].cache.tree.followed)


def play(traffic: Traffic, action: str, what: Any, number: str) -> None:
    if action == "send":
        for prompt, max_tokens, salt, priority in what:
            traffic.send(prompt, max_tokens, salt=salt, priority=priority)
    elif action == "step":
        for _ in range(what):
            if traffic.engine.has_work:
                traffic.step()
    elif action == "abort":
        traffic.engine.receive(AbortRequest(str(what)))
    elif action == "evict":
        traffic.engine.cache.evict(what)
    elif action == "pin":
        traffic.engine.receive(CacheCommand(f"pin {number}", "pin", prompt_ids=token_bytes(what)))
    elif action == "unpin":
        traffic.engine.receive(CacheCommand(f"unpin {number}", "unpin"))
    else:
        traffic.engine.receive(FlushRequest(f"flush {number}"))


def record(engine: Engine) -> list[str]:
    """The digest after every step of the engine, which grows."""
    digests, digest, commit = [], Digest(), engine.scheduler.commit

    def committed(batch: Any) -> None:
        commit(batch)
        digests.append(digest.add(batch, engine.cache))

    engine.scheduler.commit = committed  # type: ignore[method-assign]
    return digests
