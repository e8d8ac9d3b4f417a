"""Pieces of grammars in llguidance's dialect of Lark: what forms of tool calls are written in to force a model to keep to them."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from radixserve.text.schemas.enforceable import enforceable
from radixserve.text.tools.tool import NO_PARAMETERS, Tool

TokenId = Callable[[str], int | None]
"""The id of a special token by its text; None where the text is none."""

ANY_TEXT = "/(?s:.*)/"
ANY_OBJECT: dict[str, Any] = {"type": "object"}


def literal(text: str) -> str:
    """A text that must come as it is."""
    return json.dumps(text, ensure_ascii=False)


def marker(text: str, token_id: TokenId) -> str:
    """A marker, which in some vocabularies is a special token and not text."""
    special = token_id(text)
    return literal(text) if special is None else f"<[{special}]>"


def up_to_marker(rule: str, text: str, token_id: TokenId) -> str:
    """The definition of `rule`: any text, and the first marker after it."""
    special = token_id(text)
    if special is not None:
        return f"{rule}: {ANY_TEXT} <[{special}]>\n"
    escaped = re.escape(text).replace("/", "\\/")
    return f"{rule}[lazy]: /(?s:.*){escaped}/\n"


def json_text(schema: dict[str, Any], subject: str) -> str:
    """JSON that satisfies a schema. `subject`: what errors call it. Raises InvalidRequestError for one that can't be enforced."""
    enforceable(schema, subject)  # the compiler rewrites it; here it is known whose it is
    return "%json " + json.dumps(schema | {"$comment": subject}, ensure_ascii=False)


def several(item: str, between: str, parallel: bool) -> str:
    """One `item`, or if `parallel` any number of them."""
    return f"{item} ({literal(between)} {item})*" if parallel else item


def calls_in_turn(tools: Sequence[Tool], before: str, after: str, strict_only: bool) -> str:
    """Rules whose `object` is a call of one of `tools`: its arguments between `before`, with NAME for its name, and `after`.

    `strict_only`: the arguments of tools that are not strict are any object.
    """
    rules = f"object: {' | '.join(f'object_{index}' for index in range(len(tools)))}\n"
    for index, tool in enumerate(tools):
        schema = enforced_parameters(tool, strict_only)
        rules += f"object_{index}: {before.replace('NAME', tool.name)} arguments_{index} {after}\n"
        rules += f"arguments_{index}: {json_text(schema, parameters_of(tool))}\n"
    return rules


def enforced_parameters(tool: Tool, strict_only: bool) -> dict[str, Any]:
    """The schema that the arguments of a tool are held to. `strict_only`: any object will do for a tool that is not strict."""
    return ANY_OBJECT if strict_only and not tool.strict else ANY_OBJECT | (tool.parameters or NO_PARAMETERS)


def parameters_of(tool: Tool) -> str:
    """What errors call the parameters of a tool."""
    return f"the parameters of the tool {tool.name!r}"


def json_calls(tools: Sequence[Tool], arguments: str, strict_only: bool) -> str:
    """Rules whose `object` is a call as JSON: {"name": ..., `arguments`: ...}."""
    return calls_in_turn(tools, literal(f'{{"name": "NAME", "{arguments}": '), literal("}"), strict_only)
