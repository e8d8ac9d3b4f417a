"""All replicas of an application as one backend of the HTTP server.

Each prompt goes to a replica of its own, with its choices. One whose replica ends before its first token is sent again, to another;
after it the client has seen text that nobody else would go on with, so it hears an error.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence, Set
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec
from prometheus_client.registry import Collector
from ray import serve
from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import DeploymentStatus

from radixserve.cache_report import CacheReport
from radixserve.config import EngineConfig
from radixserve.errors import BusyError, ConfigError, EngineDeadError, InvalidRequestError, RadixServeError
from radixserve.explanation import Explanation
from radixserve.ipc import EngineInfo, EngineStats, GenerateRequest, Output, RequestFailed
from radixserve.replicas.collector import ReplicaCollector
from radixserve.replicas.members import POLL_S, Members
from radixserve.replicas.remote_replica import RemoteReplica
from radixserve.replicas.state import Member
from radixserve.replicas.state_actor import SharedState

DEPLOYMENT = "Engine"
"""Name of the deployment of the replicas."""
MAX_ATTEMPTS = 3
"""Replicas that a request is sent to, one after the other, while they end before its first token."""

logger = logging.getLogger(__name__)

_decode = msgspec.msgpack.Decoder(tuple[int, Output | RequestFailed]).decode

T = TypeVar("T")
_News = tuple[int, Output] | Exception


class Fleet:
    """The replicas behind `handle`. `close`: called at the end, on a thread."""

    def __init__(self, handle: DeploymentHandle, state: SharedState, app_name: str, close: Callable[[], None]) -> None:
        self._members = Members(handle, state)
        self.dead = self._members.dead
        self.collector: Collector = ReplicaCollector(self.members)
        self._handle = handle
        self._state = state
        self._app_name = app_name
        self._close = close
        self._open: set[asyncio.Queue[_News]] = set()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def replicas(self) -> dict[str, RemoteReplica]:
        """Those that live."""
        return self._members.replicas

    @property
    def failure(self) -> RadixServeError | None:
        """Set while no replica lives, or Ray doesn't answer."""
        return self._members.failure

    @property
    def stats(self) -> EngineStats:
        """Sums over the replicas; what an observer counted is left out."""
        return _sum([replica.stats for replica in self.replicas.values()])

    async def refresh(self) -> float:
        """See `EngineClient.refresh`; the age of the oldest."""
        return max(await asyncio.gather(*(replica.refresh() for replica in self.replicas.values())), default=0.0)

    def members(self) -> list[Member]:
        """The replicas as they were at the last look."""
        return [replica.member for replica in self.replicas.values()]

    async def start(self, config: EngineConfig) -> EngineInfo:
        """Waits until all replicas are ready; what one of them is. Raises ConfigError with the reason when they can't start."""
        while not (await self._is_running() and await self._members.look()):
            await asyncio.sleep(POLL_S)
        self._tasks = [asyncio.create_task(self._members.follow()), asyncio.create_task(self._end_with_cluster())]
        return min((member.info for member in self.members()), key=lambda info: info.limits.num_slots)

    async def stop(self) -> None:
        """Ends what `start` began, and whatever `close` ends."""
        for task in self._tasks:
            task.cancel()
        await asyncio.to_thread(self._close)

    async def generate(self, requests: Sequence[GenerateRequest]) -> AsyncGenerator[tuple[int, Output], None]:
        """See `EngineClient.generate`."""
        if self.failure is not None:
            raise self.failure
        news: asyncio.Queue[_News] = asyncio.Queue()
        tasks, num_open = [], 0
        for request in requests:
            tasks.append(asyncio.create_task(self._run(request, num_open, news)))
            num_open += request.params.n
        self._open.add(news)
        try:
            while num_open:
                event = await news.get()
                if isinstance(event, Exception):
                    raise event
                num_open -= event[1].finish_reason is not None
                yield event
        finally:
            self._open.discard(news)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def abort(self, request_ids: Set[str] | None) -> int:
        """Aborts the choices of these HTTP requests, or all, on all replicas; returns how many they were."""
        return sum((await self._ask_all(lambda replica: replica.abort(request_ids))).values())

    def fail_open(self, reason: str) -> int:
        """Ends every open request with RadixServeError(reason); returns how many there were."""
        for news in self._open:
            news.put_nowait(RadixServeError(reason))
        return len(self._open)

    async def flush(self, unused: bool = False) -> str:
        """Empties all trees. Raises BusyError naming the replicas that are busy; the others are flushed."""
        results = await self._ask_all(lambda replica: _flush(replica, unused=unused))
        if busy := [f"replica {name}: {error}" for name, error in results.items() if isinstance(error, BusyError)]:
            raise BusyError("; ".join(busy))
        return "; ".join(f"{name}: {message}" for name, message in results.items())

    async def explain(self, request_id: str) -> list[Explanation]:
        """Of a recent request, wherever it ran."""
        found = await self._ask_all(lambda replica: replica.explain(request_id))
        return [explanation for some in found.values() for explanation in some]

    async def update_weights(self, model: str) -> str:
        """Refused: a replica that is started later would have other weights."""
        raise InvalidRequestError("replicas can't change their weights: start the server again with the new --model", param="model")

    async def load_adapter(self, name: str, directory: str, *, replace: bool = False) -> str:
        """Refused: a replica that is started later would lack it."""
        raise InvalidRequestError("replicas load adapters at their start alone: start the server again with --adapter NAME=DIR")

    async def unload_adapter(self, name: str) -> str:
        """Refused: a replica that is started later would have it."""
        raise InvalidRequestError("replicas keep their adapters: start the server again without --adapter for this one")

    async def _run(self, request: GenerateRequest, first_number: int, news: "asyncio.Queue[_News]") -> None:
        """One request to its end; its choices are numbered from `first_number` on."""
        for attempt in range(MAX_ATTEMPTS):
            request = msgspec.structs.replace(request, rid=uuid.uuid4().hex)
            has_begun = False
            try:
                async with aclosing(self._stream(request)) as events:
                    async for number, output in events:
                        if not has_begun:
                            self._state.tell("started", request.rid)
                        has_begun = True
                        news.put_nowait((first_number + number, output))
                return
            except RadixServeError as error:
                lost = isinstance(error, EngineDeadError)
                if lost and not has_begun and attempt + 1 < MAX_ATTEMPTS:
                    logger.warning("a request is sent again: %s", error)
                    continue
                news.put_nowait(error)
                return
            except Exception as error:
                news.put_nowait(error)
                return
            finally:
                self._state.tell("ended", request.rid)

    async def _stream(self, request: GenerateRequest) -> AsyncGenerator[tuple[int, Output], None]:
        """What a replica answers. Raises EngineDeadError when it ends on the way."""
        stream = self._handle.options(stream=True).generate.remote(request)
        try:
            async for event in stream:
                number, output = _decode(event)
                if isinstance(output, RequestFailed):
                    raise output.error()
                yield number, output
        except RayTaskError as error:
            if isinstance(error, EngineDeadError):
                raise EngineDeadError("the replica that ran this request has lost its engine") from None
            raise
        except (RayError, RayServeException) as error:
            raise EngineDeadError(f"the replica that ran this request is gone ({type(error).__name__})") from None
        finally:
            stream.cancel()

    async def _ask_all(self, ask: Callable[[RemoteReplica], Coroutine[Any, Any, T]]) -> dict[str, T]:
        """What each answers, by name, but for those that leave or are gone: nothing reaches them. Raises what they raise."""

        async def answer(replica: RemoteReplica) -> T | EngineDeadError:
            try:
                return await ask(replica)
            except EngineDeadError as error:
                return error

        asked = {name: replica for name, replica in self.replicas.items() if not replica.member.draining}
        answers = await asyncio.gather(*map(answer, asked.values()))
        found = {name: one for name, one in zip(asked, answers, strict=True) if not isinstance(one, EngineDeadError)}
        if not found:
            raise self.failure or EngineDeadError("no replica answers: all of them leave, or have just ended")
        return found

    async def _is_running(self) -> bool:
        """Whether the application is up. Raises ConfigError when it never will be."""
        application = (await asyncio.to_thread(serve.status)).applications[self._app_name]
        status = application.deployments[DEPLOYMENT].status if DEPLOYMENT in application.deployments else None
        if DeploymentStatus.DEPLOY_FAILED in (status, application.status):
            raise ConfigError(await self._state.ask("failure") or application.message)
        return bool(status == DeploymentStatus.HEALTHY)

    async def _end_with_cluster(self) -> None:
        """Tells open requests that nobody will answer them."""
        await self.dead.wait()
        for news in self._open:
            news.put_nowait(self.failure or EngineDeadError("the Ray cluster is gone"))


async def _flush(replica: RemoteReplica, *, unused: bool) -> str | BusyError:
    try:
        return await replica.flush(unused=unused)
    except BusyError as error:
        return error


def _sum(stats: Sequence[EngineStats]) -> EngineStats:
    total = msgspec.structs.asdict(EngineStats())
    for one in stats:
        for name, value in msgspec.structs.asdict(one).items():
            if isinstance(value, int):
                total[name] += value
        for reason, count in one.finished.items():
            total["finished"] = total["finished"] | {reason: total["finished"].get(reason, 0) + count}
    return EngineStats(**total | {"cache": CacheReport()})
