"""Says of each request why its match went no further than it did.

The facts are taken when a request is admitted for the first time, from the tree as it found it; the last NUM_EXPLANATIONS are
kept. Of other namespaces only those are looked into that the request could have asked for itself: without a salt, or with its
own salt and another adapter. What others' salts hide stays hidden, and so do the names of their requests.
"""

import time
from collections import OrderedDict, deque
from typing import TypeVar

from msgspec.structs import replace

from radixserve.cache.events import CacheEvent, Evicted, Flushed, Inserted
from radixserve.cache.fingerprints import Fingerprints, Point, go_on, start
from radixserve.cache.node import Node
from radixserve.cache.prefix_cache import PrefixCache
from radixserve.cache.radix_tree import Walk, shared_tokens
from radixserve.explanation import Branch, Explanation, Loss, Reason
from radixserve.observe.prefix_memory import Eviction, PrefixMemory
from radixserve.req import Req
from radixserve.scheduler.scheduler import Scheduler
from radixserve.tokens import TOKEN_BYTES, ExtraKey, as_ids

K = TypeVar("K")
V = TypeVar("V")

NUM_EXPLANATIONS = 4096
"""Explanations that are kept, one a prompt and choice."""
NUM_LEASES = 1 << 14
"""Admissions whose request is remembered, to say for whom something was evicted."""
NUM_TAILS = 1024
"""Part-filled pages of ended requests that are remembered."""
AROUND = 16
"""Tokens shown on each side of a match's end."""
MAX_BRANCHES = 256
"""Children of a node among which the nearest branch is chosen."""


