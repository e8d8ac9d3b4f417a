"""Fields that shape answers, under all names that the APIs served here have for them: refused where they would be ignored.

A client that sends such a field to an endpoint which doesn't know it would get another answer than it asked for, and not be told.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import msgspec

from radixserve.errors import InvalidRequestError


class RefusesUnsupported(msgspec.Struct, kw_only=True):
    """A part of every body that asks for an answer. What a body honours it declares again, with its type."""

    # How much is generated, and what ends it
    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    max_new_tokens: Any = None
    min_tokens: Any = None
    min_new_tokens: Any = None
    n: Any = None
    best_of: Any = None
    stop: Any = None
    stop_sequences: Any = None
    stop_token_ids: Any = None
    stop_regex: Any = None
    no_stop_trim: Any = None
    include_stop_str_in_output: Any = None
    ignore_eos: Any = None
    # How tokens are chosen
    temperature: Any = None
    top_p: Any = None
    top_k: Any = None
    min_p: Any = None
    repetition_penalty: Any = None
    presence_penalty: Any = None
    frequency_penalty: Any = None
    logit_bias: Any = None
    bad_words: Any = None
    allowed_token_ids: Any = None
    logits_processors: Any = None
    custom_logit_processor: Any = None
    seed: Any = None
    sampling_seed: Any = None
    use_beam_search: Any = None
    # The language that the answer must belong to
    response_format: Any = None
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    guided_whitespace_pattern: Any = None
    json_schema: Any = None
    regex: Any = None
    ebnf: Any = None
    grammar: Any = None
    structural_tag: Any = None
    output_format: Any = None
    output_config: Any = None
    text: Any = None
    # What the prompt is
    prompt: Any = None
    messages: Any = None
    input: Any = None
    system: Any = None
    instructions: Any = None
    previous_response_id: Any = None
    conversation: Any = None
    suffix: Any = None
    documents: Any = None
    chat_template: Any = None
    chat_template_kwargs: Any = None
    add_generation_prompt: Any = None
    continue_final_message: Any = None
    truncation: Any = None
    truncate_prompt_tokens: Any = None
    input_embeds: Any = None
    prompt_embeds: Any = None
    image_data: Any = None
    audio_data: Any = None
    video_data: Any = None
    session_params: Any = None
    container: Any = None
    # Tools and reasoning
    tools: Any = None
    tool_choice: Any = None
    parallel_tool_calls: Any = None
    functions: Any = None
    function_call: Any = None
    mcp_servers: Any = None
    web_search_options: Any = None
    thinking: Any = None
    enable_thinking: Any = None
    reasoning: Any = None
    reasoning_effort: Any = None
    separate_reasoning: Any = None
    # What the reply tells besides
    echo: Any = None
    logprobs: Any = None
    top_logprobs: Any = None
    prompt_logprobs: Any = None
    return_logprob: Any = None
    token_ids_logprob: Any = None
    return_token_ids: Any = None
    return_hidden_states: Any = None
    skip_special_tokens: Any = None
    explain_cache: Any = None
    audio: Any = None
    modalities: Any = None
    background: Any = None
    # Which model, and with whom its cache is shared
    lora_path: Any = None
    cache_salt: Any = None
    extra_key: Any = None

    def refuse_others(self, instead: Mapping[str, str], names: Iterable[str] | None = None) -> None:
        """Raises InvalidRequestError naming the first that was sent. `instead`: what to do, by names; `names`: other fields to
        refuse than all that aren't honoured."""
        for name in not_honoured(type(self)) if names is None else names:
            value = getattr(self, name)
            if value is not None and value not in HARMLESS.get(name, NOTHING):
                raise unsupported(name, instead.get(name, "leave it out"))


@cache
def not_honoured(body: type[RefusesUnsupported]) -> tuple[str, ...]:
    """The fields that a body refuses."""
    names = RefusesUnsupported.__struct_fields__
    return tuple(field.name for field in msgspec.structs.fields(body) if field.name in names and field.type is Any)


def honoured(body: type[RefusesUnsupported]) -> set[str]:
    """The fields that a body honours."""
    return set(body.__struct_fields__).difference(not_honoured(body))


def unsupported(name: str, instead: str = "leave it out") -> InvalidRequestError:
    """The refusal of a field. `instead`: what to do."""
    return InvalidRequestError(f"{name} is not supported here: {instead}", param=name, code="unsupported")


CONSTRAINTS = (
    "response_format",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "json_schema",
    "regex",
    "ebnf",
    "grammar",
    "structural_tag",
    "output_format",
)
"""Names of fields that hold an answer to a language."""

NOTHING: tuple[Any, ...] = (False, "", [], {})
"""Values that leave most fields off; False equals 0."""

HARMLESS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(CONSTRAINTS, ()),
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens"), ()),
    **dict.fromkeys(("temperature", "top_p", "seed", "sampling_seed", "truncate_prompt_tokens"), ()),
    **dict.fromkeys(("add_generation_prompt", "parallel_tool_calls", "skip_special_tokens", "separate_reasoning"), (True,)),
    **dict.fromkeys(("n", "best_of"), (1,)),
    "repetition_penalty": (1,),
    "top_k": (0, -1),
    "cache_salt": (),
    "extra_key": (),
    "enable_thinking": (),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "truncation": ("disabled",),
    "response_format": ({"type": "text"},),
    "text": ({"format": {"type": "text"}},),
}
"""Values that ask for what happens anyway, where they aren't those of NOTHING."""
