"""The cache against a naive model: random requests of several namespaces, page sizes and policies.

The model knows the set of token sequences that were published, and simulates the pool's contents: a request that computes a
token writes what its KV depends on, the namespace and all tokens up to it, into its slot. So a hit on a wrong slot is seen.
"""

from copy import copy
from dataclasses import dataclass
from itertools import count

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from radixserve.cache import evictor
from radixserve.cache.events import CacheEvent, Evicted
from radixserve.cache.eviction import POLICIES
from radixserve.cache.followed import FollowedMatch
from radixserve.cache.learned import Learned
from radixserve.cache.node import Node
from radixserve.cache.prefix_cache import Lease, PrefixCache
from radixserve.errors import BusyError, LockError, OutOfSlotsError
from radixserve.tokens import ExtraKey, as_ids, token_bytes

NAMESPACES = [ExtraKey(), ExtraKey(cache_salt="a"), ExtraKey(adapter="a")]
Tokens = tuple[int, ...]
namespaces = st.sampled_from(NAMESPACES)


@st.composite
def prompts(draw: st.DrawFn) -> Tokens:
    """Tokens that are 0 but for a few places: long enough to fill pages, alike enough to part in the middle of one."""
    length = draw(st.integers(1, 48))
    ones = draw(st.sets(st.sampled_from([0, 5, 12, 16, 21, 32, 40]), max_size=2))
    return tuple(1 if position in ones else 0 for position in range(length))


@dataclass(eq=False)
class Request:
    """A running request of the model."""

    extra_key: ExtraKey
    tokens: Tokens
    lease: Lease
    computed: int


def shared(a: Tokens, b: Tokens) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