class Explainer:
    """Must hear all events of one scheduler and its cache, from their start on."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._cache: PrefixCache = scheduler.cache
        self._memory = PrefixMemory()
        self._leases: OrderedDict[int, tuple[str, ExtraKey]] = OrderedDict()
        self._tails: OrderedDict[Point, bytes] = OrderedDict()
        self._explanations: deque[Explanation] = deque(maxlen=NUM_EXPLANATIONS)
        self._draft: Explanation | None = None

    def find(self, request_id: str) -> list[Explanation]:
        """The explanations of a request, one a prompt and choice, in order of admission; none if it is unknown or forgotten."""
        return [found for found in self._explanations if found.request_id == request_id]

    # What happens

    def on_cache(self, event: CacheEvent, fingerprints: Fingerprints) -> None:
        """Takes the next event of the cache, and the fingerprints along its edge."""
        if isinstance(event, Inserted):
            self._memory.add(fingerprints)
        elif isinstance(event, Evicted):
            self._memory.add_eviction(event, fingerprints)
        elif isinstance(event, Flushed):
            self._memory.flush()

    def admitting(self, req: Req, prefixes: Fingerprints) -> None:
        """A request will be admitted next. `prefixes`: the fingerprints of its prompt's."""
        _put(self._leases, self._cache.clock + 1, (req.request_id, req.extra_key), NUM_LEASES)
        self._draft = self._explain(req, prefixes) if req.cached_len is None else None

    def admitted(self, req: Req) -> None:
        """It is; the first time it is explained."""
        if self._draft is None:
            return
        req.explanation = self._settle(self._draft, req)
        self._explanations.append(req.explanation)

    def leaving(self, req: Req) -> None:
        """It ended or is preempted. Part of a page, which is not kept, is remembered."""
        if self._cache.page_size > 1 and self._cache.enabled:
            self._keep_tail(req)

    def _keep_tail(self, req: Req) -> None:
        assert req.lease is not None
        tokens, at = req.tokens(req.computed_len), req.lease.tree_len * TOKEN_BYTES
        if len(tokens) > at:
            _put(self._tails, go_on(start(req.extra_key), tokens[:at])[1], tokens[at:], NUM_TAILS)

    def _settle(self, draft: Explanation, req: Req) -> Explanation:
        """The match may have been cut to whole pages for want of room, after it was explained."""
        assert req.cached_len is not None
        lost = draft.cached_tokens - req.cached_len
        if lost == 0:
            return draft
        return replace(_facts(req, req.cached_len, "page_rounding"), missed_tokens=lost)

    # Why

    def _explain(self, req: Req, prefixes: Fingerprints) -> Explanation:
        """From the tree as it is now."""
        key = req.tokens(req.reusable_len)
        if not self._cache.enabled:
            return _facts(req, 0, "disabled")
        tree = self._cache.tree
        walk = tree.walk(tree.find_root(req.extra_key), key)
        page = tree.partial_page(walk, key)
        end = walk.end + (page[2] if page else 0)
        facts = _facts(req, end, "never_seen")
        if end == req.reusable_len:
            return replace(facts, reason="capped" if end == req.prompt_len - 1 else "prompt_logprobs")
        facts = replace(facts, branch=self._branch(walk, page[1] if page else None, page[2] if page else 0))
        return (
            self._rounded(facts, req, key, walk.end)
            or self._in_computation(facts, req, key)
            or self._gone(facts, req, prefixes)
            or self._elsewhere(facts, req, key)
            or facts
        )

    def _rounded(self, facts: Explanation, req: Req, key: bytes, path_len: int) -> Explanation | None:
        if not self._tails:
            return None
        point = go_on(start(req.extra_key), key[: path_len * TOKEN_BYTES])[1]
        more = path_len + shared_tokens(key, path_len * TOKEN_BYTES, self._tails.get(point, b"")) - facts.cached_tokens
        return replace(facts, reason="page_rounding", missed_tokens=more) if more > 0 else None

    def _in_computation(self, facts: Explanation, req: Req, key: bytes) -> Explanation | None:
        end = facts.cached_tokens
        wanted = key[: (end + 1) * TOKEN_BYTES]
        for other in self._scheduler.running:
            if other.extra_key == req.extra_key and other.seq_len > end and other.prompt.startswith(wanted[: len(other.prompt)]):
                more = shared_tokens(key, 0, other.tokens()) - end
                if more > 0:
                    return replace(facts, reason="computing", missed_tokens=more, computed_by=other.request_id)
        return None

    def _gone(self, facts: Explanation, req: Req, prefixes: Fingerprints) -> Explanation | None:
        """Evicted or flushed, as far as is remembered; unknown, where it was in the tree and that is all that is known."""
        missed = prefixes[facts.cached_tokens : req.reusable_len]
        eviction = self._memory.find(missed[0])
        if eviction is not None:
            loss = self._loss(eviction, req.extra_key)
            return replace(facts, reason="evicted", missed_tokens=self._memory.count(missed), loss=loss)
        if self._memory.went_in_flush(missed[0]):
            return replace(facts, reason="flushed", missed_tokens=self._memory.count_flushed(missed))
        return replace(facts, reason="unknown") if self._memory.may_have_held(missed[0]) else None

    def _loss(self, eviction: Eviction, extra_key: ExtraKey) -> Loss:
        lease = self._leases.get(eviction.evicted_for) if eviction.evicted_for is not None else None
        return Loss(
            admissions_ago=self._cache.clock + 1 - eviction.time,
            seconds_ago=time.monotonic() - eviction.at_s,
            unused_for=eviction.time - eviction.last_access_time,
            request_id=lease[0] if lease is not None and lease[1] == extra_key else None,
            by_hand=eviction.evicted_for is None,
        )

    def _elsewhere(self, facts: Explanation, req: Req, key: bytes) -> Explanation | None:
        for other, root in self._cache.tree.roots.items():
            if other[:2] != req.extra_key[:2] and other.cache_salt in (None, req.extra_key.cache_salt):
                more = self._cache.tree.walk(root, key).end - facts.cached_tokens
                if more > 0:
                    salted = other.cache_salt is not None
                    return replace(facts, reason="other_namespace", missed_tokens=more, adapter=other.adapter, salted=salted)
        return None

    def _branch(self, walk: Walk, owner: Node | None, shared: int) -> Branch | None:
        """What the tree has where the walk ended: the edge that it ended in, the page that shares most, or the child most used."""
        node, at = walk.child, walk.inside
        if owner is not None:
            node, at = owner, (at if owner is walk.child else 0) + shared
        elif node is None:
            children = list(walk.node.children.values())[:MAX_BRANCHES]
            node = max(children, key=lambda child: (child.hit_count, child.last_access_time), default=None)
        if node is None:
            return None
        ids = as_ids(node.key)[at : at + AROUND]
        ago = self._cache.clock + 1 - node.last_access_time
        return Branch(tuple(ids.tolist()), node.num_tokens - at, node.hit_count, ago)


def _facts(req: Req, end: int, reason: Reason) -> Explanation:
    """What is known of a match that ended at `end`."""
    return Explanation(
        request_id=req.request_id,
        prompt_tokens=req.prompt_len,
        cached_tokens=end,
        reason=reason,
        before=tuple(req.token_ids(max(end - AROUND, 0), end).tolist()),
        after=tuple(req.token_ids(end, min(end + AROUND, req.prompt_len)).tolist()),
    )


def _put(memory: OrderedDict[K, V], key: K, value: V, limit: int) -> None:
    """Remembers a value, and forgets the oldest when there are more than `limit`."""
    memory[key] = value
    if len(memory) > limit:
        memory.popitem(last=False)
