"""One replica: an engine in a process of its own, behind a Ray actor that passes messages on and reports to the shared state.

It ends with its engine: Ray Serve starts another in its place, which has another name.
"""

import asyncio
import dataclasses
import logging
import os
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from typing import Any

import msgspec
import ray
from ray import serve

from radixserve.config import EngineConfig
from radixserve.errors import ConfigError, EngineDeadError, RadixServeError
from radixserve.ipc import CacheNews, GenerateRequest, PageChange, PageNews, RequestFailed
from radixserve.process.client import EngineClient
from radixserve.replicas.state import Report
from radixserve.replicas.state_actor import SharedState

logger = logging.getLogger(__name__)


class EngineReplica:
    """A deployment of Ray Serve. What it answers with may be a RequestFailed in place of what was asked for."""

    async def __init__(self, config: EngineConfig, policy: str) -> None:  # type: ignore[misc]  # Serve awaits it
        """Returns when the engine is ready. Raises ConfigError when it can't start as configured."""
        context = serve.get_replica_context()
        self.name = str(context.replica_id.unique_id)
        self._state = SharedState(context.app_name, policy)
        self._client = EngineClient()
        self._changes: list[PageChange] = []
        self._ended: list[tuple[str, bool]] = []
        self._news = asyncio.Event()
        self._watchers: list[asyncio.Queue[CacheNews]] = []
        self._client.on_page_news = self._take_page_news
        self._client.on_cache_news = self._take_cache_news
        try:
            self._info = await self._client.start(_with_threads(config))
        except (ConfigError, EngineDeadError) as error:
            await self._state.ask("fail", str(error))
            raise
        self._client.report_pages()
        await self._state.ask("join", self.name, self._info)
        self._reporting = asyncio.create_task(self._report_news())
        self._supervising = asyncio.create_task(self._end_with_engine())

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[bytes, None]:
        """Streams pairs of choice number and Output, or at last a RequestFailed, as msgpack."""
        had_token = False
        try:
            async with aclosing(self._client.generate([request])) as events:
                async for number, output in events:
                    had_token |= output.completion_tokens > 0
                    yield msgspec.msgpack.encode((number, output))
        except EngineDeadError:
            raise
        except RadixServeError as error:
            yield msgspec.msgpack.encode((0, RequestFailed.of("", error)))
        finally:
            self._ended.append((request.rid, had_token))
            self._news.set()

    async def ask(self, name: str, method: str, *args: Any) -> Any:
        """Calls a method of the engine's client. `name`: the replica that it is meant for."""
        try:
            if name != self.name:
                raise EngineDeadError(f"the replica {name} is gone")
            answer: Awaitable[Any] = getattr(self._client, method)(*args)
            return await answer
        except RadixServeError as error:
            return RequestFailed.of("", error)

    async def ping(self) -> None:
        """Returns: whoever asks learns that a replica can be reached."""

    async def watch(self, name: str) -> AsyncGenerator[CacheNews, None]:
        """Streams what happens in the cache of the replica `name`, beginning with a snapshot; nothing if that isn't this one."""
        if name != self.name:
            return
        news: asyncio.Queue[CacheNews] = asyncio.Queue()
        self._watchers.append(news)
        self._client.watch(True)
        try:
            while True:
                yield await news.get()
        finally:
            self._watchers.remove(news)
            if not self._watchers:
                self._client.watch(False)

    async def check_health(self) -> None:
        """Raises EngineDeadError when the engine has ended. A busy one is healthy."""
        if self._client.failure is not None:
            raise EngineDeadError(str(self._client.failure))

    async def record_routing_stats(self) -> dict[str, Any]:
        """Called by Ray Serve every so often: figures go to the shared state, not to each handle."""
        await self._report()
        return {}

    async def __del__(self) -> None:
        """Ray Serve calls it when this replica's requests have ended."""
        if hasattr(self, "_supervising"):
            self._supervising.cancel()
            self._reporting.cancel()
            self._state.tell("leave", self.name)  # a state that was started anew doesn't know that it was to drain
        await self._client.stop()

    def _take_page_news(self, news: PageNews) -> None:
        self._changes += news.changes
        self._news.set()

    def _take_cache_news(self, news: CacheNews) -> None:
        for watcher in self._watchers:
            watcher.put_nowait(news)

    async def _report_news(self) -> None:
        """At once; what happens while a report is on its way goes with the next."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self._report()

    async def _report(self) -> None:
        changes, ended = self._changes, self._ended
        self._changes, self._ended = [], []
        try:
            if not await self._state.ask("report", Report(self.name, self._client.stats, changes, ended)):
                await self._state.ask("join", self.name, self._info)
        except ray.exceptions.RayError as error:
            logger.warning("the router's state can't be reached, a report is lost: %s", error)

    async def _end_with_engine(self) -> None:
        await self._client.dead.wait()
        logger.critical("%s", self._client.failure)
        os._exit(1)


def _with_threads(config: EngineConfig) -> EngineConfig:
    """As many threads as Ray gave this replica CPUs, shared out among its ranks, unless the config says how many."""
    if config.num_threads is not None:
        return config
    num_cpus = int(ray.get_runtime_context().get_assigned_resources().get("CPU", 0))
    return dataclasses.replace(config, num_threads=max(num_cpus // config.tensor_parallel, 1))
