"""Prefixes that running requests are computing, and the waiting requests that will reuse them.

Such a request sleeps: nobody looks at it until what it shares is published, or will not be. It shares the running request's tokens
up to a point that is found once, so each published chunk wakes those whose point it has reached, and no others.
"""

from collections import defaultdict
from heapq import heappop, heappush

from radixserve.cache.followed import Place
from radixserve.cache.node import Node
from radixserve.cache.prefix_cache import PrefixCache
from radixserve.cache.radix_tree import name, shared_tokens
from radixserve.req import Req
from radixserve.scheduler.admission import Candidate
from radixserve.tokens import TOKEN_BYTES, ExtraKey, token_len

MIN_SHARED_TOKENS = 16
"""A request waits for another's prefix when they share at least this many tokens that were not cached when that one began (or all
that are left). Fewer cost less to compute twice than a step of waiting does."""


class Prefix:
    """What one running request will publish: `tokens`, of which the first `start` are in the tree and end at `place`."""

    def __init__(self, tokens: bytes, cached_len: int, place: Place, start: int) -> None:
        self.tokens = tokens
        self.place = place
        self.start = start
        self._least = cached_len + MIN_SHARED_TOKENS
        self._sleepers: dict[int, Candidate] = {}
        """Who waits for it, by arrival number."""
        self._ends: list[tuple[int, int]] = []
        """A heap: (the last `start` with which one waits, its arrival number). Entries of those that ended meanwhile are left."""

    @property
    def has_sleepers(self) -> bool:
        return bool(self._sleepers)

    def put_to_sleep(self, candidate: Candidate, page_size: int) -> bool:
        """Lets a candidate sleep whose match ends at `place` and whose next page is the one after it, if they share enough."""
        last = self._find_last(candidate, page_size)
        if last < self.start:
            return False
        heappush(self._ends, (last, candidate.req.arrival))
        self._sleepers[candidate.req.arrival] = candidate
        return True

    def remove(self, candidate: Candidate) -> None:
        """One that sleeps has ended."""
        del self._sleepers[candidate.req.arrival]

    def wake(self, published: int) -> list[Candidate]:
        """Takes out who doesn't wait any more when so many tokens are published. Their walks go on where they slept."""
        woken, place = [], Place(self.place.node)
        while self._ends and self._ends[0][0] < published:
            candidate = self._sleepers.pop(heappop(self._ends)[1], None)
            if candidate is not None:
                candidate.place, candidate.path_len = place, self.start
                woken.append(candidate)
        return woken

    def _find_last(self, candidate: Candidate, page_size: int) -> int:
        """The last `start` with which the candidate's next page is one of the pages to come; -1 if they share too little.

        They must share MIN_SHARED_TOKENS from where the running request began, or all that the candidate has left.
        """
        num_tokens = token_len(candidate.key)
        shared = self.start + shared_tokens(self.tokens, self.start * TOKEN_BYTES, candidate.key[self.start * TOKEN_BYTES :])
        if shared < min(self._least, num_tokens):
            return -1
        in_page = shared % page_size
        if in_page and shared == num_tokens == token_len(self.tokens):
            return shared - in_page  # both end in the same part of a page
        return shared - in_page - page_size


class InFlight:
    """There are none without a cache: nobody would publish them."""

    def __init__(self, cache: PrefixCache) -> None:
        self._cache = cache
        self._page_size = cache.page_size
        self._prefixes: dict[Req, Prefix] = {}
        self._found: dict[tuple[Node | ExtraKey, bytes], list[Prefix]] = defaultdict(list)
        """By what comes next: where, and the first page."""
        self._asleep: dict[Candidate, Prefix] = {}

    def look_at(self, running: list[Req]) -> list[Candidate]:
        """Takes in what was computed since the last time, or given up. Returns who needn't sleep any more."""
        before, self._prefixes = self._prefixes, {}
        self._found.clear()
        woken = []
        for req in running:
            if req.extend_len > 1 or req in before:
                woken += self.add(req, before.pop(req, None))
        for prefix in before.values():
            woken += self._wake(prefix, len(prefix.tokens))
        return woken

    def add(self, req: Req, prefix: Prefix | None = None) -> list[Candidate]:
        """Files what a running request is computing, unless that is no more than its last token: only whole pages are published.

        `prefix`: what it had been filed as. Returns who needn't sleep any more.
        """
        assert req.lease is not None
        node, start = name(req.lease.node), req.lease.tree_len
        end = min(req.seq_len - 1, req.seq_len - req.seq_len % self._page_size)
        if req.extend_len <= 1 or end <= start or not self._cache.enabled:
            return self._wake(prefix, req.seq_len) if prefix is not None else []
        if prefix is None:
            prefix = Prefix(req.tokens(end), req.lease.cached_len, Place(node), start)
        self._prefixes[req] = prefix
        next_page = self._page(prefix.tokens, start)
        self._found[node, next_page].append(prefix)
        overtaken = next_page in req.lease.node.children  # another has published what it is to compute
        woken = self._wake(prefix, end if overtaken else start)
        prefix.place.node, prefix.start = node, start
        return woken

    def put_to_sleep(self, candidate: Candidate) -> Place | None:
        """Lets a candidate sleep, if a running request computes what it would compute first: at the place that is returned."""
        if candidate.place.rest:
            return None
        here = candidate.place.node, self._page(candidate.key, candidate.path_len)
        for prefix in self._found.get(here, ()):
            if prefix.put_to_sleep(candidate, self._page_size):
                self._asleep[candidate] = prefix
                return prefix.place
        return None

    def remove(self, candidate: Candidate) -> None:
        """A candidate has ended: if it sleeps, it need not be woken."""
        prefix = self._asleep.pop(candidate, None)
        if prefix is not None:
            prefix.remove(candidate)

    def has_sleepers_at(self, node: Node | ExtraKey) -> bool:
        """Whether the match of anybody who sleeps ends at the end of a node."""
        return any(prefix.has_sleepers and prefix.place.node == node for prefix in self._prefixes.values())

    def _wake(self, prefix: Prefix, published: int) -> list[Candidate]:
        woken = prefix.wake(published)
        for candidate in woken:
            del self._asleep[candidate]
        return woken

    def _page(self, key: bytes, start: int) -> bytes:
        return key[start * TOKEN_BYTES : (start + self._page_size) * TOKEN_BYTES]
