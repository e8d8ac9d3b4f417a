"""/generate: the engine's own form of a request, as SGLang's clients send it. A stream repeats all of the text in every frame."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import UNSET, UnsetType
from starlette.requests import Request

from radixserve.errors import InvalidRequestError
from radixserve.ipc import GenerateRequest, Output, TokenLogprob
from radixserve.sampling_defaults import SamplingDefaults
from radixserve.sampling_params import SamplingParams
from radixserve.server.answers import Answer, Usage
from radixserve.server.chunks import ChunkBuilder
from radixserve.server.generation import Generation
from radixserve.server.http.body import read_body
from radixserve.server.middleware.request_log import RequestRecord, record_of
from radixserve.server.prompts import encode_prompts, make_requests
from radixserve.server.service import Service, offload, service_of
from radixserve.server.sglang.protocol import (
    DEFAULT_MAX_NEW_TOKENS,
    NAMES,
    FinishReason,
    GenerateBody,
    GenerateChoice,
    GenerateLogprob,
    MetaInfo,
    SamplingBody,
)
from radixserve.text.answer_check import checks_of


async def generate(request: Request) -> Generation:
    """The endpoint."""
    body = await read_body(request, GenerateBody)
    return await offload(request, lambda: _begin(body, service_of(request), record_of(request)))


def _begin(body: GenerateBody, service: Service, record: RequestRecord) -> Generation:
    body.refuse()
    param, given = ("text", body.text) if body.text is not None else ("input_ids", body.input_ids or [])
    prompts = encode_prompts(given, service, param)
    record.names = NAMES | {"prompt": param, "grammar": "sampling_params"}
    requests = _requests(body, prompts, record.id, service)
    kinds = {request.params.grammar.kind for request in requests if request.params.grammar is not None}
    if len(kinds) == 1:
        record.names |= {"grammar": kinds.pop()}
    checks = checks_of([request.params.grammar for request in requests])
    n = requests[0].params.n
    several = isinstance(body.text, list) or (body.input_ids is not None and isinstance(body.input_ids[0], list))
    reply = GenerateBuilder(service.tokenizer, requests, prompts, n, several or n > 1, body.return_text_in_logprobs)
    return service.generate(record, reply, requests, stream=body.stream, checks=checks)


@dataclass
class GenerateBuilder(ChunkBuilder):
    """Words the replies. `several`: choices come as a list."""

    requests: list[GenerateRequest]
    prompts: list[np.ndarray]
    n: int
    several: bool
    show_text: bool
    _answers: dict[int, Answer] = field(default_factory=dict)
    """Of streams, by choice."""

    def opening(self, number: int, first: Output) -> None:
        """Nothing."""

    def chunk(self, number: int, output: Output) -> GenerateChoice | None:
        """All of a choice so far, when there is more of it."""
        answer = self._answers.setdefault(number, Answer())
        answer.add(output)
        if not output.token_ids and output.finish_reason is None:
            return None
        return self._choice(number, self._answers, index=number if self.several else UNSET)

    def whole(self, answers: list[Answer], usage: Usage) -> GenerateChoice | list[GenerateChoice]:
        """One choice, or all of them in a list."""
        numbered = dict(enumerate(answers))
        choices = [self._choice(number, numbered) for number in numbered]
        return choices if self.several else choices[0]

    def _choice(self, number: int, answers: dict[int, Answer], index: int | UnsetType = UNSET) -> GenerateChoice:
        prompt, answer = number // self.n, answers[number]
        siblings = [answers[other] for other in range(prompt * self.n, (prompt + 1) * self.n) if other in answers]
        params = self.requests[prompt].params
        meta = MetaInfo(
            id=self.requests[prompt].request_id,
            finish_reason=_finish_reason(answer, self.tokenizer.eos_ids),
            prompt_tokens=len(self.prompts[prompt]),
            completion_tokens=len(answer.token_ids),
            cached_tokens=min(sibling.cached_tokens for sibling in siblings),
            **({} if params.logprobs is None else self._logprobs(prompt, answer, siblings[0].prompt_logprobs)),
        )
        return GenerateChoice(text=answer.text, output_ids=answer.token_ids, meta_info=meta, index=index)

    def _logprobs(self, prompt: int, answer: Answer, scores: Sequence[TokenLogprob]) -> dict[str, Any]:
        """The fields of MetaInfo. `scores`: of the prompt."""
        params, ids = self.requests[prompt].params, self.prompts[prompt]
        start = params.logprob_start_len if params.prompt_logprobs is not None else len(ids) - 1
        first = GenerateLogprob(None, int(ids[start]), self._text(int(ids[start])))
        shown: dict[str, Any] = {
            "input_token_logprobs": [first, *map(self._own, scores)],
            "output_token_logprobs": [self._own(item) for item in answer.logprobs],
        }
        if params.logprobs:
            shown["input_top_logprobs"] = [None, *map(self._top, scores)]
            shown["output_top_logprobs"] = [self._top(item) for item in answer.logprobs]
        return shown

    def _own(self, item: TokenLogprob) -> GenerateLogprob:
        return GenerateLogprob(item.logprob, item.token_id, self._text(item.token_id))

    def _top(self, item: TokenLogprob) -> list[GenerateLogprob]:
        return [GenerateLogprob(logprob, token_id, self._text(token_id)) for token_id, logprob in item.top]

    def _text(self, token_id: int) -> str | None:
        return self.tokenizer.token_bytes[token_id].decode(errors="replace") if self.show_text else None


def _requests(body: GenerateBody, prompts: list[np.ndarray], record_id: str, service: Service) -> list[GenerateRequest]:
    count, limits = len(prompts), service.info.limits
    samplings = body.of_each("sampling_params", body.sampling_params or SamplingBody(), count)
    scored = body.of_each("return_logprob", body.return_logprob, count)
    starts = body.of_each("logprob_start_len", body.logprob_start_len, count)
    tops = body.of_each("top_logprobs_num", body.top_logprobs_num, count)
    adapters = [name and service.find_model(name).adapter for name in body.of_each("lora_path", body.lora_path, count)]
    rids = body.of_each("rid", body.rid or record_id, count)
    if len({1 if one.n is None else one.n for one in samplings}) > 1:
        raise InvalidRequestError("n differs between the prompts: send them in requests of their own", param="n")
    requests = []
    for prompt, sampling, score, start, top, adapter, rid in zip(
        prompts, samplings, scored, starts, tops, adapters, rids, strict=True
    ):
        room = max(min(DEFAULT_MAX_NEW_TOKENS, limits.max_output(len(prompt))), 1)
        params = _params(sampling, service.info.sampling_defaults, room, top if score else None, start)
        requests += make_requests([prompt], params, limits, body, rid, adapter, cache_salt=body.extra_key, num_prompts=count)
    return requests


def _params(sampling: SamplingBody, defaults: SamplingDefaults, room: int, logprobs: int | None, start: int) -> SamplingParams:
    """`room`: tokens to answer where the client doesn't say; `start`: from which position on the prompt is scored, -1: none."""
    min_tokens = sampling.min_new_tokens or 0
    scores = logprobs is not None and start != -1
    return sampling.sampling_params(
        defaults,
        max_tokens=sampling.max_new_tokens if sampling.max_new_tokens is not None else max(room, min_tokens),
        min_tokens=min_tokens,
        seed=sampling.sampling_seed,
        logprobs=logprobs,
        prompt_logprobs=logprobs if scores else None,
        logprob_start_len=start if scores else 0,
        grammar=sampling.constraint(),
    )


def _finish_reason(answer: Answer, eos_ids: frozenset[int]) -> FinishReason | None:
    match answer.finish_reason:
        case None:
            return None
        case "stop":
            last = answer.token_ids[-1]
            by_eos = last if answer.stop_reason is None and last in eos_ids else UNSET  # else the grammar was complete
            return FinishReason("stop", matched=by_eos if answer.stop_reason is None else answer.stop_reason)
        case "length":
            return FinishReason("length", length=len(answer.token_ids))
        case reason:
            return FinishReason(reason, message="the request was aborted")