class CacheMachine(RuleBasedStateMachine):
    @initialize(
        page_size=st.sampled_from([1, 3, 4, 16]),
        policy=st.sampled_from(sorted(POLICIES)),
        num_slots=st.integers(48, 100),
        least_tail=st.sampled_from([1, 5, 64]),
    )
    def start(self, page_size: int, policy: str, num_slots: int, least_tail: int) -> None:
        self.events: list[CacheEvent] = []
        self.cache = PrefixCache(num_slots, page_size, policy, least_tail=least_tail)
        if isinstance(self.cache.evictor.policy, Learned):
            self.cache.evictor.policy.LEARN_FROM = 4
        self.cache.listeners.append(self.events.append)
        self.contents: dict[int, tuple[ExtraKey, Tokens]] = {}
        self.requests: list[Request] = []
        self.followed: list[tuple[FollowedMatch, Tokens]] = []

    # What the model can say

    def cached(self) -> dict[Node, tuple[ExtraKey, Tokens]]:
        """Each node's namespace and all tokens from the root to its end."""
        found: dict[Node, tuple[ExtraKey, Tokens]] = {}
        for extra_key, root in self.cache.tree.roots.items():
            found[root] = extra_key, ()
        for _, node in self.cache.walk():
            assert node.parent is not None
            extra_key, above = found[node.parent]
            found[node] = extra_key, above + tuple(as_ids(node.key).tolist())
        return found

    def longest(self, tokens: Tokens, extra_key: ExtraKey) -> int:
        return max((shared(tokens, path) for key, path in self.cached().values() if key == extra_key), default=0)

    def snapshot(self) -> object:
        cache = self.cache
        nodes = [(depth, n.serial, n.key, tuple(n.slots), n.last_access_time, n.lock_ref) for depth, n in cache.walk()]
        return nodes, list(cache.tree.roots), cache.pool.free_slots().tolist(), cache.request_size, cache.clock

    def victims(self, num_tokens: int) -> list[tuple[int, int]]:
        """Serial number and tokens of what should go, found by looking at all leaves each time."""
        policy, children = self.cache.evictor.queue._policy, {node: set(node.children.values()) for node in self.cached()}
        serials = count(self.cache.tree._num_made + 1)
        gone: list[tuple[int, int]] = []
        while num_tokens > 0:
            leaves = [node for node in children if node.parent and not children[node] and not node.lock_ref]
            if not leaves:
                break

            heads: dict[int, Node] = {}
            for node in sorted(leaves, key=lambda node: (policy.order(node), node.serial)):
                heads.setdefault(policy.class_of(node), node)
            _, _, victim = min(
                (policy.rank(class_, policy.order(node), self.cache.clock), class_, node) for class_, node in heads.items()
            )
            assert victim.parent is not None
            children[victim.parent].remove(victim)
            del children[victim]
            tail = self.tail(victim, num_tokens)
            if tail < victim.num_tokens:
                rest = copy(victim)
                rest.serial, rest.num_tokens = next(serials), victim.num_tokens - tail
                children[victim.parent].add(rest)
                children[rest] = set()
            num_tokens -= tail
            gone.append((victim.serial, tail))
        return gone

    def tail(self, leaf: Node, needed: int) -> int:
        """How much of a leaf should go: whole pages, an eighth of it or more, if so many tokens are needed and enough stays."""
        least = self.cache.evictor.least_tail
        pages = range(self.cache.page_size, leaf.num_tokens - least + 1, self.cache.page_size)
        return next((n for n in pages if n >= max(needed, least, leaf.num_tokens // 8)), leaf.num_tokens)

    def evicted(self) -> list[tuple[int, int]]:
        return [(event.serial, event.num_tokens) for event in self.events if isinstance(event, Evicted)]

    # What requests do

    @rule(tokens=prompts(), extra_key=namespaces)
    def match(self, tokens: Tokens, extra_key: ExtraKey) -> None:
        before = self.snapshot()
        match = self.cache.match(token_bytes(list(tokens)), extra_key)
        assert self.snapshot() == before
        assert match.cached_len == self.longest(tokens, extra_key)
        assert match.path_len == match.cached_len // self.cache.page_size * self.cache.page_size
        assert match.evictable_len <= match.path_len

    @rule(tokens=prompts(), extra_key=namespaces)
    def follow(self, tokens: Tokens, extra_key: ExtraKey) -> None:
        """Twenty at most are followed at a time."""
        match = FollowedMatch(token_bytes(list(tokens)), extra_key)
        self.followed.append((match, tokens))
        self.cache.follow(match)
        if len(self.followed) > 20:
            self.cache.unfollow(self.followed.pop(0)[0])

    @rule()
    def follow_changed_again(self) -> None:
        for match in self.cache.take_changed():
            self.cache.follow(match)
        for match, tokens in self.followed:
            assert match.cached_len == self.longest(tokens, match.extra_key)
            assert match.path_len == match.cached_len // self.cache.page_size * self.cache.page_size

    @rule(tokens=prompts(), known=st.integers(0, 48), extra_key=namespaces, priority=st.integers(-1, 1), started=st.booleans())
    def start_request(self, tokens: Tokens, known: int, extra_key: ExtraKey, priority: int, started: bool) -> None:
        """Acquires what is `known` of the tokens; the rest is what it will generate."""
        prompt = token_bytes(list(tokens[:known]))
        longest, clock, evictable = self.longest(tokens[:known], extra_key), self.cache.clock, self.cache.evictable_size
        match = self.cache.match(prompt, extra_key)
        self.follow(tokens[:known], extra_key)
        lease = self.cache.acquire(prompt, extra_key, priority=priority)
        assert lease.cached_len == longest
        assert self.cache.clock == clock + 1
        if lease.source is None:
            assert self.cache.evictable_size == evictable - match.evictable_len
        assert self.cache.match(prompt, extra_key).cached_len == longest
        request = Request(extra_key, tokens, lease, lease.tree_len)
        self.requests.append(request)
        if started:
            self.give_slots(request, len(tokens))

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), num_tokens=st.sampled_from([1, 4, 20, 48]), publish_all=st.booleans())
    def step(self, data: st.DataObject, num_tokens: int, publish_all: bool) -> None:
        """Slots for a chunk, its copy and computation, and publication of what is computed or less."""
        request = data.draw(st.sampled_from(self.requests))
        length = min(max(request.computed, request.lease.cached_len) + num_tokens, len(request.tokens))
        self.give_slots(request, length)
        self.run_step(request, num_tokens)
        self.publish_up_to(request, request.computed if publish_all else data.draw(st.integers(0, request.computed)))

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        """The rest of a request at once."""
        request = data.draw(st.sampled_from(self.requests))
        self.give_slots(request, len(request.tokens))
        self.complete(request)

    @rule(tokens=prompts(), extra_key=namespaces)
    def serve(self, tokens: Tokens, extra_key: ExtraKey) -> None:
        """A whole request at once."""
        self.start_request(tokens, len(tokens) - 1, extra_key, 0, True)
        self.complete(self.requests[-1])

    def complete(self, request: Request) -> None:
        self.run_step(request, len(request.tokens))
        self.publish_up_to(request, request.computed)
        self.let_go(request)

    def give_slots(self, request: Request, length: int) -> None:
        lease, page_size = request.lease, self.cache.page_size
        before, held, num_evicted = self.snapshot(), lease.slots.tolist(), len(self.evicted())
        needed = max(-(-length // page_size) * page_size - len(held), 0)
        free, evictable, expected = (
            self.cache.free_size,
            self.cache.evictable_size,
            self.victims(needed - self.cache.free_size - self.cache.tree.detached_size),
        )
        could_give_up = lease.source is not None and lease.copy is None
        cached_len = lease.cached_len
        try:
            self.cache.extend(lease, length)
        except OutOfSlotsError:
            assert needed > free + evictable
            assert self.snapshot() == before
            return
        assert lease.slots[: len(held)].tolist() == held
        assert len(lease.slots) == len(held) + needed
        if lease.cached_len == cached_len:
            assert needed <= free + evictable
            assert self.evicted()[num_evicted:] == expected
        else:
            assert could_give_up
            assert needed > free + evictable
            assert lease.cached_len == lease.tree_len

    def run_step(self, request: Request, num_tokens: int) -> None:
        """Copies and computes the KV of some more tokens."""
        lease = request.lease
        if lease.copy is not None:
            for source, target in zip(*lease.copy, strict=True):
                self.contents[int(target)] = self.contents[int(source)]
            request.computed = lease.cached_len
            self.cache.finish_copy(lease)
            assert lease.copy is None
        if lease.source is None:
            end = min(len(lease.slots), len(request.tokens), request.computed + num_tokens)
            for position in range(request.computed, end):
                self.contents[int(lease.slots[position])] = request.extra_key, request.tokens[: position + 1]
            request.computed = end

    def publish_up_to(self, request: Request, length: int) -> None:
        lease = request.lease
        row = lease.slots.copy()
        changed = self.cache.publish(lease, token_bytes(list(request.tokens)), length)
        whole = length // self.cache.page_size * self.cache.page_size
        assert lease.tree_len >= whole
        assert self.longest(request.tokens[:whole], request.extra_key) == whole
        if changed is not None:
            row[slice(*changed)] = lease.slots[slice(*changed)]
        assert np.array_equal(row, lease.slots)

    def let_go(self, request: Request) -> None:
        self.requests.remove(request)
        self.cache.release(request.lease)
        before = self.snapshot()
        with pytest.raises(LockError):
            self.cache.release(request.lease)
        assert self.snapshot() == before

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        """A request ends early."""
        self.let_go(data.draw(st.sampled_from(self.requests)))

    @rule(num_tokens=st.integers(0, 40))
    def evict(self, num_tokens: int) -> None:
        expected = self.victims(num_tokens - self.cache.tree.detached_size)
        evictable, num_evicted = self.cache.evictable_size, len(self.evicted())
        evicted = self.cache.evict(num_tokens)
        assert evicted >= min(num_tokens, evictable)
        assert self.cache.evictable_size == evictable - evicted
        assert self.evicted()[num_evicted:] == expected

    @precondition(lambda self: self.cache.num_nodes)
    @rule(data=st.data())
    def evict_below(self, data: st.DataObject) -> None:
        top = data.draw(st.sampled_from([node for _, node in self.cache.walk()]))
        below, protected = list(self.cache.tree.walk_below(top)), self.cache.protected_size
        unlocked = sum(node.num_tokens for node in below if not node.lock_ref)
        pruning = self.cache.evict_below(top)
        assert (pruning.is_done, pruning.evicted) == (True, unlocked)
        assert pruning.kept == sum(node.num_tokens for node in below if node.lock_ref)
        assert self.cache.protected_size == protected
        assert not any(node.parent for node in below if not node.lock_ref)

    @precondition(lambda self: self.cache.num_nodes)
    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        """A pin: nothing evicts its path."""
        node = data.draw(st.sampled_from([node for _, node in self.cache.walk()]))
        lease, (_, path) = self.cache.hold(node), self.cached()[node]
        self.cache.evict(self.cache.num_slots)
        assert self.cached()[node][1] == path
        self.requests.append(Request(lease.extra_key, path, lease, len(path)))

    @rule()
    def flush(self) -> None:
        if self.requests:
            before = self.snapshot()
            with pytest.raises(BusyError):
                self.cache.flush()
            assert self.snapshot() == before
        else:
            free = self.cache.free_size
            self.cache.flush()
            assert self.cache.num_nodes == 0
            assert self.cache.free_size == free
            assert self.cache.tree.detached_size == self.cache.evictable_size == self.cache.num_slots - free

    @rule(num_nodes=st.integers(1, 4))
    def tidy(self, num_nodes: int) -> None:
        """Steps after a flush free its slots a few nodes at a time."""
        before, nodes = self.snapshot(), sum(map(len, self.cache.tree.detached))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(evictor, "PORTION", num_nodes)
            self.cache.tidy()
        assert sum(map(len, self.cache.tree.detached)) == max(nodes - num_nodes, 0)
        if not nodes:
            assert self.snapshot() == before

    # What always holds

    @invariant()
    def is_sound(self) -> None:
        self.cache.check()

    @invariant()
    def upcoming_victims_are_foretold(self) -> None:
        before = self.snapshot()
        upcoming = self.cache.evictor.queue.upcoming(self.cache.clock)
        assert [(node.serial, node.num_tokens) for node in upcoming] == self.victims(self.cache.num_slots + 1)
        assert self.snapshot() == before

    @invariant()
    def each_slot_holds_what_it_should(self) -> None:
        found = self.cached()
        for node, (extra_key, path) in found.items():
            if node.parent is not None:
                start = len(path) - node.num_tokens
                for position, slot in enumerate(node.slots.tolist(), start):
                    assert self.contents[slot] == (extra_key, path[: position + 1])
        for request in self.requests:
            for position, slot in enumerate(request.lease.slots[: request.computed].tolist()):
                assert self.contents[slot] == (request.extra_key, request.tokens[: position + 1])

    def teardown(self) -> None:
        for request in getattr(self, "requests", []):
            self.cache.release(request.lease)
        if hasattr(self, "cache"):
            self.cache.check()
            self.cache.evict(self.cache.num_slots)
            assert self.cache.num_nodes == 0
            assert not self.cache.tree.roots
            assert self.cache.free_size == self.cache.num_slots


CacheMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=50)
TestCacheMachine = CacheMachine.TestCase
