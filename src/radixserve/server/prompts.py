"""From a validated body to what the engine is asked: token ids within its limits, one GenerateRequest a prompt."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from radixserve.errors import InvalidRequestError, ParamError
from radixserve.ipc import GenerateRequest
from radixserve.limits import Limits
from radixserve.sampling_params import SamplingParams
from radixserve.server.fields import check_salt
from radixserve.server.service import Service
from radixserve.tokens import token_bytes

MAX_CHOICES = 1024
"""Answers that one HTTP request may ask for: prompts times n."""

MAX_WEIGHT = 4 * 1024 * 1024
"""Bytes of grammars, biases and stop strings that the answers to one HTTP request carry in all, where they are several."""

BIAS_WEIGHT = 64
"""Bytes that an entry of logit_bias counts for: it is dearer to check and apply than a character."""


class RequestFields(Protocol):
    """What every body that asks for an answer has. A field that its API doesn't honour is None or false."""

    priority: int | None
    cache_salt: str | None
    explain_cache: bool | None


def make_requests(
    prompts: Sequence[np.ndarray],
    params: SamplingParams,
    limits: Limits,
    body: RequestFields,
    request_id: str,
    adapter: str | None,
    *,
    cache_salt: str | None = None,
    num_prompts: int | None = None,
) -> list[GenerateRequest]:
    """One request a prompt. `prompts`: int32 token ids; `request_id`: of the HTTP request; `adapter`: the one that answers;
    `cache_salt`: where the body calls it otherwise; `num_prompts`: of the HTTP request, if not these alone.

    Raises InvalidRequestError when one can't be served."""
    cache_salt = body.cache_salt if cache_salt is None else cache_salt
    check_salt(cache_salt)
    params.validate(limits.vocab_size)
    num_prompts = num_prompts or len(prompts)
    check_choices(num_prompts, params.n)
    check_weight(num_prompts, params)
    for prompt in prompts:
        limits.check_prompt(prompt, params)
    return [
        GenerateRequest(
            rid="",
            prompt_ids=token_bytes(prompt),
            params=params,
            priority=body.priority or 0,
            cache_salt=cache_salt,
            adapter=adapter,
            request_id=request_id,
            explain_cache=bool(body.explain_cache),
        )
        for prompt in prompts
    ]


def encode_prompts(given: str | Sequence[str | int | list[int]], service: Service, param: str = "prompt") -> list[np.ndarray]:
    """A text, texts, token ids or lists of them as int32 token ids. Call it off the event loop.

    Raises InvalidRequestError naming `param`.
    """
    prompt = [given] if isinstance(given, str) else given
    limits = service.info.limits
    if not prompt:
        raise InvalidRequestError(f"{param} is an empty list: send at least one prompt of at least one token", param=param)
    texts = [item for item in prompt if isinstance(item, str)]
    ids = [item for item in prompt if isinstance(item, int)]
    lists = [item for item in prompt if isinstance(item, list)]
    check_choices(max(len(texts), len(lists)), 1)  # before any is tokenized
    if len(texts) == len(prompt):
        service.check_text(max(map(len, texts)), param)
        return [service.tokenizer.encode(text) for text in texts]
    if len(ids) == len(prompt):
        return [as_token_ids(ids, limits.vocab_size, param)]
    if len(lists) == len(prompt):
        return [as_token_ids(item, limits.vocab_size, param) for item in lists]
    raise InvalidRequestError(f"{param} mixes texts, token ids or lists: send items of one kind", param=param)


def check_choices(num_prompts: int, n: int) -> None:
    """Raises InvalidRequestError when one HTTP request asks for more than MAX_CHOICES answers."""
    if num_prompts * n > MAX_CHOICES:
        problem = f"holds {num_prompts} prompts, with n {n} that is {num_prompts * n} answers: at most {MAX_CHOICES} are allowed"
        error = ParamError("prompt", problem)
        raise InvalidRequestError(error.message, param="n") if n > 1 else error


def check_weight(num_prompts: int, params: SamplingParams) -> None:
    """Raises InvalidRequestError when what each answer carries along is too much for so many: each has a copy of its own."""
    weights = {
        "grammar": len(params.grammar.source) if params.grammar is not None else 0,
        "logit_bias": BIAS_WEIGHT * len(params.logit_bias),
        "stop": sum(map(len, params.stop)),
    }
    answers, weight = num_prompts * params.n, sum(weights.values())
    if answers > 1 and answers * weight > MAX_WEIGHT:
        param = max(weights, key=lambda name: weights[name])
        problem = f"has about {weight} bytes for each of {answers} answers: at most {MAX_WEIGHT} are allowed in all"
        raise ParamError(param, f"{problem}; ask for fewer answers at once")


def as_token_ids(ids: Sequence[int], vocab_size: int, param: str = "prompt") -> np.ndarray:
    """A client's list of token ids as int32 [n]. Raises InvalidRequestError naming the first that is no token."""
    try:
        array = np.asarray(ids, dtype=np.int64)
        wrong = np.flatnonzero((array < 0) | (array >= vocab_size))
    except OverflowError:  # an id of more than 64 bits
        wrong = np.array([at for at, token_id in enumerate(ids) if not 0 <= token_id < vocab_size])
    if len(wrong):
        at = int(wrong[0])
        message = f"{param} holds token id {ids[at]!s:.40} at position {at}: ids must be between 0 and {vocab_size - 1}"
        raise InvalidRequestError(message, param=param)
    return array.astype(np.int32)
