"""The gate that work comes through: counts requests inside, and turns new ones away when it is full, or closed for shutdown."""

import asyncio
import contextlib

from starlette.types import ASGIApp, Receive, Scope, Send

from radixserve.server.errors import HttpError, error_reply

ALWAYS_OPEN = frozenset({"/health", "/metrics", "/server_info", "/cache/events"})
"""Paths for those who only watch, the shutdown too; they don't count as work."""


RETRY_AFTER_S = 1
"""What a full server asks a client to wait."""

PROBES = frozenset({"/health_generate"})
"""Paths that count as work, and get in when the gate is full."""


class Gate:
    """Open until `close`, for `limit` requests at once."""

    def __init__(self, limit: int) -> None:
        self.closed = False
        self._limit = limit
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def num_inside(self) -> int:
        """Requests at work."""
        return self._inside

    def refusal(self, path: str) -> HttpError | None:
        """Why a new request can't come in."""
        if self.closed:
            message = "the server is shutting down: send the request to another"
            return HttpError(503, message, code="shutting_down", close=True)
        if self._inside >= self._limit and path not in PROBES:
            message = f"{self._inside} requests wait or are answered, the most there may be: send the request again later"
            return HttpError(503, message, code="overloaded", close=True, retry_after_s=RETRY_AFTER_S)
        return None

    def close(self) -> None:
        """From now on new requests get 503."""
        self.closed = True

    async def wait_empty(self, timeout_s: float) -> bool:
        """Waits until nobody is inside; False when that takes longer than `timeout_s`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), timeout_s)
        return self._inside == 0

    def enter(self) -> None:
        """Counts a request in."""
        self._inside += 1
        self._empty.clear()

    def leave(self) -> None:
        """Counts it out."""
        self._inside -= 1
        if self._inside == 0:
            self._empty.set()


class GateMiddleware:
    """Lets requests through a gate."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self.app = app
        self.gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or scope["path"] in ALWAYS_OPEN:
            await self.app(scope, receive, send)
        elif (refusal := self.gate.refusal(scope["path"])) is not None:
            await error_reply(refusal, scope)(scope, receive, send)
        else:
            self.gate.enter()
            try:
                await self.app(scope, receive, send)
            finally:
                self.gate.leave()
