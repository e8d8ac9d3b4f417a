"""A stand-in for the engine's client, for tests of the HTTP side alone."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import httpx

from radixserve.config import ServerConfig
from radixserve.errors import BusyError
from radixserve.ipc import EngineInfo, EngineStats, GenerateRequest, Output
from radixserve.limits import Limits
from radixserve.observe.metrics import EngineCollector, Metrics
from radixserve.server.app import make_app
from radixserve.server.middleware.gate import Gate
from radixserve.server.service import Service
from radixserve.text.tokenizer import Tokenizer

INFO = EngineInfo("fake", "float32", "cpu", Limits(259, 100, 100, 1), kv_bytes=0, num_threads=1)


class FakeClient:
    """Answers with `texts`, then ends, or fails with `failure` in place of the last."""

    def __init__(
        self, failure: Exception | None = None, texts: Sequence[str] = "aaaaa", stop_reason: str | int | None = None
    ) -> None:
        self.dead = asyncio.Event()
        self.stats = EngineStats()
        self.failure = failure
        self.texts = texts
        self.stop_reason = stop_reason
        self.requests: list[GenerateRequest] = []
        """All that were asked."""

    @property
    def replicas(self) -> "dict[str, FakeClient]":
        return {"": self}

    async def generate(self, requests: Sequence[GenerateRequest]) -> AsyncGenerator[tuple[int, Output], None]:
        self.requests += requests
        for count, text in enumerate(self.texts, start=1):
            last = count == len(self.texts)
            if last and self.failure is not None:
                raise self.failure
            end = {"finish_reason": "stop", "stop_reason": self.stop_reason} if last else {}
            yield 0, Output("0", text, (64,), 4, 0, count, **end)  # type: ignore[arg-type]

    async def refresh(self) -> float:
        return 0.0

    async def flush(self, unused: bool = False) -> str:
        raise BusyError("can't flush the cache now: 1 requests run and 0 wait; try again when they have ended")


def make_service(model: Path, client: FakeClient, config: ServerConfig | None = None) -> Service:
    """A service on a fake client, with a real tokenizer."""
    metrics = Metrics(EngineCollector(lambda: client.stats, lambda: not client.dead.is_set()))
    config = config or ServerConfig()
    return Service(client, INFO, Tokenizer.load(model), config, metrics, Gate(config.max_open_requests))  # type: ignore[arg-type]


def http(service: Service) -> httpx.AsyncClient:
    """An HTTP client of an app in this process."""
    transport = httpx.ASGITransport(make_app(service), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")
