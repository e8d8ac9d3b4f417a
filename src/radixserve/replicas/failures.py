"""Errors on their way between processes: a replica answers with them in place of what was asked for."""

import msgspec

from radixserve.errors import BusyError, InvalidRequestError, RadixServeError
from radixserve.ipc import ErrorKind, Output, RequestFailed

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(tuple[int, Output | RequestFailed]).decode


def failed(error: RadixServeError) -> RequestFailed:
    """An error as a message."""
    kinds: list[tuple[type[RadixServeError], ErrorKind]] = [(InvalidRequestError, "invalid_request"), (BusyError, "busy")]
    kind: ErrorKind = next((kind for of, kind in kinds if isinstance(error, of)), "internal")
    return RequestFailed("", kind, str(error), getattr(error, "param", None), getattr(error, "code", None))


def raised(failure: RequestFailed) -> RadixServeError:
    """The error that a message stands for."""
    match failure.kind:
        case "invalid_request":
            return InvalidRequestError(failure.message, param=failure.param, code=failure.code)
        case "busy":
            return BusyError(failure.message)
        case "internal":
            return RadixServeError(failure.message)
