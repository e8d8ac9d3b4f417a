"""One replica of a fleet, to be looked at and acted on from another process."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Set
from typing import Any

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from radixserve.cache_report import CacheTop
from radixserve.errors import EngineDeadError, RadixServeError
from radixserve.explanation import Explanation
from radixserve.ipc import CacheCommand, CacheNews, CommandResult, EngineStats, RequestFailed
from radixserve.replicas.state import Member

REFRESH_S = 3.0
"""How long a reader of the stats waits for a replica: one more than its engine gets."""


class RemoteReplica:
    """Calls go through the application's handle, which brings them to this replica by its name."""

    def __init__(self, handle: DeploymentHandle, member: Member) -> None:
        self.member = member
        """As it was at the last look."""
        self.dead = asyncio.Event()
        self.on_cache_news: Callable[[CacheNews], None] | None = None
        self._handle = handle
        self._told_s = time.monotonic()
        self._watching: asyncio.Task[None] | None = None

    @property
    def stats(self) -> EngineStats:
        """As of its last report, or the last `refresh`."""
        return self.member.stats

    async def refresh(self) -> float:
        """See `EngineClient`."""
        with contextlib.suppress(TimeoutError, RadixServeError):
            async with asyncio.timeout(REFRESH_S):
                self.member.stats, age_s = await self._ask("read_stats")
                self._told_s = time.monotonic() - age_s
                return float(age_s)
        return time.monotonic() - self._told_s

    @property
    def failure(self) -> RadixServeError | None:
        """Set once it is gone."""
        return EngineDeadError(f"the replica {self.member.name} is gone") if self.dead.is_set() else None

    def watch(self, on: bool) -> None:
        """Has the replica tell `on_cache_news` what happens in its cache, beginning with a snapshot; or no more."""
        if self._watching is not None:
            self._watching.cancel()
        self._watching = asyncio.create_task(self._watch()) if on else None

    async def top(self, count: int) -> CacheTop:
        """See `EngineClient`."""
        found: CacheTop = await self._ask("top", count)
        return found

    async def act(self, act: CacheCommand) -> CommandResult:
        """See `EngineClient`."""
        result: CommandResult = await self._ask("act", act)
        return result

    async def explain(self, request_id: str) -> list[Explanation]:
        """See `EngineClient`."""
        found: list[Explanation] = await self._ask("explain", request_id)
        return found

    async def flush(self, unused: bool = False) -> str:
        """See `EngineClient`."""
        message: str = await self._ask("flush", unused)
        return message

    async def abort(self, request_ids: Set[str] | None) -> int:
        """See `EngineClient`."""
        count: int = await self._ask("abort", request_ids)
        return count

    async def _ask(self, method: str, *args: Any) -> Any:
        try:
            answer = await self._handle.ask.remote(self.member.name, method, *args)
        except (RayError, RayServeException) as error:
            raise EngineDeadError(f"the replica {self.member.name} is gone ({type(error).__name__})") from None
        if isinstance(answer, RequestFailed):
            raise answer.error()
        return answer

    async def _watch(self) -> None:
        stream = self._handle.options(stream=True).watch.remote(self.member.name)
        try:
            async for news in stream:
                if self.on_cache_news is not None:
                    self.on_cache_news(news)
        except (RayError, RayServeException):
            pass  # it is gone; whoever looks at it learns it by `dead`
        finally:
            stream.cancel()
