"""The form of Mistral: [TOOL_CALLS][{"name": "f", "arguments": {...}}, ...], or in newer models [TOOL_CALLS]f[ARGS]{...} each."""

import re
import secrets
import string
from collections.abc import Container, Sequence

from radixserve.text.reply_reader import Reading, ReplyReader
from radixserve.text.tools.json_call import Calls, read_json_call, read_json_value
from radixserve.text.tools.lark import ANY_TEXT, TokenId, calls_in_turn, json_calls, literal, marker, several, up_to_marker
from radixserve.text.tools.tool import Tool

BEGIN, ARGS = "[TOOL_CALLS]", "[ARGS]"
ID_LEN = 9
"""Mistral's templates refuse others."""
_AFTER_NAME = re.compile(r"[^-.\w]")


class MistralForm:
    """See the module."""

    name = "mistral"
    starts = "["
    markers: tuple[str, ...] = (BEGIN, ARGS)

    def new_id(self) -> str:
        """Letters and digits."""
        return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(ID_LEN))

    def read(self, reader: ReplyReader, calls: Calls, names: Container[str], fresh: bool) -> Reading[bool]:
        """The whole list, or one call of the newer form."""
        if not (yield from reader.accept(BEGIN)):
            return False
        yield from reader.skip_space()
        if (yield from reader.accept("[")):
            return (yield from self._read_list(reader, calls))
        name = yield from reader.take_all(_AFTER_NAME)
        yield from reader.accept(ARGS)
        yield from reader.skip_space()
        if not name or (yield from reader.peek()) != "{":
            return False
        yield from read_json_value(reader, calls.begin(name))
        return True

    def rules(self, tools: Sequence[Tool], token_id: TokenId, *, parallel: bool, strict_only: bool) -> str:
        """The newer form where the vocabulary has its second marker."""
        if token_id(ARGS) is None:
            after_begin = f"{literal('[')} {several('object', ', ', parallel)} {literal(']')}"
            objects = json_calls(tools, "arguments", strict_only)
        else:
            after_begin = "object"
            objects = calls_in_turn(tools, f"{literal('NAME')} {marker(ARGS, token_id)}", "", strict_only)
        again = "+" if parallel and after_begin == "object" else ""
        return (
            f"calls: call{again}\ncall: {marker(BEGIN, token_id)} {after_begin}\n"
            f"reply: begun_call{again} | text\nbegun_call: begun {after_begin}\ntext: {ANY_TEXT}\n"
            + up_to_marker("begun", BEGIN, token_id)
            + objects
        )

    def _read_list(self, reader: ReplyReader, calls: Calls) -> Reading[bool]:
        first = calls.count
        while (yield from read_json_call(reader, calls)):
            yield from reader.skip_space()
            if not (yield from reader.accept(",")):
                yield from reader.accept("]")
                break
        return calls.count > first
