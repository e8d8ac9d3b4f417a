"""What those who watch the cache are told: first a Snapshot, then News after each step. Plain structs, sealed as msgpack.

Tokens and slots are int32 as bytes. A request's slots are those of its own, which the tree does not have yet.
"""

from typing import Literal

import msgspec

from radixserve.cache.events import CacheEvent
from radixserve.tokens import ExtraKey


class NodeState(msgspec.Struct, frozen=True, array_like=True):
    """A node. `parent` is a node's or a root's serial number."""

    serial: int
    parent: int
    tokens: bytes
    slots: bytes
    created: int
    time: int
    hit_count: int
    lock_ref: int


class RootState(msgspec.Struct, frozen=True, array_like=True):
    """The root of a namespace."""

    serial: int
    extra_key: ExtraKey
    lock_ref: int


class RequestState(msgspec.Struct, frozen=True, array_like=True):
    """A request that waits or runs. `node`: end of its path while it runs, else 0."""

    rid: str
    phase: Literal["waiting", "running"]
    extra_key: ExtraKey
    prompt_tokens: int
    cached_tokens: int | None
    """None until it is admitted."""
    computed_tokens: int
    generated_tokens: int
    node: int
    own_start: int
    """Tokens whose slots the tree owns; the request's own come after."""
    new_slots: bytes
    """Own slots that were not told before: those of the last positions."""
    restarted: bool
    """Whether what was told of its slots before is void."""
    last_tokens: bytes
    """The end of its prompt, when it is told of for the first time."""


class Snapshot(msgspec.Struct, frozen=True, tag=True):
    """Everything. Nodes come parents first."""

    num_slots: int
    page_size: int
    clock: int
    roots: list[RootState]
    nodes: list[NodeState]
    requests: list[RequestState]
    pins: list[int]
    victims: list[int]
    """The leaves that would be evicted next, in order, if nothing else happened."""


class News(msgspec.Struct, frozen=True, tag=True):
    """What changed since the Snapshot or the last News. `requests`: those that are new or changed; `ended`: those that are gone."""

    events: list[CacheEvent]
    clock: int
    requests: list[RequestState]
    ended: list[str]
    pins: list[int]
    victims: list[int]


seal = msgspec.msgpack.Encoder().encode
unseal = msgspec.msgpack.Decoder(Snapshot | News).decode
