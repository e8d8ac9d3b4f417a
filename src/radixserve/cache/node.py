"""A node of the radix tree. `radix_tree` says what holds between nodes."""

from radixserve.cache.slot_pool import Slots
from radixserve.cache.uses import Use
from radixserve.tokens import ExtraKey, token_len


class Node:
    """One edge and the node at its end. `key`: int32 token ids as bytes; `value`: int32 [num_tokens], their slots."""

    __slots__ = (
        "children",
        "created",
        "first_pages",
        "hit_count",
        "key",
        "last_access_time",
        "lock_ref",
        "num_tokens",
        "parent",
        "pin_ref",
        "priority",
        "queued",
        "serial",
        "use",
        "value",
    )

    def __init__(self, serial: int, parent: "Node | None", key: bytes, value: Slots | None, time: int, priority: int) -> None:
        self.serial = serial
        self.parent = parent
        self.key = key
        self.value = value
        self.num_tokens = token_len(key)
        self.children: dict[bytes, Node] = {}
        self.first_pages: list[bytes] | None = None
        """Keys of `children`, sorted; kept only where pages hold more than one token."""
        self.created = time
        self.last_access_time = time
        self.hit_count = 0
        """Times that `acquire` found it in its path."""
        self.priority = priority
        self.lock_ref = 0
        self.pin_ref = 0
        """Pins at or below it; each is one of its locks too."""
        self.queued: int | None = None
        """Class in which the eviction queue has an entry of it; None if it has none."""
        self.use: Use | None = None
        """Its latest use, where the policy learns from uses."""

    @property
    def slots(self) -> Slots:
        """The slots of its tokens; a root has none."""
        assert self.value is not None
        return self.value

    def __repr__(self) -> str:
        return f"<Node {self.serial}: {self.num_tokens} tokens, lock_ref {self.lock_ref}>"


class Root(Node):
    """The root of one namespace: no tokens."""

    __slots__ = ("extra_key",)

    def __init__(self, serial: int, extra_key: ExtraKey, time: int) -> None:
        super().__init__(serial, None, b"", None, time, 0)
        self.extra_key = extra_key
