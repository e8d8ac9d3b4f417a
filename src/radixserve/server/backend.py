"""What answers the requests of a server: the client of one engine, or replicas behind a router."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence, Set
from typing import Protocol

from prometheus_client.registry import Collector

from radixserve.cache_report import CacheTop
from radixserve.config import EngineConfig
from radixserve.errors import RadixServeError
from radixserve.explanation import Explanation
from radixserve.ipc import CacheCommand, CacheNews, CommandResult, EngineInfo, EngineStats, GenerateRequest, Output


class Replica(Protocol):
    """One engine with its cache, to be looked at and acted on; see `EngineClient`."""

    on_cache_news: Callable[[CacheNews], None] | None

    @property
    def stats(self) -> EngineStats: ...

    @property
    def dead(self) -> asyncio.Event: ...

    @property
    def failure(self) -> RadixServeError | None: ...

    def watch(self, on: bool) -> None: ...

    async def top(self, count: int) -> CacheTop: ...

    async def act(self, act: CacheCommand) -> CommandResult: ...


class Backend(Protocol):
    """All of it; see `EngineClient`. Once `dead` is set, it answers no more; while there is a `failure`, it can't."""

    @property
    def stats(self) -> EngineStats: ...

    async def refresh(self) -> float:
        """Waits a little until `stats` count all that was sent and told so far; returns how old they are, in seconds."""

    @property
    def dead(self) -> asyncio.Event: ...

    @property
    def failure(self) -> RadixServeError | None: ...

    @property
    def replicas(self) -> Mapping[str, Replica]:
        """Those that live, by name."""

    @property
    def collector(self) -> Collector:
        """Makes the metrics of the engines."""

    async def start(self, config: EngineConfig) -> EngineInfo: ...

    async def stop(self) -> None: ...

    def generate(self, requests: Sequence[GenerateRequest]) -> AsyncGenerator[tuple[int, Output], None]: ...

    async def abort(self, request_ids: Set[str] | None) -> int: ...

    def fail_open(self, reason: str) -> int: ...

    async def flush(self, unused: bool = False) -> str: ...

    async def explain(self, request_id: str) -> list[Explanation]: ...

    async def update_weights(self, model: str) -> str: ...

    async def load_adapter(self, name: str, directory: str, *, replace: bool = False) -> str: ...

    async def unload_adapter(self, name: str) -> str: ...
