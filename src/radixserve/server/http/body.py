"""Reading a request's JSON body into a typed struct, within limits, with errors that name the field and its value."""

import asyncio
import codecs
import re
import zlib
from typing import Any, TypeVar

import msgspec
from msgspec import inspect
from starlette.requests import Request

from radixserve.errors import InvalidRequestError
from radixserve.server.errors import HttpError
from radixserve.server.http.intake import LARGE
from radixserve.server.middleware.request_log import record_of
from radixserve.server.service import offload, service_of
from radixserve.validation import read_fault

Body = TypeVar("Body", bound=msgspec.Struct)

SHOWN = 60
"""Characters of a client's input that an error repeats."""

MAX_VALUES = 2**20
"""Values that the JSON of one body may hold."""

_STRING_OR_COMMA = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|,', re.DOTALL)


async def read_body(request: Request, kind: type[Body]) -> Body:
    """The request's body as `kind`.

    Raises HttpError 413 without reading on when the body is larger than --max-body-bytes, InvalidRequestError when it is not JSON,
    is nested too deeply, holds too many values, or has a field of the wrong type.
    """
    raw = (await read_bytes(request)).removeprefix(codecs.BOM_UTF8)
    if len(raw) <= LARGE:
        return _decode(raw, kind)
    return await offload(request, lambda: _decode(raw, kind))


def _decode(raw: bytes, kind: type[Body]) -> Body:
    check_num_values(raw)
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise _wrong_type(str(error), raw, kind) from None
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"the body is not valid JSON: {error}{_near(str(error), raw)}", code="invalid_json") from None
    except RecursionError:
        raise InvalidRequestError("the body is nested too deeply: flatten it", code="invalid_json") from None


def check_num_values(raw: bytes) -> None:
    """Raises InvalidRequestError for JSON of more than MAX_VALUES values, which would take the time and memory of all, before it is
    decoded."""
    if raw.count(b",") < MAX_VALUES:  # most texts, whatever is in their strings
        return
    num_commas = sum(match[0] == b"," for match in _STRING_OR_COMMA.finditer(raw))
    if num_commas >= MAX_VALUES:
        raise InvalidRequestError(
            f"the body holds {num_commas + 1} values, such as token ids: at most {MAX_VALUES} are read; send several requests",
            code="too_many_values",
        )


async def read_bytes(request: Request) -> bytes:
    """The request's body as it is, once there is room to work on it.

    Raises HttpError 413 without reading on when it is larger than --max-body-bytes, and 408 when it takes too long to come.
    """
    service, record = service_of(request), record_of(request)
    max_bytes = service.config.max_body_bytes
    declared = request.headers.get("content-length", "0")
    expected = int(declared) if declared.isdigit() and len(declared) < 20 else max_bytes + 1
    if expected > max_bytes:
        raise _too_large(f"{declared[:20]} bytes", max_bytes)
    if "content-length" not in request.headers and request.headers.get("transfer-encoding"):
        expected = max_bytes  # it doesn't say, and may be as large
    if "content-encoding" in request.headers:
        expected = max_bytes
    if expected > LARGE:
        await service.intake.enter(expected)
        record.held.callback(service.intake.leave, expected)
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        message = f"the body's Content-Encoding is {encoding[:SHOWN]!r}: send gzip, or the body as it is"
        raise HttpError(415, message, code="unsupported_encoding", close=True)
    try:
        async with asyncio.timeout(service.config.body_timeout_s):
            raw = await _receive(request, max_bytes)
    except TimeoutError:
        message = f"the body was not whole after {service.config.body_timeout_s:g} s (--body-timeout-s)"
        raise HttpError(408, message, code="body_timeout", close=True) from None
    record.body_bytes = len(raw)
    if encoding == "gzip":
        raw = await service.intake.run(max_bytes, lambda: _unzip(raw, max_bytes))
        record.body_bytes = len(raw)
    return raw


