"""The form of Hermes and Qwen: <tool_call>{"name": "f", "arguments": {...}}</tool_call>, as often as there are calls.

It is also the one that a model whose chat template knows no tools is taught.
"""

from collections.abc import Container, Sequence

from radixserve.text.reply_reader import Reading, ReplyReader
from radixserve.text.tools.form import call_id
from radixserve.text.tools.json_call import Calls, read_json_call
from radixserve.text.tools.lark import ANY_TEXT, TokenId, json_calls, literal, marker, several, up_to_marker
from radixserve.text.tools.tool import Tool

BEGIN, END = "<tool_call>", "</tool_call>"
NEWLINE = "\n"


class HermesForm:
    """See the module."""

    name = "hermes"
    starts = "<"
    markers: tuple[str, ...] = (BEGIN, END)
    new_id = staticmethod(call_id)

    def read(self, reader: ReplyReader, calls: Calls, names: Container[str], fresh: bool) -> Reading[bool]:
        """One call with its markers. An end marker without a beginning belongs to a call that broke off, and is no text either."""
        if calls.count and (yield from reader.accept(END)):
            return True
        if not (yield from reader.accept(BEGIN)) or not (yield from read_json_call(reader, calls)):
            return False
        yield from reader.skip_space()
        yield from reader.accept(END)
        return True

    def rules(self, tools: Sequence[Tool], token_id: TokenId, *, parallel: bool, strict_only: bool) -> str:
        """Text may come before calls, and between and after them if `parallel`."""
        inner, end = f"{literal(NEWLINE)} object {literal(NEWLINE)}", marker(END, token_id)
        return (
            f"calls: {several('call', NEWLINE, parallel)}\ncall: {marker(BEGIN, token_id)} {inner} {end}\n"
            f"reply: {'begun_call* text' if parallel else 'begun_call | text'}\n"
            f"begun_call: begun {inner} {end}\ntext: {ANY_TEXT}\n"
            + up_to_marker("begun", BEGIN, token_id)
            + json_calls(tools, "arguments", strict_only)
        )
