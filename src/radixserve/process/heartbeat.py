"""Whether an engine answers, and how old its latest stats are."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable

from radixserve.ipc import Sync

EVERY_S = 5.0
"""How often an engine is asked whether it answers."""

PATIENCE_S = 2.0
"""How long a reader of the stats waits for a busy engine: Prometheus gives up after ten seconds."""


class Heartbeat:
    """Of one engine, from its start on. `send`: sends it a Sync."""

    def __init__(self, send: Callable[[Sync], None]) -> None:
        self._send = send
        self._ids = itertools.count()
        self._waiting: dict[str, asyncio.Future[bool]] = {}
        self._ended = False
        self._told_s = time.monotonic()
        self._silent_since_s: float | None = None

    @property
    def silent_s(self) -> float:
        """For how long the engine has owed an answer."""
        return 0.0 if self._silent_since_s is None else time.monotonic() - self._silent_since_s

    async def run(self) -> None:
        """Asks the engine whether it answers, again and again, until its end."""
        while not self._ended:
            self._silent_since_s = time.monotonic()
            try:
                if not await self._sync():
                    return  # dead: silent from now on
            except Exception:
                self._silent_since_s = None  # it was not asked
                raise
            self._silent_since_s = None
            await asyncio.sleep(EVERY_S)

    async def refresh(self) -> float:
        """Waits, PATIENCE_S at most, until the engine has told its stats as of now; returns how old they are, in seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                if await self._sync():
                    return 0.0
        return time.monotonic() - self._told_s

    def told(self) -> None:
        """The stats that are known are those of now."""
        self._told_s = time.monotonic()

    def synced(self, rid: str) -> None:
        """The engine has applied all that was sent before the Sync `rid`."""
        self.told()
        if rid in self._waiting:
            _set(self._waiting.pop(rid), True)

    def end(self) -> None:
        """The engine is dead."""
        self._ended = True
        while self._waiting:
            _set(self._waiting.popitem()[1], False)

    async def _sync(self) -> bool:
        """Waits until the engine has applied all that was sent; False when it is dead."""
        if self._ended:
            return False
        rid = str(next(self._ids))
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[rid] = answer
        try:
            self._send(Sync(rid))
            return await answer
        finally:
            self._waiting.pop(rid, None)


def _set(answer: asyncio.Future[bool], value: bool) -> None:
    if not answer.done():  # whoever waited may have just been cancelled
        answer.set_result(value)
