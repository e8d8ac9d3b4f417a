"""What the cache tells its listeners: how the tree changed, and who uses what. Serial numbers name nodes; a path
is a node's way up to the root.

Nobody listens by default, and then no event is made. A listener is called in the middle of an operation: it must not call the
cache back. The events say everything that changes a node: who applies them to a copy of the tree has the tree, as
`observe/mirror.py` does.
"""

from collections.abc import Callable

import msgspec

from radixserve.tokens import ExtraKey


class Inserted(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """An unlocked leaf was added below `parent` (a root's number where it starts a prompt).

    `tokens`, `slots`: int32 of its edge, as bytes.
    """

    extra_key: ExtraKey
    serial: int
    parent: int
    tokens: bytes
    time: int
    slots: bytes


class Split(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Node `serial` kept its end; its first `at` tokens, `tokens`, became the new node `upper` above it.

    Both were used last at `time`: the present for a request's path, the node's own before its end is evicted.
    """

    serial: int
    upper: int
    at: int
    tokens: bytes
    time: int


class Acquired(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A request hit the path of `serial` (the root's number where it hit nothing): it is locked and was used at `time`."""

    extra_key: ExtraKey
    serial: int
    time: int


class Published(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A request's lock moved from node `start` down to `serial`: the nodes below `start` are locked and were used at `time`."""

    start: int
    serial: int
    time: int


class Released(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A lock of the path of `serial` was given back; the path was used at `time`."""

    serial: int
    time: int


class Locked(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The path of `serial` was locked without being used: for a copy, or by a pin."""

    serial: int


class Unlocked(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A `Locked` was taken back."""

    serial: int


class Evicted(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A leaf of `num_tokens`, or what was split off as the end of one, went, last used at `last_access_time`.

    `tokens`: int32 ids of its edge, as bytes.
    """

    serial: int
    num_tokens: int
    last_access_time: int
    time: int
    tokens: bytes
    evicted_for: int | None
    """Time of the `acquire` whose lease needed the room; None when no lease did."""


class Flushed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Everything went."""

    num_tokens: int


TreeChange = Inserted | Split | Evicted | Flushed
"""Whether a prefix is in the tree changes with these alone."""
CacheEvent = TreeChange | Acquired | Published | Released | Locked | Unlocked
CacheListener = Callable[[CacheEvent], None]
