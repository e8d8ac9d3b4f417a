"""What could have been reused: by a cache that never forgets, and by one of a given size that knows what comes.

Requests are taken one at a time in the order given, each kept whole from its turn on, its answer too. The tokens of all of them
are cut into runs that are always used together: the edges of the tree that holds everything. The clairvoyant cache
evicts by Belady's rule, bound to leaves, from the end of a run as many tokens as it needs. No order of eviction reuses more.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from sys import maxsize

from radixserve.simulator.prompt_tree import PromptTree
from radixserve.simulator.requests import SimRequest
from radixserve.simulator.traces import PAGE_LEN
from radixserve.tokens import TOKEN_BYTES

Run = tuple[int, int]
"""A number, and how many tokens."""


@dataclass(frozen=True)
class Use:
    """What one request asks for and leaves behind, as runs from the first token on."""

    prompt: list[Run]
    whole: list[Run]
    """The prompt, and what follows it in the cache."""
    reusable_len: int
    """All of the prompt but the last token, which must be computed."""


def uses_of(requests: Sequence[SimRequest]) -> list[Use]:
    """The runs of every request."""
    if all(request.tokens is None for request in requests):
        return [_trace_use(request) for request in requests]
    return _edges(requests)


def _trace_use(request: SimRequest) -> Use:
    lengths = [PAGE_LEN] * (len(request.pages) - 1) + [request.prompt_len - PAGE_LEN * (len(request.pages) - 1)]
    runs = list(zip(request.pages, lengths, strict=True))
    return Use(runs, runs, request.prompt_len - 1)


def _edges(requests: Sequence[SimRequest]) -> list[Use]:
    """Builds the tree of everything first, since later requests split the edges of earlier ones."""
    tree = PromptTree()
    for request in requests:
        for tokens in (request.prompt(), _kept(request)):
            tree.insert(request.extra_key, tokens)
    uses = []
    for request in requests:
        paths = [tree.path(request.extra_key, tokens) for tokens in (request.prompt(), _kept(request))]
        prompt, whole = ([(node.serial, node.num_tokens) for node in path] for path in paths)
        uses.append(Use(prompt, whole, request.prompt_len - 1))
    return uses


def _kept(request: SimRequest) -> bytes:
    """What has KV in the end: all but the last token of the answer."""
    assert request.tokens is not None
    return request.tokens[: (request.prompt_len + request.output_len - 1) * TOKEN_BYTES]


def infinite_hits(uses: Iterable[Use]) -> int:
    """Prompt tokens that a cache without bounds reuses."""
    held: set[int] = set()
    hits = 0
    for use in uses:
        hits += min(sum(length for run, length in use.prompt if run in held), use.reusable_len)
        held.update(run for run, _ in use.whole)
    return hits


def num_unique_tokens(uses: Iterable[Use]) -> int:
    """What a cache without bounds holds in the end."""
    return sum(dict(run for use in uses for run in use.whole).values())


class Clairvoyant:
    """A cache of `num_slots` tokens that knows all `uses`. `hits`: prompt tokens reused."""

    def __init__(self, uses: Sequence[Use], num_slots: int) -> None:
        self.hits = 0
        self._num_slots = num_slots
        self._num_held = 0
        self._held: dict[int, int] = {}
        """Tokens from the start of a run that are in the cache."""
        self._parents: dict[int, int] = {}
        self._num_children: dict[int, int] = defaultdict(int)
        self._times: dict[int, list[int]] = defaultdict(list)
        self._heap: list[tuple[int, int]] = []
        for time, use in enumerate(uses):
            for run, _ in use.prompt:
                self._times[run].append(time)
        for time, use in enumerate(uses):
            self._serve(time, use)

    def _serve(self, time: int, use: Use) -> None:
        found = 0
        for run, length in use.prompt:
            held = self._held.get(run, 0)
            found += held
            if held < length:
                break
        self.hits += min(found, use.reusable_len)
        path = _first(use.whole, self._num_slots)
        self._make_room(time, path)
        parent = -1
        for run, length in path:
            if run not in self._held:
                self._parents[run] = parent
                self._num_children[parent] += 1
            self._num_held += length - self._held.get(run, 0)
            self._held[run] = length
            parent = run
        self._offer(time, parent)

    def _make_room(self, time: int, path: list[Run]) -> None:
        """Evicts what is needed farthest in the future, but nothing of `path`, which ends in the same leaf as its request."""
        needed = self._num_held + sum(length - self._held.get(run, 0) for run, length in path) - self._num_slots
        locked = {run for run, _ in path}
        while needed > 0:
            order, run = heappop(self._heap)
            if run in locked or run not in self._held or self._num_children[run] or -order != self._next_use(time, run):
                continue
            cut = min(needed, self._held[run])
            needed -= cut
            self._num_held -= cut
            self._held[run] -= cut
            if self._held[run]:
                heappush(self._heap, (order, run))
            else:
                del self._held[run]
                parent = self._parents.pop(run)
                self._num_children[parent] -= 1
                self._offer(time, parent)

    def _offer(self, time: int, run: int) -> None:
        """Makes a run evictable if it is a leaf."""
        if run >= 0 and not self._num_children[run]:
            heappush(self._heap, (-self._next_use(time, run), run))

    def _next_use(self, time: int, run: int) -> int:
        times = self._times[run]
        at = bisect_right(times, time)
        return times[at] if at < len(times) else maxsize


def _first(runs: list[Run], num_tokens: int) -> list[Run]:
    """The runs of the first `num_tokens` tokens."""
    kept: list[Run] = []
    for run, length in runs:
        if num_tokens > 0:
            kept.append((run, min(length, num_tokens)))
            num_tokens -= length
    return kept
