"""The engine process as the HTTP process sees it: start it, stream answers from it, notice its death.

Every open request hears an end: its last Output, a failure, or EngineDeadError within moments of the process's end, for the
operating system tells us (the process sentinel). A stream that is closed or cancelled before its end is aborted in the engine. Ids
inside the engine are ours, so users' ids can't collide.

A long step is never taken for death. But an engine that answers nothing for `engine_timeout_s`, a stopped process or a step that
never ends, gets no more requests until it does: see `failure`.
"""

import asyncio
import contextlib
import itertools
import math
import multiprocessing
import os
import random
import shutil
import signal
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence, Set
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnProcess
from pathlib import Path

import msgspec
from prometheus_client.registry import Collector

from radixserve.cache_report import CacheTop
from radixserve.config import EngineConfig
from radixserve.errors import ConfigError, EngineDeadError, RadixServeError
from radixserve.explanation import Explanation
from radixserve.ipc import (
    AbortRequest,
    CacheCommand,
    CacheNews,
    CommandResult,
    EngineInfo,
    EngineOutput,
    EngineStats,
    Explained,
    ExplainRequest,
    FlushRequest,
    GenerateRequest,
    LoadAdapter,
    Output,
    PageNews,
    ReportPages,
    RequestFailed,
    Synced,
    TopPrefixes,
    TopRequest,
    UnloadAdapter,
    UpdateWeightsRequest,
    WatchRequest,
)
from radixserve.observe.metrics import EngineCollector
from radixserve.process import worker
from radixserve.process.channel import ClientEnd, make_folder
from radixserve.process.heartbeat import Heartbeat

DRAIN_MS = 100
"""How long to wait for the last messages of a process that has ended."""

_Command = FlushRequest | UpdateWeightsRequest | LoadAdapter | UnloadAdapter | CacheCommand
_Answer = Output | CommandResult | Explained | TopPrefixes
_News = asyncio.Queue[_Answer | RequestFailed | EngineDeadError]