async def _receive(request: Request, max_bytes: int) -> bytes:
    raw = bytearray()
    async for chunk in request.stream():
        if len(raw) + len(chunk) > max_bytes:
            raise _too_large(f"more than {max_bytes} bytes", max_bytes)
        raw += chunk
    return bytes(raw)


def _unzip(raw: bytes, max_bytes: int) -> bytes:
    """What a gzip body holds, its members one after the other. Raises HttpError 413 when it is larger than `max_bytes`."""
    found, rest = bytearray(), raw
    try:
        while rest:
            member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            found += member.decompress(rest, max_bytes + 1 - len(found))
            if len(found) > max_bytes:
                raise _too_large(f"more than {max_bytes} bytes when it is unzipped", max_bytes)
            if not member.eof:
                raise InvalidRequestError("the body's gzip data ends too early: send all of it", code="invalid_gzip")
            rest = member.unused_data
    except zlib.error as error:
        message = f"the body is not valid gzip: {error}; leave Content-Encoding out if it isn't zipped"
        raise InvalidRequestError(message, code="invalid_gzip") from None
    return bytes(found)


def _too_large(size: str, max_bytes: int) -> HttpError:
    message = f"the body has {size}: at most {max_bytes} are read; send less, or start the server with a larger --max-body-bytes"
    return HttpError(413, message, code="body_too_large", close=True)


def _wrong_type(message: str, raw: bytes, kind: type[msgspec.Struct]) -> InvalidRequestError:
    """Says msgspec's "Expected `int`, got `str` - at `$.n`" as "n is 'three': expected int, got str"."""
    reason, path = read_fault(message)
    keys = re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", path)
    if not keys:
        if missing := re.search(r"missing required field (\w+)", reason):
            return InvalidRequestError(f"{missing[1]} is missing: it must be sent", param=missing[1])
        return InvalidRequestError(f"the body is wrong: {reason}")
    field = "".join(name or f"[{index}]" if i == 0 or index else f".{name}" for i, (name, index) in enumerate(keys))
    if reason.startswith("invalid enum value") and (allowed := _allowed(kind, [name for name, _ in keys])):
        reason = f"must be {', '.join(allowed)}"
    return InvalidRequestError(f"{field}{_value(raw, keys)}: {reason}", param=keys[0][0] or field)


def _allowed(kind: type[msgspec.Struct], names: list[str]) -> list[str]:
    """The values that a place may have, where its type lists them. `names`: of the fields that lead to it, "" in lists."""
    here = _alternatives(inspect.type_info(kind))
    for name in names:
        here = [inner for outer in here for inner in _inside(outer, name)]
    return [repr(value) for one in here if isinstance(one, inspect.LiteralType) for value in one.values]


def _inside(outer: inspect.Type, name: str) -> list[inspect.Type]:
    if isinstance(outer, inspect.StructType):
        return [inner for field in outer.fields if field.encode_name == name for inner in _alternatives(field.type)]
    return _alternatives(outer.item_type) if isinstance(outer, inspect.ListType) else []


def _alternatives(one: inspect.Type) -> list[inspect.Type]:
    return list(one.types) if isinstance(one, inspect.UnionType) else [one]


def _value(raw: bytes, keys: list[tuple[str, str]]) -> str:
    try:
        value: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return ""  # such as a number beyond what a float holds
    for name, index in keys:
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and index.isdigit():
            value = value[int(index)]
        else:
            break  # an entry of a dictionary, which msgspec does not name: show them all
    shown = msgspec.json.encode(value)[: 4 * SHOWN].decode(errors="ignore")
    return f" is {shown if len(shown) <= SHOWN else shown[:SHOWN] + '…'}"


def _near(message: str, raw: bytes) -> str:
    """What stands where the JSON breaks: that names the field when a value such as NaN is at fault."""
    position = re.search(r"byte (\d+)", message)
    if position is None:
        return ""
    end = int(position[1]) + 10
    return f", near {raw[max(end - SHOWN, 0) : end].decode(errors='replace')!r}"
