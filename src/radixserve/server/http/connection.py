"""One HTTP connection: uvicorn's protocol, with the bounds that it leaves out.

The head of a request (its line and headers) has a largest size and a longest time, refused connections get a reply that arrives,
and a client that has said all it wants to say (a half-closed connection) still gets its answer.
"""

import asyncio
from http import HTTPStatus
from typing import Any

import msgspec
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from radixserve.config import ServerConfig
from radixserve.server.errors import HttpError, error_body

MAX_HEAD_BYTES = 64 * 1024
"""Of the request line and all headers."""

LINGER_S = 5.0
"""How long what a refused client still sends is dropped: a connection that is closed at once is reset, and the reply lost."""

LINGER_BYTES = 64 * 1024 * 1024
"""How much is dropped."""

PROBE_S = (0.0, 0.05, 1.0)
"""When a half-closed client is probed; each second from then on."""

PROBE = b"HTTP/1.1 102 Processing\r\n\r\n"


class Connection(HttpToolsProtocol):
    """See the module."""

    def __init__(self, bounds: ServerConfig, **given: Any) -> None:
        """`given`: what uvicorn says."""
        super().__init__(**given)
        self._bounds = bounds
        self._stage = "idle"
        """Of the reading: idle between messages, head, or body."""
        self._head_bytes = 0
        """Received since the last message or piece of a body: of the head, or of a chunk's frame or trailer."""
        self._refusal: HttpError | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._probing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Turns the connection away where there are too many."""
        super().connection_made(_Lingering(transport, self))  # type: ignore[arg-type]
        if len(self.connections) > self._bounds.max_connections:
            message = f"there are {self._bounds.max_connections} connections, the most there may be: try again later"
            self._refuse(HttpError(503, message, code="too_many_connections"))
        else:
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends what was timed."""
        for timer in (self._head_timer, self._probing):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        if self._refusal is not None:
            return
        super().data_received(data)
        if self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._stage != "idle" and self._head_bytes > MAX_HEAD_BYTES + len(data):
            self._refuse(self._too_large())
        elif self._stage == "head" or (self._stage == "idle" and self._is_unasked()):
            self._arm()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """True keeps the connection: a whole request waits for its answer."""
        if self._stage != "idle" or self.cycle is None or self.cycle.response_complete:
            return None
        self.cycle.keep_alive = False
        self._probe(0)
        return True

    def on_message_begin(self) -> None:
        """A head begins."""
        self._stage = "head"
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > MAX_HEAD_BYTES:
            self._refusal = self._too_large()
            raise ValueError  # to the parser, which has send_400_response called
        self._stage, self._head_bytes = "body", 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        super().on_headers_complete()
        if self.scope["http_version"] == "1.0":
            self.cycle.__class__ = _CloseDelimited

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A whole request."""
        self._stage, self._head_bytes = "idle", 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """A reply is out. Where its request isn't read to its end, that may not take for ever."""
        super().on_response_complete()
        if self._stage == "body" and not self.transport.is_closing():
            self._arm()

    def send_400_response(self, msg: str) -> None:
        """Refuses what is no HTTP, or what a callback refused."""
        self._refuse(self._refusal or HttpError(400, "the request is no valid HTTP: check the client", code="invalid_http"))

    def _too_large(self) -> HttpError:
        """The refusal of a head, named after what takes most of it. The parser tells a header when it is whole."""
        if self._stage == "head" and len(self.url) > MAX_HEAD_BYTES // 2:
            what, status, code = "URL is", 414, "uri_too_long"
        else:
            what, status, code = "headers are", 431, "headers_too_large"
        return HttpError(status, f"the {what} too large: line and headers may have {MAX_HEAD_BYTES} bytes in all", code=code)

    def _refuse(self, refusal: HttpError) -> None:
        """Replies outside of any request, and closes."""
        self._refusal = refusal
        if self.cycle is None or self.cycle.response_complete:
            body = msgspec.json.encode(error_body(refusal))
            status = f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}\r\n"
            kind = "content-type: application/json\r\nx-content-type-options: nosniff\r\n"
            head = f"{status}{kind}content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            self.transport.write(head.encode() + body)
        self._stage = "body"  # nothing of it was read: see `_Lingering`
        self.transport.close()

    def _is_unasked(self) -> bool:
        """Whether no request waits for its reply."""
        return self.cycle is None or self.cycle.response_complete

    def _arm(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._bounds.header_timeout_s, self._on_head_timeout)

    def _on_head_timeout(self) -> None:
        self._head_timer = None
        if self.transport.is_closing():
            return
        if not self._is_unasked():  # it is busy with an earlier request
            self._arm()
        elif self._stage == "head":
            message = f"the head of the request was not whole after {self._bounds.header_timeout_s:g} s"
            self._refuse(HttpError(408, message, code="header_timeout"))
        else:
            self.transport.close()

    def _probe(self, number: int) -> None:
        """Tells a half-closed client, which only waits, from one that is gone: what is sent to that one fails soon after."""
        if self.transport.is_closing() or self.cycle.response_started:
            return
        if self.scope["http_version"] == "1.1" and not self.pipeline:
            self.transport.write(PROBE)
        later = PROBE_S[min(number + 1, len(PROBE_S) - 1)]
        self._probing = self.loop.call_later(later, self._probe, number + 1)


class _Lingering:
    """A transport whose `close`, in the middle of a request, ends the sending first and drops what the client still sends."""

    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        self._transport = transport
        self._connection = connection
        self._lingers = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Whether it ends, or is about to."""
        return self._lingers or self._transport.is_closing()

    def close(self) -> None:
        """Ends it."""
        if self._connection._stage == "idle" or self.is_closing():
            if not self._lingers:
                self._transport.close()
            return
        self._lingers = True
        self._transport.write_eof()
        self._transport.set_protocol(_Dropping(self._transport, self._connection))
        self._transport.resume_reading()


class _Dropping(asyncio.Protocol):
    """What receives when all has been said: drops bytes until the client ends too, for a while."""

    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        self._transport = transport
        self._connection = connection
        self._left = LINGER_BYTES
        self._timer = connection.loop.call_later(LINGER_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Drops it."""
        self._left -= len(data)
        if self._left < 0:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end."""
        self._timer.cancel()
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """See the connection."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """See the connection."""
        self._connection.resume_writing()


class _CloseDelimited(RequestResponseCycle):
    """A request of HTTP/1.0, which knows no chunks: a reply of unknown length ends with the connection."""

    has_length = True

    async def send(self, message: ASGISendEvent) -> None:
        """A part of the reply."""
        if message["type"] == "http.response.start":
            self.has_length = any(name == b"content-length" for name, _ in message.get("headers", []))
            if not self.has_length:
                self.chunked_encoding = False
        elif message["type"] == "http.response.body" and not self.has_length:
            self.expected_content_length = len(message.get("body", b""))  # each part is all that the base expects
        await super().send(message)
