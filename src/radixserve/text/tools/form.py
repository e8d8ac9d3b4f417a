"""How a model writes tool calls: what every form of it provides."""

import secrets
from collections.abc import Container, Sequence
from typing import Protocol

from radixserve.text.reply_reader import Reading, ReplyReader
from radixserve.text.tools.json_call import Calls
from radixserve.text.tools.lark import TokenId
from radixserve.text.tools.tool import Tool


class ToolForm(Protocol):
    """One way of writing calls."""

    name: str
    starts: str
    """Characters that a call can begin with."""
    markers: tuple[str, ...]
    """Texts around calls that are special tokens in some vocabularies: then these must have text in the answer."""

    def read(self, reader: ReplyReader, calls: Calls, names: Container[str], fresh: bool) -> Reading[bool]:
        """Reads a call, or several, where the reader stands; False when there is none, and nothing was emitted.

        `names` are the tools of the request; `fresh` says that the answer has had no text so far.
        """

    def new_id(self) -> str:
        """An id for a call."""

    def rules(self, tools: Sequence[Tool], token_id: TokenId, *, parallel: bool, strict_only: bool) -> str:
        """Rules of a Lark grammar. Its `calls` is one call of one of `tools`, or several if `parallel`; its `reply` is `calls`
        or a text, or both where the form has that.

        `strict_only`: the arguments of tools that are not strict may be any object. Raises InvalidRequestError for parameters
        that can't be enforced in this form.
        """


def call_id() -> str:
    """An id as OpenAI makes them."""
    return f"call_{secrets.token_hex(12)}"
