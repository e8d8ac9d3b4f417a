"""Reply body and events of /v1/responses, in the shape that OpenAI's clients parse."""

from typing import Any, Literal

import msgspec

from radixserve.server.openai.replies import ChatTokenLogprob
from radixserve.server.responses.body import Reasoning, ResponseTool, TextConfig

Status = Literal["completed", "failed", "in_progress", "incomplete"]


class OutputText(msgspec.Struct, tag="output_text"):
    """The text of a message. Nothing annotates it."""

    text: str
    annotations: list[Any] = []
    logprobs: list[ChatTokenLogprob] = []


class ReasoningText(msgspec.Struct, tag="reasoning_text"):
    """What the model thought."""

    text: str


class MessageItem(msgspec.Struct, tag="message"):
    """A text of the assistant."""

    id: str
    status: Status
    content: list[OutputText]
    role: Literal["assistant"] = "assistant"


class ReasoningItem(msgspec.Struct, tag="reasoning"):
    """What the model thought before it answered; there is no summary."""

    id: str
    status: Status
    content: list[ReasoningText]
    summary: list[Any] = []


class FunctionCallItem(msgspec.Struct, tag="function_call"):
    """A tool call. `arguments`: JSON text."""

    id: str
    status: Status
    call_id: str
    name: str
    arguments: str


OutputItem = MessageItem | ReasoningItem | FunctionCallItem


class InputTokensDetails(msgspec.Struct):
    """`cached_tokens`: input tokens that were in the cache on arrival."""

    cached_tokens: int
    cache_write_tokens: int = 0
    """Always 0: everything is cached, and nothing is charged for it."""


class OutputTokensDetails(msgspec.Struct):
    """`reasoning_tokens`: of the text of the reasoning, as the tokenizer counts them."""

    reasoning_tokens: int


class ResponseUsage(msgspec.Struct):
    """Tokens of one response."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseError(msgspec.Struct):
    """Why a response failed."""

    code: str
    message: str


class IncompleteDetails(msgspec.Struct):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens"]


class Response(msgspec.Struct, kw_only=True):
    """Reply of /v1/responses: what was asked, and the answer."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Status
    background: bool = False
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[OutputItem] = []
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: Reasoning
    store: bool
    temperature: float
    text: TextConfig
    tool_choice: str | dict[str, Any]
    tools: list[ResponseTool]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None = None
    user: str | None


class DeletedResponse(msgspec.Struct, kw_only=True):
    """Reply of DELETE /v1/responses/{id}."""

    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


class Event(msgspec.Struct, kw_only=True):
    """Events are numbered from 0 as they are sent."""

    sequence_number: int = -1


class Created(Event, tag="response.created"):
    """The first event."""

    response: Response


class InProgress(Event, tag="response.in_progress"):
    """The second event."""

    response: Response


class ItemAdded(Event, tag="response.output_item.added"):
    """An item begins, empty."""

    output_index: int
    item: OutputItem


class ItemDone(Event, tag="response.output_item.done"):
    """An item is whole."""

    output_index: int
    item: OutputItem


class PartEvent(Event, kw_only=True):
    """Events of the one part that a message or reasoning has."""

    item_id: str
    output_index: int
    content_index: int = 0


class PartAdded(PartEvent, tag="response.content_part.added"):
    """It begins, empty."""

    part: OutputText | ReasoningText


class PartDone(PartEvent, tag="response.content_part.done"):
    """It is whole."""

    part: OutputText | ReasoningText


class TextDelta(PartEvent, tag="response.output_text.delta"):
    """More text."""

    delta: str
    logprobs: list[ChatTokenLogprob] = []


class TextDone(PartEvent, tag="response.output_text.done"):
    """All of the text."""

    text: str
    logprobs: list[ChatTokenLogprob] = []


class ReasoningDelta(PartEvent, tag="response.reasoning_text.delta"):
    """More reasoning."""

    delta: str


class ReasoningDone(PartEvent, tag="response.reasoning_text.done"):
    """All of the reasoning."""

    text: str


class ArgumentsDelta(Event, tag="response.function_call_arguments.delta"):
    """More arguments of a call."""

    item_id: str
    output_index: int
    delta: str


class ArgumentsDone(Event, tag="response.function_call_arguments.done"):
    """All arguments of a call."""

    item_id: str
    output_index: int
    name: str
    arguments: str


class Completed(Event, tag="response.completed"):
    """The last event of an answer that came to its own end."""

    response: Response


class Incomplete(Event, tag="response.incomplete"):
    """The last event of an answer that was cut off."""

    response: Response


class Failed(Event, tag="response.failed"):
    """The last event of a stream that failed."""

    response: Response


ResponseEvent = (
    Created
    | InProgress
    | ItemAdded
    | ItemDone
    | PartAdded
    | PartDone
    | TextDelta
    | TextDone
    | ReasoningDelta
    | ReasoningDone
    | ArgumentsDelta
    | ArgumentsDone
    | Completed
    | Incomplete
    | Failed
)
