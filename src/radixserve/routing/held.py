"""Which pages one replica is believed to hold: a bounded memory that forgets as the replica's own cache does.

The least recently used page goes first, and of one prompt the last. So a page is remembered only together with all before it,
and the longest held prefix is found by bisection.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Sequence


class HeldPages:
    """Pages by name, the least recently used first."""

    def __init__(self) -> None:
        self._pages: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pages)

    def num_held(self, pages: Sequence[int], guess: int = 0) -> int:
        """How many of a prompt's pages, from the first on, are held. A right `guess` takes two look-ups. Changes nothing."""
        held = self._pages
        if (guess == 0 or pages[guess - 1] in held) and (guess == len(pages) or pages[guess] not in held):
            return guess
        return bisect_left(range(len(pages)), True, key=lambda at: pages[at] not in held)

    def use(self, pages: Sequence[int], limit: int) -> None:
        """A prompt was sent there: all its pages, or as many as fit, are the most recently used ones of at most `limit`."""
        held = self._pages
        for page in reversed(pages[:limit]):
            held[page] = None
            held.move_to_end(page)
        self.shrink(limit)

    def add(self, pages: Iterable[int], limit: int) -> None:
        """The replica says that it holds these, parents before their children. What is new here counts as used longest ago."""
        held = self._pages
        for page in pages:
            if page not in held:
                held[page] = None
                held.move_to_end(page, last=False)
        self.shrink(limit)

    def discard(self, pages: Iterable[int]) -> None:
        """These are held no more."""
        for page in pages:
            self._pages.pop(page, None)

    def clear(self) -> None:
        """Nothing is held."""
        self._pages.clear()

    def shrink(self, limit: int) -> None:
        """Forgets all but `limit` pages."""
        while len(self._pages) > limit:
            self._pages.popitem(last=False)
