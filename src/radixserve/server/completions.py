"""/v1/completions: continues prompts given as text or token ids."""

import asyncio
from dataclasses import dataclass, field

import numpy as np
from msgspec import UNSET, UnsetType
from starlette.requests import Request

from radixserve.errors import InvalidRequestError
from radixserve.limits import Limits
from radixserve.messages import Output
from radixserve.server.answers import Answer
from radixserve.server.body import read_body
from radixserve.server.generation import Generation
from radixserve.server.prompts import as_token_ids, check_choices, make_requests
from radixserve.server.protocol import CompletionBody
from radixserve.server.replies import Completion, CompletionChoice, CompletionLogprobs, Usage
from radixserve.server.request_log import record_of
from radixserve.server.service import Service, service_of
from radixserve.server.token_text import completion_logprobs
from radixserve.text.tokenizer import Tokenizer

DEFAULT_MAX_TOKENS = 16
"""OpenAI's, for a client that doesn't say; less when the prompt leaves less room."""


async def completions(request: Request) -> Generation:
    """The endpoint."""
    service, record = service_of(request), record_of(request)
    body = await read_body(request, CompletionBody, service.config.max_body_bytes)
    service.check_model(body.model)
    _refuse(body)
    prompts = await _encode(body, service)
    echo_only = bool(body.echo) and body.max_tokens == 0
    max_tokens = 1 if echo_only else _max_tokens(body, prompts, service.info.limits)
    params = body.sampling_params(max_tokens=max_tokens, logprobs=body.logprobs)
    requests = make_requests(prompts, body, params, service.info.limits)
    include_usage = bool(body.stream_options and body.stream_options.include_usage)
    shape = CompletionShape(
        id=f"cmpl-{record.id}",
        created=service.now(),
        model=service.model_name,
        tokenizer=service.tokenizer,
        n=params.n,
        prefixes=_echoes(body, prompts, service.tokenizer) if body.echo else [],
        chunk_usage=None if include_usage else UNSET,
    )
    return Generation(
        service.client, service.metrics, record, shape, requests, params.n, bool(body.stream), include_usage, echo_only
    )


@dataclass
class CompletionShape:
    """Words the replies. `prefixes`: the text of each prompt where the answer repeats it, else empty."""

    id: str
    created: int
    model: str
    tokenizer: Tokenizer
    n: int
    prefixes: list[str]
    chunk_usage: UnsetType | None
    _offsets: dict[int, int] = field(default_factory=dict)
    """Characters of tokens sent so far, by choice."""

    def opening(self, number: int) -> Completion | None:
        """The prompt, for `echo`."""
        return self._chunk(CompletionChoice(number, self._prefix(number))) if self.prefixes else None

    def chunk(self, number: int, output: Output) -> Completion:
        """Text that a choice grew by."""
        logprobs = None
        if output.logprobs:
            offset = self._offsets.get(number, 0)
            logprobs, self._offsets[number] = completion_logprobs(self.tokenizer, list(output.logprobs), offset)
        return self._chunk(CompletionChoice(number, output.text, logprobs, output.finish_reason, output.stop_reason))

    def usage_chunk(self, usage: Usage) -> Completion:
        """The usage."""
        return Completion(id=self.id, created=self.created, model=self.model, choices=[], usage=usage)

    def whole(self, answers: list[Answer], usage: Usage) -> Completion:
        """All choices."""
        choices = [
            CompletionChoice(
                number, self._prefix(number) + answer.text, self._logprobs(answer), answer.finish_reason, answer.stop_reason
            )
            for number, answer in enumerate(answers)
        ]
        return Completion(id=self.id, created=self.created, model=self.model, choices=choices, usage=usage)

    def _prefix(self, number: int) -> str:
        return self.prefixes[number // self.n] if self.prefixes else ""

    def _logprobs(self, answer: Answer) -> CompletionLogprobs | None:
        return completion_logprobs(self.tokenizer, answer.logprobs, 0)[0] if answer.logprobs else None

    def _chunk(self, choice: CompletionChoice) -> Completion:
        return Completion(id=self.id, created=self.created, model=self.model, choices=[choice], usage=self.chunk_usage)


def _refuse(body: CompletionBody) -> None:
    body.refuse()
    if body.echo and body.logprobs is not None:
        raise InvalidRequestError("echo with logprobs is not supported: leave one of them out", param="echo", code="unsupported")
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise InvalidRequestError(f"best_of is {body.best_of}: must equal n, which is {body.n or 1}", param="best_of")


async def _encode(body: CompletionBody, service: Service) -> list[np.ndarray]:
    """The prompts as int32 token ids; texts are tokenized on a thread, off the event loop."""
    prompt = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    limits = service.info.limits
    if not prompt:
        raise InvalidRequestError("prompt is an empty list: send at least one prompt of at least one token", param="prompt")
    texts = [item for item in prompt if isinstance(item, str)]
    ids = [item for item in prompt if isinstance(item, int)]
    lists = [item for item in prompt if isinstance(item, list)]
    check_choices(max(len(texts), len(lists)), 1)  # before any is tokenized
    if len(texts) == len(prompt):
        service.check_text(max(map(len, texts)), "prompt")
        return await asyncio.to_thread(lambda: [service.tokenizer.encode(text) for text in texts])
    if len(ids) == len(prompt):
        return [as_token_ids(ids, limits.vocab_size)]
    if len(lists) == len(prompt):
        return [as_token_ids(item, limits.vocab_size) for item in lists]
    raise InvalidRequestError("prompt mixes texts, token ids or lists: send items of one kind", param="prompt")


def _max_tokens(body: CompletionBody, prompts: list[np.ndarray], limits: Limits) -> int:
    if body.max_tokens is not None:
        return body.max_tokens
    room = min(limits.max_output(len(prompt)) for prompt in prompts)
    return max(min(max(DEFAULT_MAX_TOKENS, body.min_tokens or 0), room), 1)


def _echoes(body: CompletionBody, prompts: list[np.ndarray], tokenizer: Tokenizer) -> list[str]:
    if isinstance(body.prompt, str):
        return [body.prompt]
    texts = [item for item in body.prompt if isinstance(item, str)]
    return texts or [tokenizer.decode(prompt.tolist(), skip_special_tokens=False) for prompt in prompts]
