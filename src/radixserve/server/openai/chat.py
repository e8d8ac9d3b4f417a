"""/v1/chat/completions: the next turn of a conversation."""

from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request

from radixserve.errors import InvalidRequestError
from radixserve.ipc import FinishReason, Output, TokenLogprob
from radixserve.sampling_defaults import SamplingDefaults
from radixserve.sampling_params import SamplingParams
from radixserve.server.answers import Answer, Usage
from radixserve.server.constraints import Constraint
from radixserve.server.conversation import Turn, prepare
from radixserve.server.generation import Generation
from radixserve.server.http.body import read_body
from radixserve.server.middleware.request_log import RequestRecord, record_of
from radixserve.server.openai.bodies import ChatBody
from radixserve.server.openai.chat_pieces import chat_delta, chat_message
from radixserve.server.openai.replies import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatFinishReason,
    ChatLogprobs,
    CompletionUsage,
    PromptLogprobs,
)
from radixserve.server.openai.stream_usage import UsageChunkBuilder
from radixserve.server.openai.token_text import chat_logprobs, prompt_logprobs
from radixserve.server.prompts import make_requests
from radixserve.server.service import Service, offload, service_of
from radixserve.text.reply_parser import ReplyParser

ID_PREFIX = "chatcmpl-"
"""Of a reply's id, before the HTTP request's."""


async def chat_completions(request: Request) -> Generation:
    """The endpoint."""
    body = await read_body(request, ChatBody)
    return await offload(request, lambda: _begin(body, service_of(request), record_of(request)))


def _begin(body: ChatBody, service: Service, record: RequestRecord) -> Generation:
    served = service.find_model(body.model)
    body.refuse()
    constraint = body.constraint()
    record.names = _names(body, constraint)
    turn = prepare(body.to_conversation(constraint.grammar if constraint else None), service)
    params = _params(body, turn, service.info.sampling_defaults)
    requests = make_requests([turn.prompt_ids], params, service.info.limits, body, record.id, served.adapter)
    reply = ChatBuilder(
        id=ID_PREFIX + record.id,
        created=service.now(),
        model=served.name,
        tokenizer=service.tokenizer,
        prompt_logprobs=body.prompt_logprobs,
        prompt_ids=turn.prompt_ids.tolist() if body.return_token_ids else UNSET,
        stream_usage=body.stream_usage,
        turn=turn,
    )
    return service.generate(record, reply, requests, stream=bool(body.stream), checks=[turn.check])


@dataclass
class ChatBuilder(UsageChunkBuilder):
    """Words the replies. `prompt_logprobs`: alternatives shown for the prompt's tokens. `prompt_ids`: set when ids are sent too."""

    prompt_logprobs: int | None
    prompt_ids: list[int] | UnsetType
    turn: Turn
    _parsers: dict[int, ReplyParser] = field(default_factory=dict)
    """Of the choices of a stream."""

    def opening(self, number: int, first: Output) -> ChatChunk:
        """The role, and the token ids of the prompt."""
        self._parsers[number] = self.turn.parser()
        choice = ChatChunkChoice(index=number, delta=ChatDelta(content="", role="assistant"))
        return msgspec.structs.replace(self._chunk(choice), prompt_token_ids=self.prompt_ids)

    def chunk(self, number: int, output: Output) -> ChatChunk | None:
        """What a choice grew by."""
        parser = self._parsers[number]
        pieces = parser.push(output.text)
        ids = list(output.token_ids) if self.prompt_ids is not UNSET and output.token_ids else UNSET
        if output.finish_reason is not None:
            pieces += parser.finish()
        elif not pieces and not output.logprobs and not ids:
            return None
        choice = ChatChunkChoice(
            index=number,
            delta=chat_delta(pieces),
            logprobs=self._logprobs(list(output.logprobs)),
            finish_reason=_finish_reason(output.finish_reason, parser),
            stop_reason=output.stop_reason,
            token_ids=ids,
        )
        return self._chunk(choice)

    def usage_chunk(self, usage: CompletionUsage) -> ChatChunk:
        """The usage."""
        return ChatChunk(id=self.id, created=self.created, model=self.model, choices=[], usage=usage)

    def whole(self, answers: list[Answer], usage: Usage) -> ChatCompletion:
        """All choices."""
        choices = [self._choice(number, answer) for number, answer in enumerate(answers)]
        scores: PromptLogprobs | UnsetType = UNSET
        if self.prompt_logprobs is not None:
            scores = prompt_logprobs(self.tokenizer, answers[0].prompt_logprobs, self.prompt_logprobs)
        return ChatCompletion(
            id=self.id,
            created=self.created,
            model=self.model,
            choices=choices,
            usage=CompletionUsage.of(usage),
            prompt_logprobs=scores,
            prompt_token_ids=self.prompt_ids,
        )

    def _choice(self, number: int, answer: Answer) -> ChatChoice:
        parser = self.turn.parser()
        return ChatChoice(
            index=number,
            message=chat_message(parser.push(answer.text) + parser.finish()),
            logprobs=self._logprobs(answer.logprobs),
            finish_reason=_finish_reason(answer.finish_reason, parser),
            stop_reason=answer.stop_reason,
            token_ids=answer.token_ids if self.prompt_ids is not UNSET else UNSET,
        )

    def _logprobs(self, logprobs: list[TokenLogprob]) -> ChatLogprobs | None:
        return chat_logprobs(self.tokenizer, logprobs) if logprobs else None

    def _chunk(self, choice: ChatChunkChoice) -> ChatChunk:
        return ChatChunk(id=self.id, created=self.created, model=self.model, choices=[choice], usage=self.chunk_usage)


def _params(body: ChatBody, turn: Turn, defaults: SamplingDefaults) -> SamplingParams:
    special = {} if turn.skip_special_tokens else {"skip_special_tokens": False}
    return body.sampling_params(
        defaults,
        max_tokens=_max_tokens(body),
        logprobs=_logprobs(body),
        prompt_logprobs=body.prompt_logprobs,
        grammar=turn.grammar,
        **special,
    )


def _finish_reason(reason: FinishReason | None, parser: ReplyParser) -> ChatFinishReason | None:
    """An answer whose calls are whole waits for their results; in one that a stop string cut off, a call may not be."""
    return "tool_calls" if reason == "stop" and parser.has_calls else reason


def _max_tokens(body: ChatBody) -> int | None:
    """None: the rest of the context."""
    old, new = body.max_tokens, body.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise InvalidRequestError(
            f"max_tokens is {old} and max_completion_tokens is {new}: they mean the same, send one", param="max_completion_tokens"
        )
    return new if new is not None else old


def _logprobs(body: ChatBody) -> int | None:
    if body.logprobs:
        return body.top_logprobs or 0
    if body.top_logprobs:
        raise InvalidRequestError(f"top_logprobs is {body.top_logprobs}: needs logprobs set to true", param="top_logprobs")
    return None


def _names(body: ChatBody, constraint: Constraint | None) -> dict[str, str]:
    """What this route's clients call the fields of a request to the engine."""
    names = {"prompt": "messages", "logprobs": "top_logprobs"}
    if constraint or body.tools:
        names["grammar"] = constraint.field if constraint else "tools"
    if body.max_completion_tokens is not None:
        names["max_tokens"] = "max_completion_tokens"
    return names
