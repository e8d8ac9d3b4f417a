"""Who gets the next request: a choice among replicas that follows from their state alone.

`prefix` chooses the lowest expected cost, all of it in tokens:

    RECOMPUTE * (tokens to compute there + BALANCE * tokens of the prompt * its share of recent work) + tokens queued there

The last is what the request waits for. What is computed costs more than its own time: it delays all who come after, and takes
the place of something else in the cache. So a queue may be longer where a prefix is held; a prefix that is asked for more than one
replica can bear is computed by a second at last, which has it then. The share of recent work is 1 for an average replica. What a
replica computes, it keeps, and it evicts as much for it: work that is spread evenly lets all pools live equally long, as one
large pool would, and fills all caches of an idle fleet rather than one.

Cost in tokens with load as the other side of it follows Srivatsa et al. 2024, "Preble: Efficient Distributed Prompt Scheduling for
LLM Serving".
"""

import math
import random
from collections.abc import Callable, Sequence
from typing import Protocol

from radixserve.routing.prompt import Prompt
from radixserve.routing.replica import Replica

RECOMPUTE = 8
"""How many queued tokens a token to compute is worth; `docs/design/routing.md` has what other weights do."""
BALANCE = 1.0
"""An excess of 1 / BALANCE over the average share outweighs a prompt that is held whole."""
SEED = 0


class Policy(Protocol):
    """A way to choose."""

    def choose(self, prompt: Prompt, replicas: Sequence[Replica]) -> Replica:
        """One of `replicas`, which are in order of joining and at least one. Changes none of them."""
        ...


class LowestCost:
    """`prefix`; see the module."""

    def choose(self, prompt: Prompt, replicas: Sequence[Replica]) -> Replica:
        share_cost = BALANCE * prompt.num_tokens / (sum([replica.recent_tokens for replica in replicas]) / len(replicas))
        chosen, least, num_held = replicas[0], math.inf, 0
        for replica in replicas:
            num_held = replica.held.num_held(prompt.pages, num_held)  # most hold as much as the one before: what all share
            num_missing = prompt.num_missing(num_held)
            cost = RECOMPUTE * (num_missing + share_cost * replica.recent_tokens) + replica.queue_tokens
            if cost < least:
                chosen, least = replica, cost
        return chosen


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
