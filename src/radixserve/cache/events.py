"""What the tree tells its listeners: a node came, was split, or went. Serial numbers name nodes.

Nobody listens by default, and then no event is made. A listener is called in the middle of an operation: it must not call the
cache back.
"""

from collections.abc import Callable
from dataclasses import dataclass

from radixserve.req import ExtraKey


@dataclass(frozen=True, slots=True)
class Inserted:
    """A leaf was added below `parent` (a root's number where it starts a prompt). `tokens`: int32 ids of its edge, as bytes."""

    extra_key: ExtraKey
    serial: int
    parent: int
    tokens: bytes
    time: int


@dataclass(frozen=True, slots=True)
class Split:
    """Node `serial` kept its end; its first `at` tokens, `tokens`, became the new node `upper` above it."""

    serial: int
    upper: int
    at: int
    tokens: bytes


@dataclass(frozen=True, slots=True)
class Evicted:
    """A leaf of `num_tokens` went, last used at `last_access_time`. `tokens`: int32 ids of its edge, as bytes."""

    serial: int
    num_tokens: int
    last_access_time: int
    time: int
    tokens: bytes
    evicted_for: int | None
    """Time of the `acquire` whose lease needed the room; None when no lease did."""


@dataclass(frozen=True, slots=True)
class Flushed:
    """Everything went."""

    num_tokens: int


CacheEvent = Inserted | Split | Evicted | Flushed
CacheListener = Callable[[CacheEvent], None]
