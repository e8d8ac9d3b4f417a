"""Bodies of /v1/messages and /v1/messages/count_tokens, and how they become a conversation. Unknown fields are tolerated."""

import json
from typing import Annotated, Any, Literal

import msgspec

from radixserve.errors import InvalidRequestError
from radixserve.sampling_params import Grammar
from radixserve.server.anthropic.history import read_history, read_text
from radixserve.server.conversation import Conversation
from radixserve.server.fields import Int, SamplingFields
from radixserve.server.tool_fields import FunctionBody, NamedChoice, NamedFunction, ToolBody, ToolChoice, read_tools, tool_use
from radixserve.server.unsupported_fields import CONSTRAINTS, RefusesUnsupported, not_honoured


class InputMessage(msgspec.Struct):
    """One turn: text, or blocks of it, of thinking, tool calls and their results."""

    role: Literal["user", "assistant", "system"]
    content: str | list[dict[str, Any]]


class ClientTool(msgspec.Struct):
    """A tool that the client runs. Others, which have a `type` of their own, are refused."""

    name: str
    input_schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None
    type: str | None = None


class Use(msgspec.Struct):
    """`tool_choice`. any: some tool must be called; tool: the one named."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class Thinking(msgspec.Struct):
    """The template is told as `enable_thinking`, where it knows that; a budget can't be kept."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Int | None = None


class OutputFormat(msgspec.Struct):
    """A JSON Schema that the answer's text must satisfy."""

    schema: dict[str, Any] | bool
    type: Literal["json_schema"] = "json_schema"


class OutputConfig(msgspec.Struct):
    """`effort` is for templates that know `reasoning_effort`."""

    effort: str | None = None
    format: OutputFormat | None = None


class CountBody(RefusesUnsupported, kw_only=True):
    """Body of /v1/messages/count_tokens: what makes the prompt."""

    model: str | None = None
    messages: list[InputMessage]
    system: str | list[dict[str, Any]] | None = None
    tools: list[ClientTool] | None = None
    tool_choice: Use | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def refuse(self) -> None:
        """Raises InvalidRequestError naming the first field that can't be honoured."""
        self.refuse_others(INSTEAD, not_honoured(MessagesBody))  # a count refuses what its message would be refused for

    def to_conversation(self) -> Conversation:
        """What is to be answered. An answer goes on from a last message of the assistant. Raises InvalidRequestError."""
        tools = read_tools([_tool(tool, f"tools[{index}]") for index, tool in enumerate(self.tools or [])])
        choice = self.tool_choice or Use("auto")
        system = [] if self.system is None else [{"role": "system", "content": read_text(self.system, "system")}]
        history = read_history([(message.role, message.content) for message in self.messages])
        goes_on = bool(history) and history[-1]["role"] == "assistant" and "tool_calls" not in history[-1]
        config = self.output_config or OutputConfig()
        return Conversation(
            messages=system + history,
            tools=tools,
            use=tool_use(tools, _choice(choice), parallel=not choice.disable_parallel_tool_use),
            constraint=_constraint(config.format),
            add_generation_prompt=not goes_on,
            continue_final_message=goes_on,
            template_kwargs=self._template_kwargs(config),
        )

    def _template_kwargs(self, config: OutputConfig) -> dict[str, Any]:
        kwargs: dict[str, Any] = {}
        if self.thinking is not None:
            kwargs["enable_thinking"] = self.thinking.type != "disabled"
        if config.effort is not None:
            kwargs["reasoning_effort"] = config.effort
        return kwargs | (self.chat_template_kwargs or {})


class MessagesBody(CountBody, SamplingFields, kw_only=True):
    """Body of /v1/messages."""

    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    priority: Int | None = None


_CHAT = "ask /v1/chat/completions"
INSTEAD = {
    **dict.fromkeys(CONSTRAINTS, f"send output_config.format, or {_CHAT}"),
    **dict.fromkeys(("max_completion_tokens", "max_output_tokens", "max_new_tokens"), "send max_tokens"),
    **dict.fromkeys(("n", "stop_token_ids", "min_tokens", "logit_bias", "logprobs", "top_logprobs"), _CHAT),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "skip_special_tokens"), _CHAT),
    **dict.fromkeys(("prompt", "input"), "send messages"),
    "stop": "send stop_sequences",
    "explain_cache": "ask /cache/explain",
    "instructions": "send system",
    "parallel_tool_calls": "send tool_choice.disable_parallel_tool_use",
    "reasoning_effort": "send output_config.effort",
    "reasoning": "send output_config.effort",
    "enable_thinking": "send thinking",
    "extra_key": "send cache_salt",
}
"""What clients can do other than leave a field out."""


def _tool(tool: ClientTool, where: str) -> ToolBody:
    if tool.type not in (None, "custom"):
        message = f"{where} has the type {tool.type[:80]!r}: only tools that the client runs, with an input_schema, are supported"
        raise InvalidRequestError(message, param="tools", code="unsupported")
    return ToolBody(FunctionBody(tool.name, tool.description, tool.input_schema, tool.strict))


def _choice(choice: Use) -> ToolChoice:
    if choice.type == "tool":
        if choice.name is None:
            raise InvalidRequestError(
                "tool_choice.name is missing: with the type 'tool' it must name one of tools", param="tool_choice"
            )
        return NamedChoice(NamedFunction(choice.name))
    return "required" if choice.type == "any" else choice.type


def _constraint(form: OutputFormat | None) -> Grammar | None:
    return None if form is None else Grammar("json_schema", json.dumps(form.schema, ensure_ascii=False))
