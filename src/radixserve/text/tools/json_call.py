"""Reads tool calls that models write as JSON: {"name": "f", "arguments": {...}}, in either order, with or without more keys.

The arguments are passed on as they come, as the model wrote them; only where they end is found out here.
"""

import re
from collections.abc import Callable, Container
from typing import Any

import msgspec

from radixserve.json_text import read_json
from radixserve.text.reply_pieces import ToolArguments, ToolCallStart
from radixserve.text.reply_reader import Reading, ReplyReader
from radixserve.text.surrogates import escape_surrogates, join_all_surrogates, join_surrogates

_NAME = "name"
_ARGUMENTS = ("arguments", "parameters")
_OTHERS = ("type", "id")
_IN_STRING = re.compile(r'["\\]')
_OUTSIDE = re.compile(r"[^-+.0-9A-Za-z \t\r\n,:]")
_AFTER_SCALAR = re.compile(r"[^-+.0-9A-Za-z]")


class Calls:
    """The calls of one answer: numbers them and gives each an id."""

    def __init__(self, reader: ReplyReader, new_id: Callable[[], str]) -> None:
        self._reader = reader
        self._new_id = new_id
        self._written: list[list[str]] = []
        """The arguments of each call, in the pieces they came in."""

    @property
    def count(self) -> int:
        """Calls begun so far."""
        return len(self._written)

    @property
    def are_whole(self) -> bool:
        """Whether each has arguments that can be read."""
        return all(read_arguments("".join(written)) is not None for written in self._written)

    def begin(self, name: str) -> Callable[[str], None]:
        """A call of `name` begins; returns what takes its arguments' text."""
        index = self.count
        written: list[str] = []
        self._written.append(written)
        self._reader.emit(ToolCallStart(index, self._new_id(), name))

        def pass_on(text: str) -> None:
            written.append(text)
            self._reader.emit(ToolArguments(index, text))

        return pass_on


def read_arguments(text: str) -> dict[str, Any] | None:
    """The arguments of a call; None where `text` is no JSON object, such as one that was cut off."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):  # which half of a UTF-16 pair is too, though that is JSON
        value = join_all_surrogates(_loads(text))
    return value if isinstance(value, dict) else None


def read_json_call(reader: ReplyReader, calls: Calls, names: Container[str] | None = None) -> Reading[bool]:
    """Reads one call. False when what comes is none, or a call of none of `names` (None: of any), and nothing was emitted.

    A call that breaks off after its arguments have begun stays a call.
    """
    yield from reader.skip_space()
    if not (yield from reader.accept("{")):
        return False
    name: str | None = None
    pass_on: Callable[[str], None] | None = None
    early: list[str] = []
    """Arguments that came before the name."""
    while (key := (yield from _read_key(reader))) in (_NAME, *_ARGUMENTS, *_OTHERS):
        if key == _NAME and name is None:
            name = join_surrogates((yield from _read_string(reader)) or "")
            if not name or (names is not None and name not in names):
                return False
        elif key in _ARGUMENTS and pass_on is None and not early:
            if name is not None:
                pass_on = calls.begin(name)
            if not (yield from _read_arguments(reader, pass_on or early.append)):
                return pass_on is not None
        elif key in _OTHERS and not (yield from read_json_value(reader, _ignore)):
            break
        yield from reader.skip_space()
        if (yield from reader.accept("}")):
            if name is None:
                return False
            if pass_on is None:
                calls.begin(name)("".join(early) or "{}")
            return True
        if not (yield from reader.accept(",")):
            break
    return pass_on is not None


def read_json_value(reader: ReplyReader, pass_on: Callable[[str], None]) -> Reading[bool]:
    """Reads one JSON value, passing its text on as it comes. False when it breaks off: the rest is not read."""
    depth = 0
    while True:
        char = yield from reader.peek()
        if char == '"':
            if not (yield from _pass_string(reader, pass_on)):
                return False
        elif char and char in "{[}]":
            yield from reader.accept(char)
            pass_on(char)
            depth += 1 if char in "{[" else -1
        elif depth and (run := (yield from reader.take_run(_OUTSIDE))):
            pass_on(run)
        elif scalar := "" if depth else (yield from reader.take_all(_AFTER_SCALAR)):
            pass_on(scalar)
        else:
            return False
        if depth <= 0:
            return depth == 0


def _read_arguments(reader: ReplyReader, pass_on: Callable[[str], None]) -> Reading[bool]:
    """An object; some models write it as a string that holds JSON, or null for none."""
    if (yield from reader.peek()) == "{":
        return (yield from read_json_value(reader, pass_on))
    written: list[str] = []
    if not (yield from read_json_value(reader, written.append)):
        return False
    value = _loads("".join(written))
    held = isinstance(value, str) and isinstance(_loads(value), dict)
    pass_on(escape_surrogates(value) if held else "{}" if value is None else "".join(written))
    return True


def _read_key(reader: ReplyReader) -> Reading[str | None]:
    yield from reader.skip_space()
    key = yield from _read_string(reader)
    yield from reader.skip_space()
    if key is None or not (yield from reader.accept(":")):
        return None
    yield from reader.skip_space()
    return key


def _read_string(reader: ReplyReader) -> Reading[str | None]:
    written: list[str] = []
    if not (yield from _pass_string(reader, written.append)):
        return None
    value = _loads("".join(written))
    return value if isinstance(value, str) else None


def _pass_string(reader: ReplyReader, pass_on: Callable[[str], None]) -> Reading[bool]:
    if not (yield from reader.accept('"')):
        return False
    pass_on('"')
    while char := (yield from reader.peek()):
        if char == '"':
            yield from reader.accept(char)
            pass_on(char)
            return True
        if char == "\\":
            yield from reader.accept(char)
            escaped = yield from reader.peek()
            yield from reader.accept(escaped)
            pass_on(char + escaped)
        else:
            pass_on((yield from reader.take_run(_IN_STRING)))
    return False


def _loads(text: str) -> Any:
    try:
        return read_json(text, surrogates=True)
    except ValueError:
        return text


def _ignore(_text: str) -> None:
    pass
