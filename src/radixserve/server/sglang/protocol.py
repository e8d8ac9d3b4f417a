"""Body and replies of /generate, worded as SGLang's clients send and read them. Unknown fields are tolerated.

A list of prompts may come with one value for a field or with a list of values, one a prompt.
"""

from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from radixserve.errors import InvalidRequestError
from radixserve.sampling_params import Grammar
from radixserve.server import unsupported_fields as not_honoured
from radixserve.server.fields import FullSamplingFields, Int
from radixserve.server.unsupported_fields import RefusesUnsupported, honoured

T = TypeVar("T")

DEFAULT_MAX_NEW_TOKENS = 128

MAX_RID_LEN = 128
"""In characters, as of an X-Request-Id."""

NAMES = {
    "prompt": "text",
    "max_tokens": "max_new_tokens",
    "min_tokens": "min_new_tokens",
    "seed": "sampling_seed",
    "logprobs": "top_logprobs_num",
    "prompt_logprobs": "top_logprobs_num",
    "cache_salt": "extra_key",
}
"""What this route calls the fields of SamplingParams."""

CONSTRAINTS = ("json_schema", "regex", "ebnf", "structural_tag")
"""Fields of `sampling_params` that hold the answer to a language."""

INSTEAD = {
    **dict.fromkeys(not_honoured.CONSTRAINTS, f"send one of {', '.join(CONSTRAINTS)} in sampling_params"),
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "max_output_tokens"), "send max_new_tokens in sampling_params"),
    **dict.fromkeys(("prompt", "messages", "input"), "send text or input_ids"),
    "min_tokens": "send min_new_tokens in sampling_params",
    "seed": "send sampling_seed in sampling_params",
    "stop_sequences": "send stop in sampling_params",
    "cache_salt": "send extra_key",
    "logprobs": "send return_logprob",
    "prompt_logprobs": "send logprob_start_len",
}
"""What clients can do other than leave a field out."""


class SamplingBody(FullSamplingFields, kw_only=True):
    """`sampling_params` of /generate. At most one of `json_schema`, `regex`, `ebnf`, `structural_tag`."""

    max_new_tokens: Int | None = None
    min_new_tokens: Int | None = None
    sampling_seed: Int | None = None
    seed: Any = None  # it is sampling_seed here
    cache_salt: Any = None  # it is extra_key, of the body
    json_schema: str | dict[str, Any] | None = None
    regex: str | None = None
    ebnf: str | None = None
    structural_tag: str | dict[str, Any] | None = None

    def constraint(self) -> Grammar | None:
        """The language that the answer must belong to. Raises InvalidRequestError when there are two."""
        found = [name for name in CONSTRAINTS if getattr(self, name) is not None]
        if len(found) > 1:
            raise InvalidRequestError(f"{found[1]} and {found[0]} are both given: send one of them", param=found[1])
        if not found:
            return None
        source = getattr(self, found[0])
        return Grammar(found[0], source if isinstance(source, str) else msgspec.json.encode(source).decode())  # type: ignore[arg-type]


class GenerateBody(RefusesUnsupported, kw_only=True):
    """Body of /generate: `text` or `input_ids`, one prompt or a list of them."""

    text: str | list[str] | None = None
    input_ids: list[Int | list[Int]] | None = None
    sampling_params: SamplingBody | list[SamplingBody] | None = None
    rid: str | list[str] | None = None
    """What /abort_request takes; by default the id of the HTTP request."""
    return_logprob: bool | list[bool] = False
    logprob_start_len: Int | list[Int] = -1
    """From which position on the prompt is scored; -1: not at all."""
    top_logprobs_num: Int | list[Int] = 0
    return_text_in_logprobs: bool = False
    stream: bool = False
    priority: Int | None = None
    lora_path: str | list[str | None] | None = None
    """Names of loaded adapters; null: the base."""
    extra_key: str | None = None
    """Requests share cached prefixes only when these are equal: the `cache_salt` of other routes."""

    def refuse(self) -> None:
        """Raises InvalidRequestError naming the first field that can't be honoured."""
        self.refuse_others(INSTEAD | _IN_SAMPLING_PARAMS)
        for sampling in self.sampling_params if isinstance(self.sampling_params, list) else [self.sampling_params]:
            if sampling is not None:
                sampling.refuse_others(INSTEAD)
        if (self.text is None) == (self.input_ids is None):
            raise InvalidRequestError("send either text or input_ids, not both and not neither", param="text")
        for rid in self.rid if isinstance(self.rid, list) else [self.rid or ""]:
            if len(rid) > MAX_RID_LEN:
                raise InvalidRequestError(f"rid has {len(rid)} characters: at most {MAX_RID_LEN} are allowed", param="rid")

    def of_each(self, name: str, value: T | list[T], count: int) -> list[T]:
        """A field's value for each prompt. Raises InvalidRequestError when it is a list of another length."""
        if not isinstance(value, list):
            return [value] * count
        if len(value) != count:
            raise InvalidRequestError(f"{name} has {len(value)} entries for {count} prompts: send one, or one for each", param=name)
        return value


_IN_SAMPLING_PARAMS = dict.fromkeys(honoured(SamplingBody), "send it in sampling_params")


class GenerateLogprob(msgspec.Struct, frozen=True, array_like=True):
    """[logprob, token id, text]; the first token that is scored has no logprob, and text comes on demand."""

    logprob: float | None
    token_id: int
    text: str | None


class FinishReason(msgspec.Struct, frozen=True):
    """`length`: tokens generated when that was the limit. `matched`: the stop string or token."""

    type: str
    length: int | UnsetType = UNSET
    matched: str | int | UnsetType = UNSET
    message: str | UnsetType = UNSET


class MetaInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a choice cost and why it ended, None while it goes on. Logprobs where they were asked for."""

    id: str
    finish_reason: FinishReason | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    input_token_logprobs: list[GenerateLogprob] | UnsetType = UNSET
    output_token_logprobs: list[GenerateLogprob] | UnsetType = UNSET
    input_top_logprobs: list[list[GenerateLogprob] | None] | UnsetType = UNSET
    output_top_logprobs: list[list[GenerateLogprob]] | UnsetType = UNSET


class GenerateChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One choice: all of it so far, in every frame of a stream. `index`: in streams of several."""

    text: str
    output_ids: list[int]
    meta_info: MetaInfo
    index: int | UnsetType = UNSET
