"""One watch on the engine for any number of viewers.

The engine is asked to tell while somebody watches, and its news keep one mirror. Each viewer collects what changed since its last
frame, as sets of names, and takes a frame when its connection can hold one. A slow viewer gets fewer and larger frames, a very slow
one a new snapshot; none costs much memory or holds up the engine or another viewer.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

import msgspec

from radixserve.errors import EngineDeadError
from radixserve.ipc import CacheNews
from radixserve.observe.metrics import Metrics
from radixserve.observe.mirror import Changes, Mirror
from radixserve.observe.news import News, Snapshot, unseal
from radixserve.server.backend import Replica
from radixserve.server.cache.view import CacheView
from radixserve.server.middleware.gate import Gate

FRAME_GAP_S = 0.05
"""Least time between two frames of one viewer."""

SAMPLE_GAP_S = 1.0
"""Between two samples of the engine's figures."""

HISTORY = 900
"""Samples kept for viewers that come later."""

MAX_GONE = 20_000
"""Nodes and requests gone since a viewer's last frame, beyond which it gets a new snapshot: what is there is bounded by itself."""

Frame = tuple[str, dict[str, Any]]
"""Kind (snapshot, change, stats) and content."""


class CacheFeed:
    """Serves viewers. Idle, and the engine with it, while there are none."""

    def __init__(self, client: Replica, view: CacheView, metrics: Metrics, gate: Gate) -> None:
        self.view = view
        self.client = client
        self._metrics = metrics
        self._gate = gate
        self._mirror: Mirror | None = None
        self._ready = asyncio.Event()
        self._viewers: list[_Viewer] = []
        self._history: deque[dict[str, Any]] = deque(maxlen=HISTORY)
        client.on_cache_news = self._take

    @contextlib.asynccontextmanager
    async def mirror(self) -> AsyncIterator[Mirror]:
        """The cache as it is now, kept up to date inside. Raises EngineDeadError when there is no engine to ask."""
        with self._watching():
            yield await self._wait_mirror()

    async def frames(self) -> AsyncGenerator[Frame, None]:
        """A snapshot, then changes and figures as they come, until the server shuts down or the engine dies."""
        with self._watching() as viewer:
            viewer.changes = None
            while not self._gate.closed and not self.client.dead.is_set():
                mirror = await self._wait_mirror()
                if viewer.changes is None:
                    viewer.changes = Changes()
                    viewer.wake.clear()
                    yield "snapshot", self.view.snapshot(mirror) | {"history": [*self._history, self._sample()]}
                elif viewer.wake.is_set():
                    changes, viewer.changes = viewer.changes, Changes()
                    viewer.wake.clear()
                    yield "change", self.view.change(mirror, changes)
                yield "stats", self._sample()
                await asyncio.sleep(FRAME_GAP_S)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(viewer.wake.wait(), SAMPLE_GAP_S)

    @contextlib.contextmanager
    def _watching(self) -> Iterator["_Viewer"]:
        """Counts a viewer; the first and the last switch the watch on and off."""
        viewer = _Viewer()
        if not self._viewers:
            self.client.watch(True)
            self._sampler = asyncio.create_task(self._keep_history())
        self._viewers.append(viewer)
        try:
            yield viewer
        finally:
            self._viewers.remove(viewer)
            if not self._viewers:
                self.client.watch(False)
                self._sampler.cancel()
                self._mirror = None
                self._ready.clear()

    async def _wait_mirror(self) -> Mirror:
        ready, dead = (asyncio.create_task(event.wait()) for event in (self._ready, self.client.dead))
        try:
            await asyncio.wait([ready, dead], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
            dead.cancel()
        if self._mirror is None:
            raise EngineDeadError(str(self.client.failure))
        return self._mirror

    def _take(self, message: CacheNews) -> None:
        match unseal(message.sealed):
            case Snapshot() as snapshot:
                self._mirror = Mirror(snapshot)
                self._ready.set()
                for viewer in self._viewers:  # another server began to watch the same replica
                    viewer.start_over()
            case News() as news if self._mirror is not None:
                changes = self._mirror.apply(news)
                for viewer in self._viewers:
                    viewer.tell(changes)

    async def _keep_history(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_GAP_S)
            self._history.append(self._sample())

    def _sample(self) -> dict[str, Any]:
        """The engine's running totals, and the sum and number of times to the first token, at a time in Unix seconds."""
        first_token = {s.name.rpartition("_")[2]: s.value for s in next(iter(self._metrics.time_to_first_token.collect())).samples}
        totals = msgspec.structs.asdict(self.client.stats)
        return totals | {"time": time.time(), "ttft_sum_s": first_token["sum"], "ttft_count": first_token["count"]}


class _Viewer:
    """What changed since a viewer's last frame; None when that is too much to keep, and everything is to be told anew."""

    def __init__(self) -> None:
        self.changes: Changes | None = None
        self.wake = asyncio.Event()

    def start_over(self) -> None:
        """Everything is to be told anew."""
        self.changes = None
        self.wake.set()

    def tell(self, changes: Changes) -> None:
        """Adds what changed after."""
        if self.changes is not None:
            self.changes.add(changes)
            if len(self.changes.removed) + len(self.changes.ended) > MAX_GONE:
                self.changes = None
        self.wake.set()
