"""Which slots of the KV pool are free: a ring of pages.

`alloc` takes from the front of the ring, `free` appends at its back, both in time that depends on the slots moved and not on
the pool's size. Slots of one request come in runs when the ring has them, and never have to.

Slots are numbered in whole pages: page p holds slots [p * page_size, (p + 1) * page_size). Page 0 belongs to nobody: padding
writes to it. So the buffers of the pool need `num_slots + page_size` slots.
"""

import numpy as np
from numpy.typing import NDArray

from radixserve.errors import ConfigError, OutOfSlotsError

Slots = NDArray[np.int32]
"""Slot numbers on the host; with pages, whole pages in order of position."""


class SlotPool:
    """Free slots of a pool of `num_slots`, rounded down to whole pages."""

    def __init__(self, num_slots: int, page_size: int = 1) -> None:
        if page_size < 1:
            raise ConfigError(f"the page size is {page_size}: it must be at least 1; set --page-size")
        if num_slots < page_size:
            raise ConfigError(f"{num_slots} slots hold no page of {page_size}: raise --num-slots or lower --page-size")
        if num_slots + page_size > 2**31:
            raise ConfigError(f"{num_slots} slots are more than int32 slot numbers reach, {2**31 - page_size}: lower --num-slots")
        self.page_size = page_size
        self.num_pages = num_slots // page_size
        self._ring = np.arange(page_size, (self.num_pages + 1) * page_size, page_size, dtype=np.int32)
        """First slots of the free pages: `_count` of them from `_front` on, around the end."""
        self._front = 0
        self._count = self.num_pages
        self._within_page = np.arange(page_size, dtype=np.int32)

    @property
    def num_slots(self) -> int:
        """Slots that can hold tokens."""
        return self.num_pages * self.page_size

    @property
    def free_size(self) -> int:
        """Free slots."""
        return self._count * self.page_size

    def alloc(self, num_slots: int) -> Slots:
        """Takes the `num_slots` (whole pages) that were free for longest. Raises OutOfSlotsError, taking none, if too few are."""
        slots = np.empty(num_slots, dtype=np.int32)
        self.alloc_into(slots)
        return slots

    def alloc_into(self, slots: Slots) -> None:
        """`alloc` that fills an array, such as a part of a lease's."""
        assert len(slots) % self.page_size == 0, "slots are given in whole pages"
        num_pages = len(slots) // self.page_size
        if num_pages > self._count:
            raise OutOfSlotsError(f"needs {len(slots)} slots: {self.free_size} free; raise --num-slots")
        self._peek(slots)
        self._front = (self._front + num_pages) % self.num_pages
        self._count -= num_pages

    def free(self, slots: Slots) -> None:
        """Appends `slots` (whole pages) at the back of the ring."""
        first = slots if self.page_size == 1 else slots[:: self.page_size]
        count = self._count + len(first)
        assert count <= self.num_pages, "a slot is freed twice"
        back = (self._front + self._count) % self.num_pages
        room = self.num_pages - back
        if len(first) <= room:
            self._ring[back : back + len(first)] = first
        else:
            self._ring[back:] = first[:room]
            self._ring[: len(first) - room] = first[room:]
        self._count = count

    def free_slots(self) -> Slots:
        """All free slots, in the order in which they will be given."""
        slots = np.empty(self.free_size, dtype=np.int32)
        self._peek(slots)
        return slots

    def _peek(self, slots: Slots) -> None:
        """Fills `slots` with the pages at the front of the ring."""
        pages = slots.reshape(-1, self.page_size)
        head = min(len(pages), self.num_pages - self._front)
        pages[:head] = self._ring[self._front : self._front + head, None]
        if head < len(pages):
            pages[head:] = self._ring[: len(pages) - head, None]
        if self.page_size > 1:
            pages += self._within_page
