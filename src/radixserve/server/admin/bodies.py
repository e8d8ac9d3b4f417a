"""Request bodies of the routes for those who run the server, and of the tokenizer's. Unknown fields are tolerated."""

from typing import Any

import msgspec

from radixserve.server.fields import Int
from radixserve.server.tool_fields import ToolBody


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
    continue_final_message: bool = False
    return_token_strs: bool = False


class DetokenizeBody(msgspec.Struct, kw_only=True):
    """Body of /detokenize."""

    tokens: list[Int]
    skip_special_tokens: bool = False
