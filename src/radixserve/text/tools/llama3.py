"""The form of Llama 3: {"name": "f", "parameters": {...}} in place of an answer, several with semicolons between.

<|python_tag|> may stand before it. Without the tag only an object that names one of the tools is a call: others are answers that
happen to be JSON.
"""

from collections.abc import Container, Sequence

from radixserve.text.reply_reader import Reading, ReplyReader
from radixserve.text.tools.form import call_id
from radixserve.text.tools.json_call import Calls, read_json_call
from radixserve.text.tools.lark import TokenId, json_calls, several
from radixserve.text.tools.tool import Tool

TAG = "<|python_tag|>"


class Llama3Form:
    """See the module."""

    name = "llama3"
    starts = "<{"
    markers: tuple[str, ...] = (TAG,)
    new_id = staticmethod(call_id)

    def read(self, reader: ReplyReader, calls: Calls, names: Container[str], fresh: bool) -> Reading[bool]:
        """One call, with the semicolon after it."""
        tagged = yield from reader.accept(TAG)
        if not (tagged or fresh) or not (yield from read_json_call(reader, calls, None if tagged else names)):
            return False
        yield from reader.skip_space()
        yield from reader.accept(";")
        return True

    def rules(self, tools: Sequence[Tool], token_id: TokenId, *, parallel: bool, strict_only: bool) -> str:
        """A text may not begin with a brace: that is a call."""
        calls = f"calls: {several('object', '; ', parallel)}\n"
        return calls + "reply: calls | text\ntext: /([^{\\s](?s:.*))?/\n" + json_calls(tools, "parameters", strict_only)
