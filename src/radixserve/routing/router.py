"""The router: which replicas there are, what each is believed to hold, and what each has to do.

It learns from what it routes, and is corrected by what replicas report. It decides by the order of its calls alone: no clock, no
input or output. Invariants: a replica's counts are the sums over its requests; its memory holds no more pages than its pool, and
that of all replicas together at most `max_pages`.
"""

import math
from collections.abc import Container, Iterable
from dataclasses import dataclass

from radixserve.errors import ConfigError, RadixServeError
from radixserve.routing.policies import POLICIES
from radixserve.routing.prompt import PAGE_LEN, Prompt
from radixserve.routing.replica import Replica

MAX_PAGES = 1 << 20
"""Names that a router remembers: about 150 bytes each, for 64M tokens in all replicas."""
DECODING_TOKENS = 64
"""What a request counts as from its first token to its end."""


class NoReplicaError(RadixServeError):
    """No replica takes requests now; HTTP 503."""


@dataclass(slots=True)
class Ticket:
    """A request on its way."""

    replica: Replica
    new_pages: list[int]
    """What the router learned from it."""
    queued: int
    """What it counts as in `queue_tokens`."""
    started: bool = False


class Router:
    """Gives each request to a replica. `replicas`: by name, in order of joining.

    `recent_tokens` of a replica decays as work is given out, so that all together stay near the sum of all pools: each remembers
    about one turnover of its cache. A new replica starts with the average: it isn't drowned to make up for what others did before.
    """

    def __init__(self, policy: str = "prefix", *, max_pages: int = MAX_PAGES) -> None:
        """`policy`: a name in `routing.policies`. Raises ConfigError for another."""
        if policy not in POLICIES:
            raise ConfigError(f"--router has {policy!r}: choose among {', '.join(POLICIES)}")
        self.replicas: dict[str, Replica] = {}
        self._policy = POLICIES[policy]()
        self._max_pages = max_pages
        self._tickets: dict[str, Ticket] = {}

    def join(self, name: str, num_slots: int) -> list[str]:
        """A replica came, or came back empty: what was known of its name is forgotten. Returns what `leave` does."""
        lost = self.leave(name)
        others = [replica.recent_tokens for replica in self.replicas.values()]
        average = sum(others) / len(others) if others else float(num_slots)
        self.replicas[name] = Replica(name, num_slots, average)
        for replica in self.replicas.values():
            replica.held.shrink(self._page_limit(replica))
        return lost

    def drain(self, name: str) -> None:
        """The replica finishes what it has and gets no more."""
        self.replicas[name].draining = True

    def leave(self, name: str) -> list[str]:
        """The replica is gone, if it was there. Returns the ids of its requests, which have ended here and may be routed again."""
        replica = self.replicas.pop(name, None)
        lost = [rid for rid, ticket in self._tickets.items() if ticket.replica is replica]
        for rid in lost:
            del self._tickets[rid]
        return lost

    def route(self, rid: str, prompt: Prompt, among: Container[str] | None = None) -> str:
        """Chooses a replica for a request and counts it there until `ended`. Raises NoReplicaError.

        `among`: names of those that the request can reach, where not all can be.
        """
        assert rid not in self._tickets, f"request {rid} is routed already"
        choice = [one for one in self.replicas.values() if not one.draining and (among is None or one.name in among)]
        if not choice:
            raise NoReplicaError(f"none of {len(self.replicas)} replicas takes requests: start one, or wait until one is ready")
        replica = self._policy.choose(prompt, choice)
        num_held = replica.held.num_held(prompt.pages)
        num_missing = prompt.num_missing(num_held)
        self._tickets[rid] = Ticket(replica, prompt.pages[num_held:], num_missing)
        replica.queue_tokens += num_missing
        replica.num_requests += 1
        replica.held.use(prompt.pages, self._page_limit(replica))
        self._remember_work(replica, num_missing)
        return replica.name

    def started(self, rid: str) -> None:
        """The first token came: the prompt is computed. Unknown ids are ignored: their replica has left."""
        ticket = self._tickets.get(rid)
        if ticket is not None:
            ticket.replica.queue_tokens += DECODING_TOKENS - ticket.queued
            ticket.queued, ticket.started = DECODING_TOKENS, True

    def ended(self, rid: str) -> None:
        """The request is done, failed or aborted; unknown ids are ignored. Before its first token, what it taught is forgotten."""
        ticket = self._tickets.pop(rid, None)
        if ticket is not None:
            ticket.replica.queue_tokens -= ticket.queued
            ticket.replica.num_requests -= 1
            if not ticket.started:
                ticket.replica.held.discard(ticket.new_pages)

    def stored(self, name: str, pages: Iterable[int]) -> None:
        """A replica reports pages that came into its cache, parents before their children."""
        replica = self.replicas[name]
        replica.held.add(pages, self._page_limit(replica))

    def removed(self, name: str, pages: Iterable[int]) -> None:
        """A replica reports pages that it evicted."""
        self.replicas[name].held.discard(pages)

    def flushed(self, name: str) -> None:
        """A replica reports that its cache is empty."""
        self.replicas[name].held.clear()

    def _page_limit(self, replica: Replica) -> int:
        """Pages to remember of one replica: what fits its pool and its part of the router's memory."""
        return min(replica.num_slots // PAGE_LEN, self._max_pages // len(self.replicas))

    def _remember_work(self, replica: Replica, num_tokens: int) -> None:
        kept = math.exp(-num_tokens / sum(other.num_slots for other in self.replicas.values()))
        for other in self.replicas.values():
            other.recent_tokens *= kept
        replica.recent_tokens += num_tokens
