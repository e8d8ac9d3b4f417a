"""Who gets the next request: a choice among replicas that follows from their state alone.

`prefix` chooses the lowest expected cost, all of it in tokens:

    tokens that must be computed there + tokens that are queued there + balance * tokens of the prompt * its share of recent work

The first two are what the request waits for. So a prefix that is asked for more than one replica can bear is soon computed by
a second, which has it then. The third is about those who come later: what a replica computes, it keeps, and it evicts as much for
it. Work that is spread evenly lets all pools live equally long, as one large pool would; it fills all caches of an idle fleet
rather than one. An average replica has a share of 1; an excess of 1 / BALANCE outweighs a prompt that is held whole.

Cost in tokens with load as the other side of it follows Srivatsa et al. 2024, "Preble: Efficient Distributed Prompt Scheduling for
LLM Serving".
"""

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from radixserve.routing.prompt import Prompt
from radixserve.routing.replica import Replica

BALANCE = 4.0
"""A replica with a quarter more of recent work than the average is avoided even by a prompt that it holds whole."""
SEED = 0


class Policy(Protocol):
    """A way to choose."""

    def choose(self, prompt: Prompt, replicas: Sequence[Replica]) -> Replica:
        """One of `replicas`, which are in order of joining and at least one. Changes none of them."""
        ...


class LowestCost:
    """`prefix`; see the module."""

    def choose(self, prompt: Prompt, replicas: Sequence[Replica]) -> Replica:
        average = sum(replica.recent_tokens for replica in replicas) / len(replicas)
        share_cost = BALANCE * prompt.num_tokens / average
        return min(replicas, key=lambda r: r.num_missing(prompt) + r.queue_tokens + share_cost * r.recent_tokens)


class LeastLoaded:
    """The fewest queued tokens, then the fewest requests, then the least recent work."""

    def choose(self, prompt: Prompt, replicas: Sequence[Replica]) -> Replica:
        return min(replicas, key=lambda r: (r.queue_tokens, r.num_requests, r.recent_tokens))


class RoundRobin:
    """Each in turn."""

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, prompt: Prompt, replicas: Sequence[Replica]) -> Replica:
        self._turn += 1
        return replicas[(self._turn - 1) % len(replicas)]


class Random:
    """Any; the same ones for the same requests."""

    def __init__(self) -> None:
        self._draw = random.Random(SEED)

    def choose(self, prompt: Prompt, replicas: Sequence[Replica]) -> Replica:
        return self._draw.choice(replicas)


POLICIES: dict[str, Callable[[], Policy]] = {
    "prefix": LowestCost,
    "round-robin": RoundRobin,
    "least-loaded": LeastLoaded,
    "random": Random,
}
