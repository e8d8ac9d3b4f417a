"""One log line a request, when it is done, and the metrics of the same facts.

The line of a completion shows what its prompt cost: `prompt=1200 cached=1100 (92%)` means that 1,100 tokens' prefill was skipped.
"""

import contextlib
import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from radixserve.observe.metrics import Metrics
from radixserve.server.answers import Usage

CLIENT_GONE = 499
"""Logged as status of a request whose client left before the reply began."""

SAFE_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"frame-ancestors 'none'"),
]
"""Of every reply: browsers take it for what it says it is, and show it in no frame of another page."""

logger = logging.getLogger("radixserve.requests")


@dataclass
class RequestRecord:
    """Facts of one HTTP request, filled in as it goes. Times in seconds of the monotonic clock."""

    id: str
    begin: float = field(default_factory=time.monotonic)
    admitted: float | None = None
    """When the first of its choices began to run."""
    first_token: float | None = None
    status: int = CLIENT_GONE
    usage: Usage | None = None
    finish: str | None = None
    """Finish reasons of the choices, or "error", or "abort" when the client left."""
    error: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    """What the API calls the fields of a request to the engine, where it is another name: what errors call them."""
    error_form: Callable[[Exception], msgspec.Struct] | None = None
    """What makes the body of an error, where it isn't OpenAI's."""
    body_bytes: int = 0
    held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """What the work on its body takes up; closed before the engine is asked, or at the request's end."""

    def line(self, method: str, path: str) -> str:
        """The log line."""
        parts = [self.id, str(self.status), method, path]
        if self.usage is not None:
            cached = self.usage.cached_tokens
            percent = round(100 * cached / max(self.usage.prompt_tokens, 1))
            parts += [f"prompt={self.usage.prompt_tokens} cached={cached} ({percent}%) generated={self.usage.completion_tokens}"]
        if self.admitted is not None:
            parts.append(f"queue={(self.admitted - self.begin) * 1000:.0f}ms")
        if self.first_token is not None:
            parts.append(f"ttft={(self.first_token - self.begin) * 1000:.0f}ms")
        parts.append(f"total={(time.monotonic() - self.begin) * 1000:.0f}ms")
        if self.finish is not None:
            parts.append(f"finish={self.finish}")
        if self.error is not None:
            parts.append(f"error={self.error!r}")
        return " ".join(parts)


def record_of(request: Request) -> RequestRecord:
    """The record of a request."""
    record: RequestRecord = request.scope["radixserve.record"]
    return record


class Tracer(Protocol):
    """Hears of the end of every request for work."""

    def trace(self, record: RequestRecord, method: str, path: str, headers: list[tuple[bytes, bytes]]) -> None:
        """`headers`: of the request."""


class RequestLogMiddleware:
    """Gives every request a record and an id (the client's X-Request-Id when it is a plain one), and logs it at its end.

    Probes and scrapes are logged at debug level, work at info.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        error_forms: Mapping[str, Callable[[Exception], msgspec.Struct]],
        tracer: Tracer | None = None,
    ) -> None:
        """`error_forms`: of APIs that have one of their own, by how their paths begin."""
        self.app = app
        self.error_forms = error_forms
        self.metrics = metrics
        self.tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        record = scope["radixserve.record"] = RequestRecord(_request_id(scope))
        record.error_form = next((form for path, form in self.error_forms.items() if scope["path"].startswith(path)), None)

        async def send_noting_status(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                message["headers"] = [*message["headers"], *SAFE_HEADERS, (b"x-request-id", record.id.encode())]
            await send(message)

        try:
            await self.app(scope, receive, send_noting_status)
        except Exception as error:  # a bug; Starlette replies with 500 around us
            record.status = 500
            record.error = type(error).__name__
            raise
        finally:
            record.held.close()
            level = logging.INFO if record.usage is not None or record.status >= 400 else logging.DEBUG
            logger.log(level, "%s", record.line(scope["method"], _shown(scope["path"])))
            self.metrics.count_http_request(record.status)
            if self.tracer is not None and record.usage is not None:
                self.tracer.trace(record, scope["method"], _shown(scope["path"]), scope["headers"])


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and re.fullmatch(rb"[\w.:-]{1,128}", value):
            return str(value.decode())
    return uuid.uuid4().hex


def _shown(path: str) -> str:
    """A path as it may stand in a log: printable, and not long."""
    return path[:100] if path.isprintable() else ascii(path[:100])
