"""Request bodies of the completion routes: the OpenAI fields, and ours. Unknown fields are tolerated.

None always means "not given".
"""

from typing import Any

import msgspec

from radixserve.errors import InvalidRequestError
from radixserve.sampling_params import Grammar
from radixserve.server.constraints import ConstraintFields
from radixserve.server.conversation import Conversation
from radixserve.server.fields import FullSamplingFields, Int
from radixserve.server.openai.stream_usage import StreamUsage
from radixserve.server.tool_fields import ToolBody, ToolChoice, read_tools, tool_use


class StreamOptions(msgspec.Struct, frozen=True):
    """`include_usage`: send a last chunk with the usage and no choices. `continuous_usage_stats`: and the usage so far in every
    chunk before it."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class GenerationBody(ConstraintFields, FullSamplingFields, kw_only=True):
    """Fields that both completion routes share."""

    model: str | None = None
    max_tokens: Int | None = None
    min_tokens: Int | None = None
    prompt_logprobs: Int | None = None
    """Alternatives reported for each token of the prompt, as vLLM does; not in streams."""
    return_token_ids: bool | None = None
    """Send the token ids of prompt and answer too."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    """Accepted and not used."""
    priority: Int | None = None
    """Higher is sooner."""
    explain_cache: bool | None = None
    """Explain in the usage what was reused, and why no more; a stream ends with the usage then."""

    @property
    def stream_usage(self) -> StreamUsage:
        """Where a stream tells its usage."""
        options = self.stream_options or StreamOptions()
        if options.include_usage and options.continuous_usage_stats:
            return "each"
        return "last" if options.include_usage or self.explain_cache else "none"

    def refuse(self) -> None:
        """Raises InvalidRequestError naming the first field that can't be honoured."""
        self.refuse_others(INSTEAD)
        if self.stream and self.prompt_logprobs is not None:
            message = "prompt_logprobs is not sent in streams: leave stream out, or ask /v1/completions for echo with logprobs"
            raise InvalidRequestError(message, param="prompt_logprobs")


class CompletionBody(GenerationBody, kw_only=True):
    """Body of /v1/completions."""

    prompt: str | list[str | Int | list[Int]]
    """A text, texts, token ids, or lists of token ids."""
    echo: bool | None = None
    logprobs: Int | None = None
    """Alternatives reported for each token; 0: the sampled token alone."""
    best_of: Int | None = None


class ChatBody(GenerationBody, kw_only=True):
    """Body of /v1/chat/completions."""

    messages: list[dict[str, Any]]
    max_completion_tokens: Int | None = None
    """The newer name of `max_tokens`."""
    logprobs: bool | None = None
    top_logprobs: Int | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    """For chat templates that know it."""
    tools: list[ToolBody] | None = None
    tool_choice: ToolChoice | None = None
    """auto, none, required, one function that must be called, or those that may be."""
    parallel_tool_calls: bool | None = None
    """false: at most one call an answer."""
    separate_reasoning: bool | None = None
    """false: reasoning stays in the text of the answer."""

    def to_conversation(self, constraint: Grammar | None) -> Conversation:
        """What is to be answered. Raises InvalidRequestError for tools that can't be used."""
        tools = read_tools(self.tools or [])
        continues = bool(self.continue_final_message)
        if continues and self.add_generation_prompt:
            message = "add_generation_prompt and continue_final_message are both true: an answer begins a turn or goes on with one"
            raise InvalidRequestError(message, param="continue_final_message")
        effort = {} if self.reasoning_effort is None else {"reasoning_effort": self.reasoning_effort}
        return Conversation(
            messages=self.messages,
            tools=tools,
            use=tool_use(tools, self.tool_choice or "auto", parallel=self.parallel_tool_calls is not False),
            constraint=constraint,
            separate_reasoning=self.separate_reasoning is not False,
            add_generation_prompt=not continues if self.add_generation_prompt is None else self.add_generation_prompt,
            continue_final_message=continues,
            template_kwargs=effort | (self.chat_template_kwargs or {}),
        )


INSTEAD = {
    "prompt": "send messages, or ask /v1/completions",
    "messages": "send prompt, or ask /v1/chat/completions",
    "input": "ask /v1/responses",
    "max_output_tokens": "send max_tokens",
    "max_new_tokens": "send max_tokens",
    "max_completion_tokens": "send max_tokens",
    "min_new_tokens": "send min_tokens",
    "stop_sequences": "send stop",
    "sampling_seed": "send seed",
    "grammar": "send ebnf",
    "structural_tag": "send response_format with the type 'structural_tag'",
    "output_format": "send response_format",
    "output_config": "send response_format",
    "text": "send response_format",
    "system": "send a message with the role 'system'",
    "instructions": "send a message with the role 'system'",
    "previous_response_id": "send all messages, or ask /v1/responses",
    "documents": "send it in chat_template_kwargs",
    "thinking": "send enable_thinking in chat_template_kwargs, for templates that know it",
    "enable_thinking": "send it in chat_template_kwargs",
    "reasoning": "send reasoning_effort",
    "tools": "ask /v1/chat/completions",
    "functions": "send tools",
    "function_call": "send tool_choice",
    "return_logprob": "send logprobs",
    "lora_path": "send the adapter's name as model",
    "extra_key": "send cache_salt",
}
"""What clients of the completion routes can do other than leave a field out."""
