"""The form of Llama 4 and others: a list of Python calls in place of an answer, [f(city="Paris", days=3), g()].

Literals become JSON as they are read. A list that does not begin with a call of one of the tools is text.
"""

import json
import re
from collections.abc import Callable, Container, Sequence

from radixserve.json_text import read_json
from radixserve.text.reply_reader import Reading, ReplyReader
from radixserve.text.surrogates import join_surrogates
from radixserve.text.tools.form import call_id
from radixserve.text.tools.json_call import Calls
from radixserve.text.tools.lark import TokenId, several
from radixserve.text.tools.pythonic_grammar import pythonic_calls
from radixserve.text.tools.tool import Tool

BEGIN, END = "<|python_start|>", "<|python_end|>"
MAX_DEPTH = 64
"""Of lists and dictionaries in an argument; a call that goes deeper breaks off."""

_AFTER_NAME = re.compile(r"[^-.\w]")
_AFTER_LITERAL = re.compile(r"[^-+.\w]")
_LITERALS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": ""}
_NUM_DIGITS = {"x": 2, "u": 4, "U": 8}
_BRACKETS = {"[": "]", "(": ")", "{": "}"}

PassOn = Callable[[str], None]


class PythonicForm:
    """See the module."""

    name = "pythonic"
    starts = "<["
    markers: tuple[str, ...] = (BEGIN, END)
    new_id = staticmethod(call_id)

    def read(self, reader: ReplyReader, calls: Calls, names: Container[str], fresh: bool) -> Reading[bool]:
        """The whole list, with its markers."""
        if calls.count and (yield from reader.accept(END)):
            return True
        tagged = yield from reader.accept(BEGIN)
        yield from reader.skip_space()
        if not (tagged or fresh) or not (yield from reader.accept("[")):
            return False
        first = calls.count
        while (yield from _read_call(reader, calls, names)) and (yield from _accept(reader, ",")):
            pass
        if calls.count > first:
            yield from _accept(reader, "]")
        return calls.count > first

    def rules(self, tools: Sequence[Tool], token_id: TokenId, *, parallel: bool, strict_only: bool) -> str:
        """A text may not begin with a bracket: that is a list of calls."""
        calls = f'calls: "[" {several("object", ", ", parallel)} "]"\nreply: calls | text\ntext: /([^\\[\\s](?s:.*))?/\n'
        return calls + pythonic_calls(tools)


def _read_call(reader: ReplyReader, calls: Calls, names: Container[str]) -> Reading[bool]:
    """f(key=value, ...); False when it is none or breaks off."""
    yield from reader.skip_space()
    name = yield from reader.take_all(_AFTER_NAME)
    if name not in names or not (yield from _accept(reader, "(")):
        return False
    pass_on = calls.begin(name)
    pass_on("{")
    between = ""
    while not (yield from _accept(reader, ")")):
        key = yield from reader.take_all(_AFTER_NAME)
        if not key or not (yield from _accept(reader, "=")):
            return False
        yield from reader.skip_space()
        pass_on(f"{between}{json.dumps(key)}: ")
        if not (yield from _read_value(reader, pass_on, MAX_DEPTH)):
            return False
        between = ", "
        yield from _accept(reader, ",")
        yield from reader.skip_space()
    pass_on("}")
    return True


def _read_value(reader: ReplyReader, pass_on: PassOn, depth: int) -> Reading[bool]:
    """One literal, as JSON; False when it breaks off."""
    char = yield from reader.peek()
    if char and char in "\"'":
        return (yield from _read_string(reader, pass_on, char))
    if char and char in _BRACKETS:
        return depth > 0 and (yield from _read_items(reader, pass_on, char, depth - 1))
    word = yield from reader.take_all(_AFTER_LITERAL)
    literal = _LITERALS.get(word) or _number(word)
    pass_on(literal or "")
    return literal is not None


def _read_items(reader: ReplyReader, pass_on: PassOn, bracket: str, depth: int) -> Reading[bool]:
    yield from reader.accept(bracket)
    shown = bracket.replace("(", "[")
    pass_on(shown)
    between = ""
    yield from reader.skip_space()
    while not (yield from _accept(reader, _BRACKETS[bracket])):
        pass_on(between)
        if not (yield from _read_value(reader, pass_on, depth)):
            return False
        if bracket == "{":
            if not (yield from _accept(reader, ":")):
                return False
            pass_on(": ")
            yield from reader.skip_space()
            if not (yield from _read_value(reader, pass_on, depth)):
                return False
        between = ", "
        yield from _accept(reader, ",")
        yield from reader.skip_space()
    pass_on(_BRACKETS[shown])
    return True


def _read_string(reader: ReplyReader, pass_on: PassOn, quote: str) -> Reading[bool]:
    stop = re.compile(rf"[{quote}\\]")
    yield from reader.accept(quote)
    pass_on('"')
    while char := (yield from reader.peek()):
        if (yield from reader.accept(quote)):
            pass_on('"')
            return True
        text = (yield from _read_escapes(reader)) if char == "\\" else (yield from reader.take_run(stop))
        pass_on(json.dumps(text, ensure_ascii=False)[1:-1])
    return False


def _read_escapes(reader: ReplyReader) -> Reading[str]:
    """The escapes up to the next character that is none, together: two of them may be one character."""
    text = ""
    while (yield from reader.peek()) == "\\":
        text += yield from _read_escape(reader)
    return join_surrogates(text)


def _read_escape(reader: ReplyReader) -> Reading[str]:
    r"""What \n, \x41 and such stand for; an unknown escape stands for itself, as in Python."""
    yield from reader.accept("\\")
    char = yield from reader.peek()
    yield from reader.accept(char)
    digits = ""
    while len(digits) < _NUM_DIGITS.get(char, 0) and (digit := (yield from reader.peek())) in set("0123456789abcdefABCDEF"):
        yield from reader.accept(digit)
        digits += digit
    if digits and len(digits) == _NUM_DIGITS[char] and int(digits, 16) < 0x110000:
        return chr(int(digits, 16))
    return _ESCAPES.get(char, char if char in "\\'\"" else "\\" + char) + digits


def _number(word: str) -> str | None:
    """A number as JSON; None where it is none, or none that JSON has."""
    try:
        number = read_json(word.replace("_", "").lstrip("+"))
    except ValueError:
        return None
    return json.dumps(number) if isinstance(number, int | float) else None


def _accept(reader: ReplyReader, marker: str) -> Reading[bool]:
    yield from reader.skip_space()
    return (yield from reader.accept(marker))
