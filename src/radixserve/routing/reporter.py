"""What a replica tells its router: which pages came into its cache and which went."""

from typing import Protocol

from radixserve.cache.events import CacheEvent, Evicted, Flushed, Inserted
from radixserve.cache.fingerprints import TreeFingerprints
from radixserve.routing.prompt import PAGE_LEN, start_of


class Listener(Protocol):
    """Who is told. Parents come before their children and go after them."""

    def stored(self, pages: list[int]) -> None: ...

    def removed(self, pages: list[int]) -> None: ...

    def flushed(self) -> None: ...


class Reporter:
    """Listens to a cache; must hear all of its events, from an empty tree on."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._tree = TreeFingerprints(start_of)

    def __call__(self, event: CacheEvent) -> None:
        """Takes the next event."""
        match event:
            case Inserted():
                pages = self._tree.follow(event)[self._first(event.serial) :: PAGE_LEN].tolist()
                if pages:
                    self._listener.stored(pages)
            case Evicted():
                first = self._first(event.serial)
                pages = self._tree.follow(event)[first::PAGE_LEN].tolist()
                if pages:
                    self._listener.removed(pages[::-1])
            case Flushed():
                self._tree.follow(event)
                self._listener.flushed()
            case _:
                self._tree.follow(event)

    def _first(self, serial: int) -> int:
        """Where, along a node's edge, the first page ends."""
        return (-self._tree.before(serial).length - 1) % PAGE_LEN
