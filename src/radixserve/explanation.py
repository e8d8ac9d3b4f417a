"""Why a request reused what it reused: the facts, as they cross between the processes. `observe.explain` finds and words them."""

from typing import Literal

import msgspec

Reason = Literal[
    "capped", "prompt_logprobs", "disabled", "page_rounding", "computing", "evicted", "flushed", "other_namespace", "unknown",
    "never_seen",
]  # fmt: skip
"""Why a match went no further. capped: all was there; the last prompt token is always computed. prompt_logprobs: the log
probabilities of what follows were asked for, and the cache has none. disabled: there is no cache.
page_rounding: more had been computed, but not a whole page. computing: another request was at it. evicted, flushed: it was there.
other_namespace: another salt or adapter has it. unknown: it was there, probably, and what became of it is forgotten. never_seen."""


class Branch(msgspec.Struct, frozen=True):
    """The cached sequence nearest to the prompt where the match ended."""

    token_ids: tuple[int, ...]
    """What it has where the prompt goes on differently: its first tokens."""
    num_tokens: int
    """To the end of its node."""
    hit_count: int
    admissions_ago: int
    """Since it was last used."""


class Loss(msgspec.Struct, frozen=True):
    """An eviction. Admissions are what the cache's clock counts."""

    admissions_ago: int
    seconds_ago: float
    unused_for: int
    """Admissions since its last use, when it went."""
    request_id: str | None
    """Whose admission or answer needed the room; None where that is forgotten or is another namespace's affair."""
    by_hand: bool = False
    """No request needed the room: somebody asked for it at /cache/evict."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """One request at its first admission."""

    request_id: str
    prompt_tokens: int
    cached_tokens: int
    """The match ended here: the position of the first token that was computed."""
    reason: Reason
    missed_tokens: int = 0
    """Tokens after it that would have been reused but for the reason; 0 where it can't be known."""
    before: tuple[int, ...] = ()
    """The last token ids that were reused."""
    after: tuple[int, ...] = ()
    """The first that were computed."""
    branch: Branch | None = None
    loss: Loss | None = None
    """Where the reason is evicted."""
    computed_by: str | None = None
    """Where the reason is computing: the other request's id."""
    adapter: str | None = None
    salted: bool = False
    """Where the reason is other_namespace: that one's adapter, and whether it has this request's salt or none."""
