"""Request bodies of the API: the OpenAI fields, and ours. Unknown fields are tolerated.

None always means "not given".
"""

from typing import Annotated, Any, Literal

import msgspec

from radixserve.errors import InvalidRequestError
from radixserve.sampling_defaults import SamplingDefaults
from radixserve.sampling_params import Grammar, SamplingParams
from radixserve.server.constraints import ConstraintFields
from radixserve.server.conversation import Conversation
from radixserve.server.tool_fields import ToolBody, ToolChoice, read_tools, tool_use

MAX_SALT_LEN = 256
"""In characters. A salt stays in memory as long as what was cached under it."""

Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""What fits the wire; the engine's limits are narrower."""

StreamUsage = Literal["none", "last", "each"]
"""Chunks of a stream that tell the usage: none, one at the end, or each one."""


class StreamOptions(msgspec.Struct, frozen=True):
    """`include_usage`: send a last chunk with the usage and no choices. `continuous_usage_stats`: and the usage so far in every
    chunk before it."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class GenerationBody(ConstraintFields, kw_only=True):
    """Fields that both completion routes share."""

    model: str | None = None
    max_tokens: Int | None = None
    min_tokens: Int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Int | None = None
    """0 and -1 are off."""
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[Int, float] | None = None
    seed: Int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[Int] | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    """false: special tokens have text in the answer."""
    n: Int | None = None
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
    cache_salt: str | None = None
    """Requests share cached prefixes only when their salts are equal."""
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
        check_salt(self.cache_salt, "cache_salt")
        if self.stream and self.prompt_logprobs is not None:
            message = "prompt_logprobs is not sent in streams: leave stream out, or ask /v1/completions for echo with logprobs"
            raise InvalidRequestError(message, param="prompt_logprobs")

    def sampling_params(
        self,
        defaults: SamplingDefaults,
        *,
        max_tokens: Int | None,
        logprobs: Int | None,
        prompt_logprobs: Int | None,
        grammar: Grammar | None,
    ) -> SamplingParams:
        """The sampling fields as the engine takes them, not yet validated. `defaults`: of those that are not given."""
        given = {name: value for name in SAMPLING_FIELDS if (value := getattr(self, name)) is not None}
        if self.top_k == -1:
            given["top_k"] = 0
        return defaults.params(
            max_tokens=max_tokens,
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
            grammar=grammar,
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ()),
            stop_token_ids=tuple(self.stop_token_ids or ()),
            **given,
        )


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


def check_salt(salt: str | None, param: str) -> None:
    """Raises InvalidRequestError for a salt that is empty or too long. `param`: the field it came in."""
    if salt == "":
        raise InvalidRequestError(f"{param} is empty: send at least one character, or leave it out", param=param)
    if salt is not None and len(salt) > MAX_SALT_LEN:
        message = f"{param} has {len(salt)} characters: at most {MAX_SALT_LEN} are allowed; send a hash of it"
        raise InvalidRequestError(message, param=param)


class AbortBody(msgspec.Struct, kw_only=True):
    """Body of /abort_request. `rid`: the rid of /generate, a reply's id, or an X-Request-Id."""

    rid: str = ""
    abort_all: bool = False


class WeightsBody(msgspec.Struct, kw_only=True):
    """Body of /update_weights. `model`: a directory, a GGUF file or a name, as --model takes them."""

    model: str


class LoadAdapterBody(msgspec.Struct, kw_only=True):
    """Body of /v1/load_lora_adapter, as vLLM names it. `lora_path`: a PEFT directory on the server's machine.

    `load_inplace`: an adapter that has the name is unloaded for it.
    """

    lora_name: str
    lora_path: str
    load_inplace: bool = False


class UnloadAdapterBody(msgspec.Struct, kw_only=True):
    """Body of /v1/unload_lora_adapter."""

    lora_name: str


class TokenizeBody(msgspec.Struct, kw_only=True):
    """Body of /tokenize: a `prompt`, or `messages` (and `tools`) that the chat template turns into one."""

    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[ToolBody] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True


class DetokenizeBody(msgspec.Struct, kw_only=True):
    """Body of /detokenize."""

    tokens: list[Int]
    skip_special_tokens: bool = False


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

SAMPLING_FIELDS = (
    "n",
    "min_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "seed",
    "ignore_eos",
    "skip_special_tokens",
)
"""Fields of SamplingParams that are taken over as they are."""
