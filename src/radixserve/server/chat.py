"""/v1/chat/completions: the next turn of a conversation."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from starlette.requests import Request

from radixserve.errors import InvalidRequestError
from radixserve.messages import Output, TokenLogprob
from radixserve.server.answers import Answer
from radixserve.server.body import read_body
from radixserve.server.generation import Generation
from radixserve.server.prompts import make_requests
from radixserve.server.protocol import ChatBody
from radixserve.server.replies import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    PromptLogprobs,
    Usage,
)
from radixserve.server.request_log import record_of
from radixserve.server.service import Service, service_of
from radixserve.server.token_text import chat_logprobs, prompt_logprobs
from radixserve.text.tokenizer import Tokenizer


async def chat_completions(request: Request) -> Generation:
    """The endpoint."""
    service, record = service_of(request), record_of(request)
    body = await read_body(request, ChatBody, service.config.max_body_bytes)
    service.check_model(body.model)
    body.refuse()
    params = body.sampling_params(max_tokens=_max_tokens(body), logprobs=_logprobs(body), prompt_logprobs=body.prompt_logprobs)
    prompt = await _encode(body, service)
    with _chat_names(body):
        requests = make_requests([prompt], body, params, service.info.limits, record.id)
    include_usage = body.wants_usage
    shape = ChatShape(
        id=f"chatcmpl-{record.id}",
        created=service.now(),
        model=service.model_name,
        tokenizer=service.tokenizer,
        prompt_logprobs=body.prompt_logprobs,
        prompt_ids=prompt.tolist() if body.return_token_ids else UNSET,
        chunk_usage=None if include_usage else UNSET,
    )
    return Generation(service.client, service.metrics, record, shape, requests, params.n, bool(body.stream), include_usage)


@dataclass
class ChatShape:
    """Words the replies. `prompt_logprobs`: alternatives shown for the prompt's tokens. `prompt_ids`: set when ids are sent too."""

    id: str
    created: int
    model: str
    tokenizer: Tokenizer
    prompt_logprobs: int | None
    prompt_ids: list[int] | UnsetType
    chunk_usage: UnsetType | None

    def opening(self, number: int, first: Output) -> ChatChunk:
        """The role, and the token ids of the prompt."""
        choice = ChatChunkChoice(index=number, delta=ChatDelta(content="", role="assistant"))
        return msgspec.structs.replace(self._chunk(choice), prompt_token_ids=self.prompt_ids)

    def chunk(self, number: int, output: Output) -> ChatChunk | None:
        """Text that a choice grew by."""
        ids = list(output.token_ids) if self.prompt_ids is not UNSET and output.token_ids else UNSET
        if not output.text and not output.logprobs and output.finish_reason is None and not ids:
            return None
        choice = ChatChunkChoice(
            index=number,
            delta=ChatDelta(content=output.text) if output.text else ChatDelta(),
            logprobs=self._logprobs(list(output.logprobs)),
            finish_reason=output.finish_reason,
            stop_reason=output.stop_reason,
            token_ids=ids,
        )
        return self._chunk(choice)

    def usage_chunk(self, usage: Usage) -> ChatChunk:
        """The usage."""
        return ChatChunk(id=self.id, created=self.created, model=self.model, choices=[], usage=usage)

    def whole(self, answers: list[Answer], usage: Usage) -> ChatCompletion:
        """All choices."""
        choices = [
            ChatChoice(
                index=number,
                message=ChatMessage(answer.text),
                logprobs=self._logprobs(answer.logprobs),
                finish_reason=answer.finish_reason,
                stop_reason=answer.stop_reason,
                token_ids=answer.token_ids if self.prompt_ids is not UNSET else UNSET,
            )
            for number, answer in enumerate(answers)
        ]
        scores: PromptLogprobs | UnsetType = UNSET
        if self.prompt_logprobs is not None:
            scores = prompt_logprobs(self.tokenizer, answers[0].prompt_logprobs, self.prompt_logprobs)
        return ChatCompletion(
            id=self.id,
            created=self.created,
            model=self.model,
            choices=choices,
            usage=usage,
            prompt_logprobs=scores,
            prompt_token_ids=self.prompt_ids,
        )

    def _logprobs(self, logprobs: list[TokenLogprob]) -> ChatLogprobs | None:
        return chat_logprobs(self.tokenizer, logprobs) if logprobs else None

    def _chunk(self, choice: ChatChunkChoice) -> ChatChunk:
        return ChatChunk(id=self.id, created=self.created, model=self.model, choices=[choice], usage=self.chunk_usage)


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


@contextlib.contextmanager
def _chat_names(body: ChatBody) -> Iterator[None]:
    """Errors name fields as this route's clients write them."""
    names = {"prompt": "messages", "logprobs": "top_logprobs"}
    if body.max_completion_tokens is not None:
        names["max_tokens"] = "max_completion_tokens"
    try:
        yield
    except InvalidRequestError as error:
        name = names.get(error.param or "", error.param)
        message = error.message.replace(f"{error.param} is", f"{name} is")
        raise InvalidRequestError(message, param=name, code=error.code) from None


async def _encode(body: ChatBody, service: Service) -> np.ndarray:
    """The conversation as int32 token ids; templated and tokenized on a thread, off the event loop."""
    if not body.messages:
        raise InvalidRequestError("messages is empty: send at least one message", param="messages")
    num_chars = sum(len(content) for message in body.messages if isinstance(content := message.get("content"), str))
    service.check_text(num_chars, "messages")
    continues = bool(body.continue_final_message)
    return await asyncio.to_thread(
        service.tokenizer.encode_chat,
        body.messages,
        add_generation_prompt=not continues if body.add_generation_prompt is None else body.add_generation_prompt,
        continue_final_message=continues,
        template_kwargs=body.chat_template_kwargs,
    )
