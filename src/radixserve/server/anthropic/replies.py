"""Reply bodies and events of /v1/messages, in the shape that Anthropic's clients parse."""

from typing import Any, Literal

import msgspec

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]


class TextBlock(msgspec.Struct, tag="text"):
    """A stretch of text."""

    text: str


class ThinkingBlock(msgspec.Struct, tag="thinking"):
    """What the model thought. Nobody signs it."""

    thinking: str
    signature: str = ""


class ToolUseBlock(msgspec.Struct, tag="tool_use"):
    """A tool call. `input`: its arguments."""

    id: str
    name: str
    input: dict[str, Any]


ContentBlock = TextBlock | ThinkingBlock | ToolUseBlock


class MessageUsage(msgspec.Struct):
    """`input_tokens`: those of the prompt that were not in the cache; `cache_read_input_tokens`: those that were, on arrival."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int = 0
    """Always 0: everything is cached, and nothing is charged for it."""


class MessageReply(msgspec.Struct, tag="message", kw_only=True):
    """Reply of /v1/messages."""

    id: str
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[ContentBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage


class TokenCount(msgspec.Struct):
    """Reply of /v1/messages/count_tokens."""

    input_tokens: int


class MessageStart(msgspec.Struct, tag="message_start"):
    """The first event: the message without content."""

    message: MessageReply


class Ping(msgspec.Struct, tag="ping"):
    """Says that the stream lives."""


class BlockStart(msgspec.Struct, tag="content_block_start"):
    """A block begins, empty."""

    index: int
    content_block: ContentBlock


class TextDelta(msgspec.Struct, tag="text_delta"):
    """More text."""

    text: str


class ThinkingDelta(msgspec.Struct, tag="thinking_delta"):
    """More thoughts."""

    thinking: str


class InputDelta(msgspec.Struct, tag="input_json_delta"):
    """More of a call's arguments, which are JSON at its end."""

    partial_json: str


class BlockDelta(msgspec.Struct, tag="content_block_delta"):
    """A block grows."""

    index: int
    delta: TextDelta | ThinkingDelta | InputDelta


class BlockStop(msgspec.Struct, tag="content_block_stop"):
    """A block is whole."""

    index: int


class Ending(msgspec.Struct):
    """Why the message ended."""

    stop_reason: StopReason | None
    stop_sequence: str | None


class MessageDelta(msgspec.Struct, tag="message_delta"):
    """The end of the message, and what it cost."""

    delta: Ending
    usage: MessageUsage


class MessageStop(msgspec.Struct, tag="message_stop"):
    """The last event."""


MessageEvent = MessageStart | Ping | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop
