"""/v1/completions: continues prompts given as text or token ids."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import UNSET, UnsetType
from starlette.requests import Request

from radixserve.errors import InvalidRequestError
from radixserve.ipc import Output, TokenLogprob
from radixserve.limits import Limits
from radixserve.server.answers import Answer, Usage
from radixserve.server.generation import Generation
from radixserve.server.http.body import read_body
from radixserve.server.middleware.request_log import RequestRecord, record_of
from radixserve.server.openai.bodies import CompletionBody
from radixserve.server.openai.replies import Completion, CompletionChoice, CompletionLogprobs, CompletionUsage
from radixserve.server.openai.stream_usage import UsageChunkBuilder
from radixserve.server.openai.token_text import TextOffsets, completion_logprobs, echo_logprobs, joined, prompt_logprobs
from radixserve.server.prompts import encode_prompts, make_requests
from radixserve.server.service import Service, offload, service_of
from radixserve.text.answer_check import checks_of
from radixserve.text.tokenizer import Tokenizer

ID_PREFIX = "cmpl-"
"""Of a reply's id, before the HTTP request's."""

DEFAULT_MAX_TOKENS = 16
"""OpenAI's, for a client that doesn't say; less when the prompt leaves less room."""


async def completions(request: Request) -> Generation:
    """The endpoint."""
    body = await read_body(request, CompletionBody)
    return await offload(request, lambda: _begin(body, service_of(request), record_of(request)))


def _begin(body: CompletionBody, service: Service, record: RequestRecord) -> Generation:
    served = service.find_model(body.model)
    _refuse(body)
    prompts = encode_prompts(body.prompt, service)
    max_tokens = _max_tokens(body, prompts, service.info.limits)
    constraint = body.constraint()
    params = body.sampling_params(
        service.info.sampling_defaults,
        max_tokens=max_tokens,
        logprobs=body.logprobs,
        prompt_logprobs=_prompt_logprobs(body),
        grammar=constraint.grammar if constraint else None,
    )
    record.names = {"grammar": constraint.field} if constraint else {}
    requests = make_requests(prompts, params, service.info.limits, body, record.id, served.adapter)
    checks = checks_of([params.grammar] * len(prompts))
    reply = CompletionBuilder(
        id=ID_PREFIX + record.id,
        created=service.now(),
        model=served.name,
        tokenizer=service.tokenizer,
        n=params.n,
        prompts=prompts,
        prefixes=_echoes(body, prompts, service.tokenizer) if body.echo else [],
        echo_logprobs=body.logprobs if body.echo else None,
        prompt_logprobs=body.prompt_logprobs,
        show_ids=bool(body.return_token_ids),
        skip_special_tokens=params.skip_special_tokens,
        stream_usage=body.stream_usage,
    )
    return service.generate(record, reply, requests, stream=bool(body.stream), checks=checks)


@dataclass
class CompletionBuilder(UsageChunkBuilder):
    """Words the replies. `prompts`: token ids. `prefixes`: the text of each prompt where the answer repeats it, else empty.

    `echo_logprobs`, `prompt_logprobs`: alternatives shown for the tokens of a prompt, in OpenAI's and in vLLM's form, if asked for.
    """

    n: int
    prompts: list[np.ndarray]
    prefixes: list[str]
    echo_logprobs: int | None
    prompt_logprobs: int | None
    show_ids: bool
    skip_special_tokens: bool
    _offsets: dict[int, TextOffsets] = field(default_factory=dict)
    """Of the text sent so far, by choice of a stream."""
    _echoed: dict[int, CompletionLogprobs | None] = field(default_factory=dict)
    """Log-probabilities of the prompts that were repeated so far."""

    def opening(self, number: int, first: Output) -> Completion | None:
        """The prompt, for `echo`, and its token ids."""
        if not self.prefixes and not self.show_ids:
            return None
        prompt = number // self.n
        if number % self.n == 0:
            self._echoed[prompt] = self._echo(prompt, first.prompt_logprobs)
        text = self._prefix(prompt)
        return self._chunk(CompletionChoice(number, text, self._echoed.get(prompt), prompt_token_ids=self._prompt_ids(prompt)))

    def chunk(self, number: int, output: Output) -> Completion | None:
        """Text that a choice grew by."""
        ids = list(output.token_ids) if self.show_ids and output.token_ids else UNSET
        if not output.text and not output.logprobs and output.finish_reason is None and not ids:
            return None
        logprobs = None
        if output.logprobs:
            if number not in self._offsets:
                self._offsets[number] = self._begin_offsets(number // self.n)
            logprobs = completion_logprobs(self.tokenizer, output.logprobs, self._offsets[number])
        choice = CompletionChoice(number, output.text, logprobs, output.finish_reason, output.stop_reason, token_ids=ids)
        return self._chunk(choice)

    def usage_chunk(self, usage: CompletionUsage) -> Completion:
        """The usage."""
        return Completion(id=self.id, created=self.created, model=self.model, choices=[], usage=usage)

    def whole(self, answers: list[Answer], usage: Usage) -> Completion:
        """All choices."""
        choices = [
            self._choice(number, answer, answers[number // self.n * self.n].prompt_logprobs)
            for number, answer in enumerate(answers)
        ]
        return Completion(id=self.id, created=self.created, model=self.model, choices=choices, usage=CompletionUsage.of(usage))

    def _choice(self, number: int, answer: Answer, scores: Sequence[TokenLogprob]) -> CompletionChoice:
        prompt = number // self.n
        prefix, logprobs = self._prefix(prompt), self._echo(prompt, scores)
        if answer.logprobs:
            own = completion_logprobs(self.tokenizer, answer.logprobs, self._begin_offsets(prompt))
            logprobs = joined(logprobs, own) if logprobs is not None else own
        return CompletionChoice(
            number,
            prefix + answer.text,
            logprobs,
            answer.finish_reason,
            answer.stop_reason,
            UNSET if self.prompt_logprobs is None else prompt_logprobs(self.tokenizer, scores, self.prompt_logprobs),
            self._prompt_ids(prompt),
            answer.token_ids if self.show_ids else UNSET,
        )

    def _begin_offsets(self, prompt: int) -> TextOffsets:
        """For the tokens of an answer, after the prompt if that is repeated."""
        detokenizer = self.tokenizer.detokenizer(self.prompts[prompt], skip_special_tokens=self.skip_special_tokens)
        return TextOffsets(detokenizer, len(self._prefix(prompt)))

    def _prefix(self, prompt: int) -> str:
        return self.prefixes[prompt] if self.prefixes else ""

    def _prompt_ids(self, prompt: int) -> list[int] | UnsetType:
        return self.prompts[prompt].tolist() if self.show_ids else UNSET

    def _echo(self, prompt: int, scores: Sequence[TokenLogprob]) -> CompletionLogprobs | None:
        if self.echo_logprobs is None:
            return None
        first_id = int(self.prompts[prompt][0])
        return echo_logprobs(self.tokenizer, first_id, scores, self.echo_logprobs, self.prefixes[prompt])

    def _chunk(self, choice: CompletionChoice) -> Completion:
        return Completion(id=self.id, created=self.created, model=self.model, choices=[choice], usage=self.chunk_usage)


def _refuse(body: CompletionBody) -> None:
    body.refuse()
    if body.tools:
        message = "tools is not supported by this endpoint: send a chat to /v1/chat/completions"
        raise InvalidRequestError(message, param="tools", code="unsupported")
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise InvalidRequestError(f"best_of is {body.best_of}: must equal n, which is {body.n or 1}", param="best_of")


def _max_tokens(body: CompletionBody, prompts: list[np.ndarray], limits: Limits) -> int:
    if body.max_tokens is not None:
        return body.max_tokens
    room = min(limits.max_output(len(prompt)) for prompt in prompts)
    return max(min(max(DEFAULT_MAX_TOKENS, body.min_tokens or 0), room), 1)


def _prompt_logprobs(body: CompletionBody) -> int | None:
    """Alternatives to compute for the prompt's tokens; None: none of its tokens is scored."""
    asked = [count for count in (body.logprobs if body.echo else None, body.prompt_logprobs) if count is not None]
    return max(asked, default=None)


def _echoes(body: CompletionBody, prompts: list[np.ndarray], tokenizer: Tokenizer) -> list[str]:
    if isinstance(body.prompt, str):
        return [body.prompt]
    texts = [item for item in body.prompt if isinstance(item, str)]
    return texts or [tokenizer.decode(prompt.tolist(), skip_special_tokens=False) for prompt in prompts]
