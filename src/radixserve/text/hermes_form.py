"""The form of Hermes and Qwen: <tool_call>{"name": "f", "arguments": {...}}</tool_call>, as often as there are calls.

It is also the one that a model whose chat template knows no tools is taught.
"""

from collections.abc import Container

from radixserve.text.json_call import Calls, read_json_call
from radixserve.text.reply_reader import Reading, ReplyReader
from radixserve.text.tool_form import call_id

BEGIN, END = "<tool_call>", "</tool_call>"


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
