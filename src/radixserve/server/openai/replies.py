"""Reply bodies of the API, in the shape that OpenAI's clients parse. Chunks of a stream and whole answers."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from radixserve.ipc import FinishReason
from radixserve.server.answers import Usage
from radixserve.server.cache.explanations import CacheExplanation

ChatFinishReason = FinishReason | Literal["tool_calls"]


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """`cached_tokens`: prompt tokens whose KV was in the cache when the request was first admitted."""

    cached_tokens: int


class CompletionUsage(msgspec.Struct, frozen=True):
    """Tokens of one HTTP request: each prompt counted once, the answers summed."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    cache_explanations: list[CacheExplanation] | UnsetType = UNSET
    """One a choice, where the request asked for them."""

    @classmethod
    def of(cls, usage: Usage) -> "CompletionUsage":
        """In OpenAI's form."""
        total, details = usage.prompt_tokens + usage.completion_tokens, PromptTokensDetails(usage.cached_tokens)
        return cls(usage.prompt_tokens, usage.completion_tokens, total, details, usage.explanations or UNSET)


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """Parallel lists, one entry a token. `text_offset`: in characters of the text. A prompt's first token has no probability."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class PromptLogprob(msgspec.Struct, frozen=True):
    """One token at one position of a prompt. `rank`: 1 for the likeliest."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[int, PromptLogprob] | None]
"""As vLLM has them: by position and token id, the prompt's own token and the likeliest. The first position has none."""


class CompletionChoice(msgspec.Struct, frozen=True):
    """`stop_reason`: the stop string or stop token id that ended the choice."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """Reply, or one chunk of it, of /v1/completions."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: CompletionUsage | UnsetType | None = UNSET


class TopLogprob(msgspec.Struct, frozen=True):
    """`bytes` are exact where a token is a part of a character and `token` has a replacement mark."""

    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(msgspec.Struct, frozen=True):
    """One token of a chat answer and its likeliest alternatives."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True):
    """One entry a token."""

    content: list[ChatTokenLogprob]


class FunctionCall(msgspec.Struct, frozen=True):
    """`arguments`: JSON text, or more of it in a stream; the name comes once, first."""

    arguments: str
    name: str | UnsetType = UNSET


class ToolCall(msgspec.Struct, frozen=True):
    """One tool call of a whole answer."""

    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


class ToolCallDelta(msgspec.Struct, frozen=True):
    """What a chunk adds to the tool call number `index` of an answer; id and type come once, first."""

    index: int
    function: FunctionCall
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET


class ChatMessage(msgspec.Struct, frozen=True):
    """A whole answer. `content` is null where it is tool calls alone."""

    content: str | None
    role: Literal["assistant"] = "assistant"
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class ChatDelta(msgspec.Struct, frozen=True):
    """What a chunk adds to an answer; the role comes once, first."""

    content: str | UnsetType = UNSET
    role: Literal["assistant"] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One answer."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: ChatFinishReason | None = None
    stop_reason: str | int | None = None
    token_ids: list[int] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """News of one answer."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: ChatFinishReason | None = None
    stop_reason: str | int | None = None
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """Reply of /v1/chat/completions."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: CompletionUsage
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    """One chunk of a streamed reply of /v1/chat/completions."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: CompletionUsage | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """The served model, or an adapter of it. `max_model_len`: most tokens of prompt and answer. `parent`: an adapter's base."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["radixserve"] = "radixserve"
    max_model_len: int
    parent: str | UnsetType = UNSET


class ModelList(msgspec.Struct, frozen=True):
    """Reply of /v1/models."""

    data: list[Model]
    object: Literal["list"] = "list"


class Tokens(msgspec.Struct, frozen=True):
    """Reply of /tokenize. `token_strs`: the tokens as the vocabulary has them."""

    tokens: list[int]
    count: int
    max_model_len: int
    token_strs: list[str] | UnsetType = UNSET
