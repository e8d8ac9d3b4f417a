"""The fields of a chat request that speak of tools, in OpenAI's form."""

import re
from typing import Any, Literal

import msgspec

from radixserve.errors import InvalidRequestError
from radixserve.text.answer_grammar import Choice, ToolUse
from radixserve.text.tools.tool import Tool, allows_other_than_objects

MAX_TOOLS = 128
_CHOICES: dict[str, Choice] = {"auto": "auto", "none": "none", "required": "required"}
_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


class FunctionBody(msgspec.Struct):
    """A function: `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolBody(msgspec.Struct):
    """One of `tools`."""

    function: FunctionBody
    type: Literal["function"] = "function"


class NamedFunction(msgspec.Struct):
    """The function of a NamedChoice."""

    name: str


class NamedChoice(msgspec.Struct, tag_field="type", tag="function"):
    """`tool_choice` that demands a call of one function."""

    function: NamedFunction


class NamedTool(msgspec.Struct):
    """One of the tools of an AllowedTools."""

    function: NamedFunction
    type: Literal["function"] = "function"


class AllowedTools(msgspec.Struct):
    """The tools that may be called, and whether one must be."""

    tools: list[NamedTool]
    mode: Literal["auto", "required"] = "auto"


class AllowedChoice(msgspec.Struct, tag_field="type", tag="allowed_tools"):
    """`tool_choice` that allows some of `tools`: all stay in the prompt, so that what is cached of it can be reused."""

    allowed_tools: AllowedTools


ToolChoice = str | NamedChoice | AllowedChoice


def read_tools(bodies: list[ToolBody]) -> list[Tool]:
    """The tools. Raises InvalidRequestError for names that can't be told apart or are no names."""
    if len(bodies) > MAX_TOOLS:
        raise InvalidRequestError(f"tools has {len(bodies)} entries: at most {MAX_TOOLS} are allowed", param="tools")
    tools = [_tool(body.function) for body in bodies]
    names = [tool.name for tool in tools]
    for index, name in enumerate(names):
        if not _NAME.fullmatch(name):
            message = f"the name of tools[{index}] is {name[:80]!r}: must be 1 to 64 letters, digits, dots, dashes and underscores"
            raise InvalidRequestError(message, param="tools")
        if allows_other_than_objects(tools[index].parameters):
            message = (
                f"the parameters of the tool {name!r} (tools[{index}]) allow other values than objects: give them the type 'object'"
            )
            raise InvalidRequestError(message, param="tools")
        if name in names[:index]:
            raise InvalidRequestError(f"tools has two functions named {name!r}: give each its own name", param="tools")
    return tools


def tool_use(tools: list[Tool], choice: ToolChoice, *, parallel: bool) -> ToolUse:
    """What use may be made of `tools`. Raises InvalidRequestError for a choice that can't be honoured."""
    if isinstance(choice, NamedChoice):
        return ToolUse(tools=[_chosen(tools, choice.function.name)], choice="required", parallel=False)
    if isinstance(choice, AllowedChoice):
        allowed = [_chosen(tools, tool.function.name) for tool in choice.allowed_tools.tools]
        if not allowed:
            raise InvalidRequestError("tool_choice allows no tools: name at least one, or send none", param="tool_choice")
        return ToolUse(tools=allowed, choice=choice.allowed_tools.mode, parallel=parallel, others=len(allowed) < len(tools))
    if choice == "required" and not tools:
        raise InvalidRequestError("tool_choice demands a call: send at least one of tools", param="tool_choice")
    if choice not in _CHOICES:
        message = f"tool_choice is {choice[:80]!r}: must be auto, none, required, or an object that names a function"
        raise InvalidRequestError(message, param="tool_choice")
    return ToolUse(tools=tools, choice=_CHOICES[choice], parallel=parallel)


def _chosen(tools: list[Tool], name: str) -> Tool:
    for tool in tools:
        if tool.name == name:
            return tool
    known = ", ".join(tool.name for tool in tools[:8]) or "none"
    raise InvalidRequestError(f"tool_choice names {name[:80]!r}: must be one of tools, which has {known}", param="tool_choice")


def _tool(body: FunctionBody) -> Tool:
    return Tool(body.name, body.description, body.parameters or {}, bool(body.strict))
