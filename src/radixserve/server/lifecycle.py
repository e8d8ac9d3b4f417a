"""The life of a server: the engine starts, HTTP answers, a signal or the engine's death ends both.

The first SIGTERM or SIGINT closes the gate: new work gets 503, accepted work gets `grace_s` to finish. What is open after that, or
at a second signal, is told so and cut. Exit code 0. When the engine dies, open requests get an error, /health says 503 for
DEATH_LINGER_S, and the exit code is 1.
"""

import asyncio
import contextlib
import functools
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import cast

import uvicorn
from starlette.types import ASGIApp

import radixserve
from radixserve import heap
from radixserve.config import EngineConfig, ServerConfig
from radixserve.ipc import EngineInfo
from radixserve.observe.metrics import Metrics
from radixserve.server.backend import Backend
from radixserve.server.http.connection import Connection
from radixserve.server.middleware.gate import Gate
from radixserve.server.middleware.tracing import make_tracer
from radixserve.server.service import Service
from radixserve.text.tokenizer import Tokenizer

DEATH_LINGER_S = 2.0
"""How long a server whose engine has died still answers, so that probes see why it goes."""

LAST_WORDS_S = 1.0
"""How long cut requests get to send their error."""

logger = logging.getLogger(__name__)


class Lifecycle:
    """Runs one server once."""

    def __init__(
        self, backend: Backend, engine: EngineConfig, server: ServerConfig, tokenizer: Tokenizer, listener: socket.socket
    ) -> None:
        self._engine = engine
        self._server = server
        self._tokenizer = tokenizer
        self._listener = listener
        self._client = backend
        self._gate = Gate(server.max_open_requests)
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()

    async def run(self, make_app: Callable[[Service], ASGIApp]) -> int:
        """Returns the exit code. Raises ConfigError or EngineDeadError when the engine can't start."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        try:
            info = await _first(self._client.start(self._engine), self._stop.wait())
            if not isinstance(info, EngineInfo):
                return 0
            return await self._serve(info, make_app)
        finally:
            await self._client.stop()

    async def _serve(self, info: EngineInfo, make_app: Callable[[Service], ASGIApp]) -> int:
        metrics = Metrics(self._client.collector)
        tracer = make_tracer(self._server.served_model_name or info.model)
        service = Service(self._client, info, self._tokenizer, self._server, metrics, self._gate, tracer)
        http = _Http(make_app(service), self._server)
        heap.trim()
        serving = asyncio.create_task(http.serve(sockets=[self._listener]))
        await _first(http.ready.wait(), asyncio.shield(serving))
        if not serving.done():
            print(describe(info, service.model_name, self._listener, [*self._client.replicas]), flush=True)
            await _first(self._stop.wait(), self._client.dead.wait(), asyncio.shield(serving))
        code = await self._wind_down()
        http.should_exit = True
        await serving
        if tracer is not None:
            await asyncio.to_thread(tracer.close)
        service.intake.close()
        return code

    async def _wind_down(self) -> int:
        if not self._client.dead.is_set():
            self._gate.close()
            grace_s = self._server.grace_s
            logger.info("shutting down: %d open requests get %g s to finish", self._gate.num_inside, grace_s)
            await _first(self._gate.wait_empty(grace_s), self._stop_now.wait(), self._client.dead.wait())
            if num_cut := self._client.fail_open("the server is shutting down and this request was not done in time"):
                logger.warning("cut %d answers that were not done in time", num_cut)
            await self._gate.wait_empty(LAST_WORDS_S)
        if not self._client.dead.is_set():
            return 0
        logger.critical("%s", self._client.failure)
        await _first(self._stop_now.wait(), asyncio.sleep(DEATH_LINGER_S))
        return 1

    def _on_signal(self) -> None:
        if self._stop.is_set():
            self._stop_now.set()
        self._stop.set()


class _Http(uvicorn.Server):
    """uvicorn, with `ready` set once it listens. Signals are ours."""

    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=cast(type[asyncio.Protocol], functools.partial(Connection, config)),
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=1,
            )
        )
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def describe(info: EngineInfo, name: str, listener: socket.socket, replicas: Sequence[str]) -> str:
    """What a started server is, and its effective limits, in a few lines."""
    limits = info.limits
    host, port = listener.getsockname()[:2]
    host = f"[{host}]" if ":" in host else host
    kv_events = info.settings.get("kv_events_endpoint")
    heads = " + ".join(str(rank.num_heads) for rank in info.ranks)
    return (
        f"RadixServe {radixserve.__version__} serves {name} ({info.dtype} on {info.device}, threads: {info.num_threads})\n"
        f"  kernels: {info.kernels}\n"
        f"  KV pool {limits.num_slots} tokens, {info.kv_bytes / 2**20:.0f} MiB, page size {limits.page_size}\n"
        f"  prompt and answer at most {1 + limits.max_output(1)} tokens, of a context of {limits.max_context_len}\n"
        + (f"  sampling defaults of the model: {info.sampling_defaults}\n" if info.sampling_defaults.stated else "")
        + (f"  adapters: {', '.join(info.adapters)}\n" if info.adapters else "")
        + (f"  KV events at {kv_events}\n" if kv_events else "")
        + (f"  {len(info.ranks)} ranks, with {heads} query heads\n" if info.ranks else "")
        + (f"  {len(replicas)} replicas, each of these: {', '.join(replicas)}\n" if any(replicas) else "")
        + f"  http://{host}:{port}"
    )


async def _first(*works: Awaitable[object]) -> object:
    """The result of whichever ends first; the others are cancelled."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
