"""How much the HTTP process works on at once, and where: off the event loop, with one thread for all that is large.

A body is large above LARGE bytes. Large ones are read, decoded, rendered and tokenized in order of arrival, only so many at once
that their bytes stay within a bound; small ones have threads of their own and never wait behind them.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from radixserve import heap

LARGE = 64 * 1024
"""Bytes of a body from which on its work is large."""

MAX_LARGE_BYTES = 32 * 1024 * 1024
"""Of large bodies that are worked on at once; one that is larger by itself has its turn alone."""

SMALL_THREADS = 4

TRIM_AFTER_S = 1.0
"""How long nothing large is there before freed memory goes back to the system."""

T = TypeVar("T")


class Intake:
    """Of one server. Use it on its event loop."""

    def __init__(self, max_large_bytes: int = MAX_LARGE_BYTES) -> None:
        self._max_bytes = max_large_bytes
        self._held = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._small = ThreadPoolExecutor(SMALL_THREADS, thread_name_prefix="small-work")
        self._large = ThreadPoolExecutor(1, thread_name_prefix="large-work")
        self._trim: asyncio.TimerHandle | None = None
        self._closed = False

    async def enter(self, size: int) -> None:
        """Waits until a large body of `size` bytes may be read; `leave` with the same size when its work is done."""
        if self._trim is not None:
            self._trim.cancel()
        if self._waiting or not self._fits(size):
            turn = asyncio.get_running_loop().create_future()
            entry = (size, turn)
            self._waiting.append(entry)
            try:
                await turn  # who sets it counts us in
            except asyncio.CancelledError:
                if turn.cancelled():
                    self._waiting.remove(entry)
                    self._let_in()
                else:
                    self.leave(size)
                raise
        else:
            self._held += size

    def leave(self, size: int) -> None:
        """Counts a large body out."""
        self._held -= size
        self._let_in()
        if not self._held and not self._closed:
            loop = asyncio.get_running_loop()
            self._trim = loop.call_later(TRIM_AFTER_S, lambda: self._large.submit(heap.trim))

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """The result of `work` for a body of `size` bytes, on a thread."""
        threads = self._large if size > LARGE else self._small
        return await asyncio.get_running_loop().run_in_executor(threads, work)

    def close(self) -> None:
        """Forgets work that has not begun."""
        self._closed = True
        for threads in (self._small, self._large):
            threads.shutdown(wait=False, cancel_futures=True)
        if self._trim is not None:
            self._trim.cancel()

    def _fits(self, size: int) -> bool:
        return not self._held or self._held + size <= self._max_bytes

    def _let_in(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, turn = self._waiting[0]
            if turn.cancelled():  # takes itself out, and lets in who is next
                return
            self._waiting.popleft()
            self._held += size
            turn.set_result(None)
