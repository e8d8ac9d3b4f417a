"""Body of /v1/responses, and how it becomes a conversation. Unknown fields are tolerated."""

import json
from typing import Any, Literal

import msgspec

from radixserve.errors import InvalidRequestError
from radixserve.sampling_params import Grammar
from radixserve.server.conversation import Conversation
from radixserve.server.fields import Int, SamplingFields
from radixserve.server.responses.items import Item, read_items
from radixserve.server.tool_fields import (
    AllowedChoice,
    AllowedTools,
    FunctionBody,
    NamedChoice,
    NamedFunction,
    NamedTool,
    ToolBody,
    ToolChoice,
    read_tools,
    tool_use,
)
from radixserve.server.unsupported_fields import CONSTRAINTS

LOGPROBS = "message.output_text.logprobs"
"""What `include` says to get log-probabilities."""


class ResponseTool(msgspec.Struct):
    """A function; tools of other types are refused."""

    type: str
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class TextFormat(msgspec.Struct, omit_defaults=True):
    """What the answer's text must be. A schema is always enforced, whatever `strict` says."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema: dict[str, Any] | bool | None = None
    description: str | None = None
    strict: bool | None = None


class TextConfig(msgspec.Struct, omit_defaults=True):
    """`verbosity` is accepted and not used."""

    format: TextFormat | None = None
    verbosity: str | None = None


class Reasoning(msgspec.Struct):
    """`effort`: for chat templates that know it. There are no summaries: all reasoning is in the answer."""

    effort: str | None = None
    summary: str | None = None


class ResponsesBody(SamplingFields, kw_only=True):
    """None always means "not given"."""

    model: str | None = None
    input: str | list[Item]
    """The user's text, or items: messages, function calls, their outputs, reasoning."""
    instructions: str | None = None
    """A system message for this answer alone: they don't come along with `previous_response_id`."""
    previous_response_id: str | None = None
    store: bool | None = None
    """false: the response can't be continued or asked for by its id."""
    max_output_tokens: Int | None = None
    stream: bool | None = None
    text: TextConfig | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    top_logprobs: Int | None = None
    include: list[str] | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    priority: Int | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    truncation: str | None = None

    def refuse(self) -> None:
        """Raises InvalidRequestError naming the first field that can't be honoured."""
        self.refuse_others(INSTEAD)
        if self.truncation not in (None, "disabled"):
            message = f"truncation is {self.truncation[:40]!r}: nothing is left out of a prompt here; send 'disabled'"
            raise InvalidRequestError(message, param="truncation", code="unsupported")

    @property
    def items(self) -> list[Item]:
        """The input as items."""
        return [{"type": "message", "role": "user", "content": self.input}] if isinstance(self.input, str) else self.input

    @property
    def alternatives(self) -> int | None:
        """Alternatives reported for each token; None: off."""
        asked = self.top_logprobs or LOGPROBS in (self.include or [])
        return self.top_logprobs or 0 if asked else None

    def to_conversation(self, items: list[Item]) -> Conversation:
        """What is to be answered. `items`: the whole history. Raises InvalidRequestError."""
        tools = read_tools([_tool(tool, f"tools[{index}]") for index, tool in enumerate(self.tools or [])])
        choice = _choice(self.tool_choice or "auto")
        effort = self.reasoning.effort if self.reasoning else None
        system = [] if self.instructions is None else [{"role": "system", "content": self.instructions}]
        history = read_items(items)
        return Conversation(
            messages=system + history if history else [],
            tools=tools,
            use=tool_use(tools, choice, parallel=self.parallel_tool_calls is not False),
            constraint=_constraint(self.text.format if self.text else None),
            template_kwargs=({} if effort is None else {"reasoning_effort": effort}) | (self.chat_template_kwargs or {}),
        )

    @property
    def names(self) -> dict[str, str]:
        """What this route calls the fields of a request to the engine."""
        form = self.text.format if self.text else None
        grammar = "text.format" if form is not None and form.type != "text" else "tools"
        return NAMES | {"grammar": grammar}


NAMES = {"prompt": "input", "messages": "input", "max_tokens": "max_output_tokens", "logprobs": "top_logprobs"}

_CHAT = "ask /v1/chat/completions"
INSTEAD = {
    **dict.fromkeys(CONSTRAINTS, f"send text.format, or {_CHAT}"),
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "max_new_tokens"), "send max_output_tokens"),
    **dict.fromkeys(("n", "stop", "stop_token_ids", "min_tokens", "logit_bias"), _CHAT),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "skip_special_tokens"), _CHAT),
    **dict.fromkeys(("prompt", "messages"), "send input"),
    "logprobs": "send top_logprobs",
    "explain_cache": "ask /cache/explain",
    "system": "send instructions",
    "conversation": "send previous_response_id",
    "reasoning_effort": "send reasoning.effort",
    "extra_key": "send cache_salt",
}
"""What clients can do other than leave a field out."""


def _tool(tool: ResponseTool, where: str) -> ToolBody:
    if tool.type != "function":
        message = f"{where} has the type {tool.type[:80]!r}: only 'function' is supported; leave other tools out"
        raise InvalidRequestError(message, param="tools", code="unsupported")
    return ToolBody(FunctionBody(tool.name, tool.description, tool.parameters, tool.strict))


def _choice(given: str | dict[str, Any]) -> ToolChoice:
    if isinstance(given, str):
        return given
    match given:
        case {"type": "function", "name": str(name)}:
            return NamedChoice(NamedFunction(name))
        case {"type": "allowed_tools", "tools": list(tools), "mode": "auto" | "required" as mode}:
            return AllowedChoice(AllowedTools([_named(tool) for tool in tools], mode))
    raise InvalidRequestError(
        f"tool_choice is {json.dumps(given)[:80]}: must be auto, none, required, a function, or allowed_tools with a mode",
        param="tool_choice",
    )


def _named(tool: Any) -> NamedTool:
    match tool:
        case {"type": "function", "name": str(name)}:
            return NamedTool(NamedFunction(name))
    message = f"tool_choice.tools holds {json.dumps(tool)[:80]}: must name functions, each with type and name"
    raise InvalidRequestError(message, param="tool_choice")


def _constraint(form: TextFormat | None) -> Grammar | None:
    if form is None:
        return None
    if form.type != "json_schema" and form.schema is not None:
        message = f"text.format holds a schema and has the type {form.type!r}: send the type 'json_schema', or leave the schema out"
        raise InvalidRequestError(message, param="text")
    if form.type == "text":
        return None
    if form.type == "json_object":
        return Grammar("json_object")
    if form.schema is None:
        message = "text.format.schema is missing: with the type 'json_schema' it must be sent"
        raise InvalidRequestError(message, param="text")
    return Grammar("json_schema", json.dumps(form.schema, ensure_ascii=False))