class EngineClient:
    """One engine process. Use it on one event loop: `start`, any number of calls at once, `stop`."""

    def __init__(self) -> None:
        self.stats = EngineStats()
        """The engine's latest: at most a tenth of a second and a step old; `refresh` makes them those of now."""
        self.dead = asyncio.Event()
        """Set once the process has ended, wanted or not."""
        self.on_cache_news: Callable[[CacheNews], None] | None = None
        """Called with what the engine tells after `watch(True)`."""
        self.on_page_news: Callable[[PageNews], None] | None = None
        """Called with what the engine tells after `report_pages`."""
        self._failure: RadixServeError | None = None
        self._timeout_s = math.inf
        self._heartbeat = Heartbeat(lambda sync: self._channel.send([sync]))
        self._beating: asyncio.Task[None] | None = None
        self._ids = itertools.count()
        self._news: dict[str, _News] = {}
        """Who waits for news of which id."""
        self._choices: dict[str, str] = {}
        """Open choices: the request id of each."""

    @property
    def replicas(self) -> "dict[str, EngineClient]":
        """Itself, without a name: there is one engine."""
        return {"": self}

    @property
    def failure(self) -> RadixServeError | None:
        """Why it is dead, can't go on, or gets no more requests for now."""
        silent_s = self._heartbeat.silent_s
        if self._failure is None and silent_s > self._timeout_s:
            return EngineDeadError(
                f"the engine has not answered for {silent_s:.0f} s: it is stopped, or in a step that doesn't end"
            )
        return self._failure

    @property
    def collector(self) -> Collector:
        """Makes the engine's metrics, once it has started."""
        num_ranks = max(len(self._info.result().ranks), 1)
        return EngineCollector(lambda: self.stats, lambda: not self.dead.is_set(), num_ranks)

    async def start(self, config: EngineConfig) -> EngineInfo:
        """Spawns the process and waits until its engine is ready.

        Raises ConfigError with the engine's one-line reason when it can't start as configured, EngineDeadError when it dies
        starting.
        """
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch loads: spinning threads cost 10x on busy cores
        self._folder = make_folder()
        self._channel = ClientEnd(self._folder)
        self._info: asyncio.Future[EngineInfo] = asyncio.get_running_loop().create_future()
        self._process = _spawn(config, self._folder)
        self._supervisor = asyncio.create_task(self._supervise())
        info = await self._info
        self._channel.wait_connected()
        self._timeout_s = config.engine_timeout_s
        self._beating = asyncio.create_task(self._heartbeat.run())
        shutil.rmtree(self._folder)  # connected sockets don't need their paths, and whoever kills us leaves none behind
        return info

    async def stop(self) -> None:
        """Ends the process at once, open requests with EngineDeadError, and removes what `start` made."""
        self._process.kill()
        await self._supervisor
        if self._beating is not None:
            self._beating.cancel()
        self._process.join()
        self._channel.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def generate(self, requests: Sequence[GenerateRequest]) -> AsyncGenerator[tuple[int, Output], None]:
        """Streams the answers of all `requests`, each expanded into `params.n` choices: pairs of choice number and its news.

        Choices are numbered through, request by request. All of them reach the engine in one step. Raises InvalidRequestError,
        BusyError, RadixServeError (the engine could not finish one; the others are aborted) or EngineDeadError. Close it
        (`contextlib.aclosing`) to abort what has not finished.
        """
        choices = [choice for request in requests for choice in self._expand(request)]
        numbers = {choice.rid: number for number, choice in enumerate(choices)}
        with self._listen(numbers) as news:
            self._channel.send(choices)
            self._choices.update((choice.rid, choice.request_id) for choice in choices)
            try:
                num_open = len(choices)
                while num_open:
                    output = _unless_failed(await news.get())
                    assert isinstance(output, Output)
                    if output.finish_reason is not None:
                        num_open -= 1
                        del self._news[output.rid], self._choices[output.rid]
                    yield numbers[output.rid], output
            finally:
                if unfinished := [rid for rid in numbers if self._choices.pop(rid, None) is not None]:
                    self._channel.send([AbortRequest(rid) for rid in unfinished])

    async def refresh(self) -> float:
        """Waits a little until `stats` count all that was sent and told so far; returns how old they are, in seconds."""
        return await self._heartbeat.refresh()

    async def read_stats(self) -> tuple[EngineStats, float]:
        """The stats after a `refresh`, and how old they are."""
        age_s = await self.refresh()
        return self.stats, age_s

    async def flush(self, unused: bool = False) -> str:
        """Empties the tree and says what was done. Raises BusyError while requests wait or run.

        With `unused` it evicts what nobody uses, and is never refused.
        """
        return (await self._command(FlushRequest(self._next_id(), unused))).message

    async def act(self, act: CacheCommand) -> CommandResult:
        """Pins, unpins or evicts. Raises InvalidRequestError for what is not in the tree."""
        return await self._command(msgspec.structs.replace(act, rid=self._next_id()))

    def watch(self, on: bool) -> None:
        """Has the engine tell `on_cache_news` what happens in its cache, beginning with a snapshot; or no more."""
        self._channel.send([WatchRequest(on)])

    def report_pages(self) -> None:
        """Has the engine, whose cache must still be empty, tell `on_page_news` which pages come and go."""
        self._channel.send([ReportPages()])

    async def update_weights(self, model: str) -> str:
        """Loads other weights of the same shape and flushes. Raises BusyError, or InvalidRequestError naming what is wrong."""
        return (await self._command(UpdateWeightsRequest(self._next_id(), model))).message

    async def load_adapter(self, name: str, directory: str, *, replace: bool = False) -> str:
        """Loads an adapter. Raises InvalidRequestError naming what is wrong with it or its name."""
        return (await self._command(LoadAdapter(self._next_id(), name, directory, replace))).message

    async def unload_adapter(self, name: str) -> str:
        """Forgets an adapter; open requests end with it. Raises InvalidRequestError where there is none."""
        return (await self._command(UnloadAdapter(self._next_id(), name))).message

    async def explain(self, request_id: str) -> list[Explanation]:
        """Why a recent request reused what it reused, one a prompt and choice; none where it is unknown or forgotten."""
        answer = await self._ask(ExplainRequest(self._next_id(), request_id))
        assert isinstance(answer, Explained)
        return answer.explanations

    async def top(self, count: int) -> CacheTop:
        """The `count` prefixes whose reuse saved most, and what each namespace holds."""
        answer = await self._ask(TopRequest(self._next_id(), count))
        assert isinstance(answer, TopPrefixes)
        return answer.top

    async def abort(self, request_ids: Set[str] | None) -> int:
        """Aborts open choices of the requests of these ids, or all; each ends with an Output. Returns how many they were."""
        rids = [rid for rid, request_id in self._choices.items() if request_ids is None or request_id in request_ids]
        if rids:
            self._channel.send([AbortRequest(rid) for rid in rids])
        return len(rids)

    def fail_open(self, reason: str) -> int:
        """Ends every open request with RadixServeError(reason), as if the engine had; returns how many there were."""
        for rid, news in self._news.items():
            news.put_nowait(RequestFailed(rid=rid, kind="internal", message=reason))
        return len(self._news)

    async def _command(self, message: _Command) -> CommandResult:
        answer = await self._ask(message)
        assert isinstance(answer, CommandResult)
        return answer

    async def _ask(self, message: _Command | ExplainRequest | TopRequest) -> _Answer:
        with self._listen([message.rid]) as news:
            self._channel.send([message])
            return _unless_failed(await news.get())

    @contextlib.contextmanager
    def _listen(self, rids: Iterable[str]) -> Iterator[_News]:
        if self.failure is not None:
            raise EngineDeadError(str(self.failure))
        news: _News = asyncio.Queue()
        self._news.update((rid, news) for rid in rids)
        try:
            yield news
        finally:
            for rid in rids:
                self._news.pop(rid, None)

    def _next_id(self) -> str:
        return str(next(self._ids))

    def _expand(self, request: GenerateRequest) -> Iterator[GenerateRequest]:
        """One request a choice, each with an id and a seed of its own."""
        for params in request.params.choices(random.getrandbits(62)):
            yield msgspec.structs.replace(request, rid=self._next_id(), params=params)

    async def _supervise(self) -> None:
        """Hands out what the engine sends until its process ends, then what it had still sent, then the end itself."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(self._process.sentinel, ended.set)
        reader = asyncio.create_task(self._read())
        try:
            await asyncio.wait([asyncio.create_task(ended.wait()), reader], return_when=asyncio.FIRST_COMPLETED)
            if reader.done():  # a message of ours that can't be decoded: the two can't go on together
                self._failure = EngineDeadError(f"the channel to the engine failed: {reader.exception()}")
                self._process.kill()
                await ended.wait()
        finally:
            loop.remove_reader(self._process.sentinel)
            reader.cancel()
        try:
            for message in await self._channel.drain(DRAIN_MS):
                self._dispatch(message)
        finally:
            self._end()

    async def _read(self) -> None:
        while True:
            for message in await self._channel.receive():
                self._dispatch(message)
            await asyncio.sleep(0)  # receiving what is already there does not yield: a fast engine must not starve the others

    def _dispatch(self, message: EngineOutput) -> None:
        match message:
            case EngineStats():
                self.stats = message
                self._heartbeat.told()
            case EngineInfo():
                self._info.set_result(message)
            case CacheNews():
                if self.on_cache_news is not None:
                    self.on_cache_news(message)
            case PageNews():
                if self.on_page_news is not None:
                    self.on_page_news(message)
            case RequestFailed(rid=worker.NO_REQUEST):
                kind = ConfigError if message.kind == "invalid_request" else EngineDeadError
                self._failure = kind(message.message)
            case Synced():
                self._heartbeat.synced(message.rid)
            case _ if (news := self._news.get(message.rid)) is not None:
                news.put_nowait(message)

    def _end(self) -> None:
        self._process.join()
        if self._failure is None:
            self._failure = EngineDeadError(f"the engine process ended {_how(self._process.exitcode)}")
        self.dead.set()
        if not self._info.done():
            self._info.set_exception(self._failure)
        for news in self._news.values():
            news.put_nowait(EngineDeadError(str(self._failure)))
        self._heartbeat.end()


def _spawn(config: EngineConfig, folder: Path) -> SpawnProcess:
    """Starts the process with SIGINT and SIGTERM blocked from its first instruction: a terminal sends them to the whole group."""
    resource_tracker.ensure_running()  # else `start` launches it, which would unblock the signals
    process = multiprocessing.get_context("spawn").Process(target=worker.main, args=(config, folder), name="engine", daemon=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process


def _unless_failed(message: _Answer | RequestFailed | EngineDeadError) -> _Answer:
    match message:
        case EngineDeadError():
            raise message
        case RequestFailed():
            raise message.error()
    return message


def _how(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"by signal {signal.Signals(-exitcode).name}"
    return f"with exit code {exitcode}"
