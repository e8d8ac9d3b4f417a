"""/v1/messages, as Anthropic's clients ask for it, and /v1/messages/count_tokens."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from radixserve.ipc import FinishReason, Output
from radixserve.server.answer_parts import AnswerParts, Part, Step, whole_parts
from radixserve.server.answers import Answer, Usage
from radixserve.server.anthropic import replies
from radixserve.server.anthropic.body import CountBody, MessagesBody
from radixserve.server.anthropic.errors import message_error
from radixserve.server.conversation import Turn, prepare
from radixserve.server.errors import HttpError
from radixserve.server.generation import Generation
from radixserve.server.http.body import read_body
from radixserve.server.http.sse import event_frame
from radixserve.server.middleware.request_log import RequestRecord, record_of
from radixserve.server.prompts import make_requests
from radixserve.server.service import Service, json_reply, offload, service_of
from radixserve.text.reply_parser import ReplyParser
from radixserve.text.tokenizer import Tokenizer
from radixserve.text.tools.json_call import read_arguments

NAMES = {"prompt": "messages", "stop": "stop_sequences"}
"""What this route calls the fields of a request to the engine."""

ID_PREFIX = "msg_"
"""Of a reply's id, before the HTTP request's."""


async def messages(request: Request) -> Generation:
    """The next message of a conversation."""
    body = await read_body(request, MessagesBody)
    return await offload(request, lambda: _begin(body, service_of(request), record_of(request)))


def _begin(body: MessagesBody, service: Service, record: RequestRecord) -> Generation:
    served = service.find_model(body.model)
    body.refuse()
    record.names = NAMES | {"grammar": "output_config" if body.output_config and body.output_config.format else "tools"}
    turn = prepare(body.to_conversation(), service)
    room = max(service.info.limits.max_output(len(turn.prompt_ids)), 1)
    params = body.sampling_params(
        service.info.sampling_defaults,
        max_tokens=min(body.max_tokens, room),
        stop=tuple(body.stop_sequences or ()),
        grammar=turn.grammar,
        skip_special_tokens=turn.skip_special_tokens,
    )
    requests = make_requests([turn.prompt_ids], params, service.info.limits, body, record.id, served.adapter)
    reply = MessageBuilder(ID_PREFIX + record.id, served.name, service.tokenizer, turn, full=body.max_tokens > room)
    return service.generate(record, reply, requests, stream=bool(body.stream), checks=[turn.check])


async def count_tokens(request: Request) -> Response:
    """How many tokens a prompt has, cached or not."""
    body = await read_body(request, CountBody)
    return await offload(request, lambda: _count(body, service_of(request), record_of(request)))


def _count(body: CountBody, service: Service, record: RequestRecord) -> Response:
    service.find_model(body.model)
    body.refuse()
    record.names = NAMES
    turn = prepare(body.to_conversation(), service)
    return json_reply(replies.TokenCount(len(turn.prompt_ids)))


@dataclass
class MessageBuilder:
    """Words the reply. `full`: the client allows more tokens than there is room for."""

    id: str
    model: str
    tokenizer: Tokenizer
    turn: Turn
    full: bool
    _parts: AnswerParts = field(default_factory=AnswerParts)
    """Of a stream."""
    _parser: ReplyParser | None = None
    _last: Output | None = None

    def whole(self, answers: list[Answer], usage: Usage) -> replies.MessageReply:
        """The message."""
        (answer,) = answers
        parser = self.turn.parser()
        parts = whole_parts(parser.push(answer.text) + parser.finish())
        ending = self._ending(answer.finish_reason, answer.stop_reason, parser)
        return self._message([_block(part) for part in parts], ending, usage)

    def news(self, number: int, output: Output, usage: Callable[[], Usage]) -> bytes:
        """Events of one step."""
        events: list[msgspec.Struct] = []
        if self._parser is None:
            self._parser = self.turn.parser()
            events += [replies.MessageStart(self._message([], replies.Ending(None, None), usage())), replies.Ping()]
        self._last = output
        events += map(_event, self._parts.push(self._parser.push(output.text)))
        if output.finish_reason is not None:
            events += map(_event, self._finish(self._parser))
        return b"".join(map(event_frame, events))

    def end(self, usage: Usage) -> bytes:
        """Why it ended, and the usage."""
        assert self._last is not None
        assert self._parser is not None
        ending = self._ending(self._last.finish_reason, self._last.stop_reason, self._parser)
        return event_frame(replies.MessageDelta(ending, _usage(usage))) + event_frame(replies.MessageStop())

    def failure(self, error: Exception) -> bytes:
        """An event "error"."""
        return event_frame(message_error(error))

    def _finish(self, parser: ReplyParser) -> Iterator[Step]:
        yield from self._parts.push(parser.finish())
        yield from self._parts.finish()

    def _ending(self, reason: FinishReason | None, stop: str | int | None, parser: ReplyParser) -> replies.Ending:
        if reason == "abort":
            raise HttpError(409, "the request was aborted before it was done", code="aborted")
        if reason == "length":
            return replies.Ending("model_context_window_exceeded" if self.full else "max_tokens", None)
        if isinstance(stop, str):
            return replies.Ending("stop_sequence", stop)
        return replies.Ending("tool_use" if parser.has_calls else "end_turn", None)

    def _message(self, content: list[replies.ContentBlock], ending: replies.Ending, usage: Usage) -> replies.MessageReply:
        return replies.MessageReply(
            id=self.id,
            model=self.model,
            content=content,
            stop_reason=ending.stop_reason,
            stop_sequence=ending.stop_sequence,
            usage=_usage(usage),
        )


def _usage(usage: Usage) -> replies.MessageUsage:
    return replies.MessageUsage(usage.prompt_tokens - usage.cached_tokens, usage.completion_tokens, usage.cached_tokens)


def _event(step: Step) -> msgspec.Struct:
    part = step.part
    match step.what:
        case "open":
            return replies.BlockStart(part.index, _block(part))
        case "grow":
            return replies.BlockDelta(part.index, _DELTAS[part.kind](step.text))
    return replies.BlockStop(part.index)


_DELTAS: dict[str, Callable[[str], replies.TextDelta | replies.ThinkingDelta | replies.InputDelta]] = {
    "text": replies.TextDelta,
    "reasoning": replies.ThinkingDelta,
    "call": replies.InputDelta,
}


def _block(part: Part) -> replies.ContentBlock:
    match part.kind:
        case "text":
            return replies.TextBlock(part.text)
        case "reasoning":
            return replies.ThinkingBlock(part.text)
    return replies.ToolUseBlock(part.call_id, part.name, read_arguments(part.text) or {})
