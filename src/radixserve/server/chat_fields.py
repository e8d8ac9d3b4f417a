"""What /v1/responses and /v1/messages share: one request to the engine, and server-sent events with names."""

from typing import Protocol

import msgspec

from radixserve.ipc import EngineInfo, GenerateRequest
from radixserve.server.conversation import Turn
from radixserve.server.openai.bodies import check_salt
from radixserve.tokens import token_bytes


class ChatFields(Protocol):
    """Fields that say how an answer is sampled and scheduled. They mean what they mean on other routes."""

    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    repetition_penalty: float | None
    seed: int | None
    ignore_eos: bool | None
    priority: int | None
    cache_salt: str | None


def make_request(
    body: ChatFields,
    turn: Turn,
    info: EngineInfo,
    request_id: str,
    adapter: str | None,
    *,
    max_tokens: int | None,
    logprobs: int | None = None,
    stop: tuple[str, ...] = (),
) -> GenerateRequest:
    """What the engine is asked. `request_id`: of the HTTP request; `adapter`: the one that answers.

    Raises InvalidRequestError when it can't be served.
    """
    check_salt(body.cache_salt, "cache_salt")
    given = {name: value for name in _SAMPLING if (value := getattr(body, name)) is not None}
    if body.top_k == -1:
        given["top_k"] = 0
    params = info.sampling_defaults.params(
        max_tokens=max_tokens,
        logprobs=logprobs,
        stop=stop,
        grammar=turn.grammar,
        skip_special_tokens=turn.skip_special_tokens,
        **given,
    )
    info.limits.check(turn.prompt_ids, params)
    return GenerateRequest(
        rid="",
        prompt_ids=token_bytes(turn.prompt_ids),
        params=params,
        priority=body.priority or 0,
        cache_salt=body.cache_salt,
        adapter=adapter,
        request_id=request_id,
    )


_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "ignore_eos")


def event_frame(event: msgspec.Struct) -> bytes:
    """A server-sent event, named by the struct's tag."""
    name = str(event.__struct_config__.tag)
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"
