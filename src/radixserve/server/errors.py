"""Errors as clients see them: an HTTP status and OpenAI's error body, or the one of the API that was asked.

No reply repeats more than a little of the input.
"""

import logging
from collections.abc import Mapping
from typing import cast

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ExceptionHandler, Scope

from radixserve.errors import BusyError, EngineDeadError, InvalidRequestError, ParamError, RadixServeError
from radixserve.server.middleware.request_log import CLIENT_GONE, SAFE_HEADERS, record_of

MAX_MESSAGE_LEN = 2000
MAX_LOGGED_LEN = 300
MAX_SHOWN_PATH = 100

logger = logging.getLogger("radixserve.requests")


class ErrorDetail(msgspec.Struct, frozen=True):
    """What went wrong; `param` is the field at fault, `code` a machine-readable reason."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    """The JSON of every error reply, and of the last frame of a stream that failed."""

    error: ErrorDetail


class HttpError(RadixServeError):
    """An error of the HTTP side with a status of its own.

    `close`: end the connection, whose body was not read. `retry_after_s`: when it may be worth another try.
    """

    def __init__(
        self, status: int, message: str, *, code: str | None = None, close: bool = False, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.close = close
        self.retry_after_s = retry_after_s


def named(error: Exception, names: Mapping[str, str]) -> Exception:
    """The error with the field at fault called as the client wrote it. `names`: what an API calls the fields of a request to the
    engine, where it is another name."""
    if not isinstance(error, InvalidRequestError) or error.param is None or error.param not in names:
        return error
    name = names[error.param]
    if isinstance(error, ParamError):
        return error.called(name)
    message = f"{name}: {error.message}" if error.param == "grammar" else error.message
    return InvalidRequestError(message, param=name, code=error.code)


def status_of(error: Exception) -> int:
    """The HTTP status that stands for an exception."""
    match error:
        case HttpError() | HTTPException():
            return error.status if isinstance(error, HttpError) else error.status_code
        case InvalidRequestError():
            return 404 if error.code == "model_not_found" else 400
        case BusyError():
            return 409
        case EngineDeadError():
            return 503
    return 500


def error_body(error: Exception) -> ErrorBody:
    """The body that stands for an exception. What is not ours, a bug, is not shown to clients."""
    status = status_of(error)
    kind = "invalid_request_error" if status < 500 else "server_error"
    if isinstance(error, HTTPException):
        return ErrorBody(ErrorDetail(error.detail, kind))
    if not isinstance(error, RadixServeError):
        return ErrorBody(ErrorDetail("internal error: the server's log says more", kind, code="internal_error"))
    message = str(error)
    if len(message) > MAX_MESSAGE_LEN:
        message = message[:MAX_MESSAGE_LEN] + "…"
    return ErrorBody(ErrorDetail(message, kind, getattr(error, "param", None), getattr(error, "code", None)))


def error_reply(error: Exception, scope: Scope) -> Response:
    """The reply that stands for an exception, in the form of the API that was asked. `scope`: of the request."""
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    if isinstance(error, HttpError) and error.close:
        headers["connection"] = "close"
    if isinstance(error, HttpError) and error.retry_after_s is not None:
        headers["retry-after"] = str(error.retry_after_s)
    form = scope["radixserve.record"].error_form or error_body
    return Response(msgspec.json.encode(form(error)), status_of(error), headers, media_type="application/json")


def log_reason(error: Exception) -> str:
    """What the log says of an error. Messages to clients repeat what they sent, which a log may not hold: only debug shows them."""
    shown = error_body(error).error
    message = shown.message[:MAX_LOGGED_LEN]
    if status_of(error) >= 500 or logger.isEnabledFor(logging.DEBUG):
        return message
    return " ".join(filter(None, (shown.code or shown.type, shown.param and shown.param[:MAX_SHOWN_PATH])))


async def _handle(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code in (404, 405):
        detail = f"there is no {request.method} {request.url.path[:MAX_SHOWN_PATH]}: docs/serving.md lists the endpoints"
        error = HTTPException(error.status_code, detail, error.headers)
    record = record_of(request)
    error = named(error, record.names)
    record.error = log_reason(error)
    reply = error_reply(error, request.scope)
    if not isinstance(error, RadixServeError | HTTPException):  # this one passes by the middleware that adds them
        reply.headers.update({name.decode(): value.decode() for name, value in SAFE_HEADERS})
    return reply


async def _handle_gone(request: Request, error: Exception) -> Response:
    """Nobody reads it: the log does."""
    return Response(status_code=CLIENT_GONE)


EXCEPTION_HANDLERS = cast(
    dict[type[Exception] | int, ExceptionHandler],
    {RadixServeError: _handle, HTTPException: _handle, ClientDisconnect: _handle_gone, Exception: _handle},
)
"""For Starlette. It logs what is not ours itself."""
