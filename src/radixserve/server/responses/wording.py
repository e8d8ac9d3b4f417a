"""How a response is worded, whole and as the events of a stream. Both end with the same Response."""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from radixserve.ipc import FinishReason, Output, TokenLogprob
from radixserve.server.answer_parts import AnswerParts, Part, Step, whole_parts
from radixserve.server.answers import Answer, Usage
from radixserve.server.conversation import Turn
from radixserve.server.errors import HttpError, error_body
from radixserve.server.http.sse import event_frame
from radixserve.server.openai.replies import ChatTokenLogprob
from radixserve.server.openai.token_text import chat_logprobs
from radixserve.server.responses import replies
from radixserve.server.responses.replies import Response, Status
from radixserve.text.reply_parser import ReplyParser
from radixserve.text.tokenizer import Tokenizer
from radixserve.text.tools.json_call import read_arguments


@dataclass
class ResponseBuilder:
    """`begun`: the response before its answer. `keep` is told the response when it is done, before the client is."""

    tokenizer: Tokenizer
    begun: Response
    turn: Turn
    keep: Callable[[Response], None]
    _parts: AnswerParts = field(default_factory=AnswerParts)
    """Of a stream, like all that follows."""
    _parser: ReplyParser | None = None
    _reason: FinishReason | None = None
    _logprobs: dict[int, list[ChatTokenLogprob]] = field(default_factory=dict)
    """By part; those of tokens that nothing was said about yet wait for the next text."""
    _waiting: list[ChatTokenLogprob] = field(default_factory=list)
    _num_events: int = 0

    def whole(self, answers: list[Answer], usage: Usage) -> Response:
        """The response."""
        (answer,) = answers
        parser = self.turn.parser()
        parts = whole_parts(parser.push(answer.text) + parser.finish())
        texts = [part.index for part in parts if part.kind == "text"]
        logprobs = {texts[0]: self._worded(answer.logprobs)} if texts else {}
        return self._done(parts, logprobs, answer.finish_reason, usage)

    def news(self, number: int, output: Output, usage: Callable[[], Usage]) -> bytes:
        """Events of one step."""
        events: list[replies.Event] = []
        if self._parser is None:
            self._parser = self.turn.parser()
            events += [replies.Created(response=self.begun), replies.InProgress(response=self.begun)]
        self._reason = output.finish_reason
        self._waiting += self._worded(list(output.logprobs))
        pieces = self._parser.push(output.text)
        if output.finish_reason is not None:
            pieces += self._parser.finish()
        for step in self._parts.push(pieces):
            events += self._events(step, "completed")
        if output.finish_reason is not None:
            for step in self._parts.finish():
                events += self._events(step, _status(output.finish_reason))
        return self._frames(events)

    def end(self, usage: Usage) -> bytes:
        """The whole response."""
        response = self._done(self._parts.parts, self._logprobs, self._reason, usage)
        kind = replies.Completed if response.status == "completed" else replies.Incomplete
        return self._frames([kind(response=response)])

    def failure(self, error: Exception) -> bytes:
        """The response as one that failed."""
        detail = error_body(error).error
        failed = replies.ResponseError("server_error", detail.message)
        return self._frames([replies.Failed(response=msgspec.structs.replace(self.begun, status="failed", error=failed))])

    def _done(
        self, parts: list[Part], logprobs: dict[int, list[ChatTokenLogprob]], reason: FinishReason | None, usage: Usage
    ) -> Response:
        if reason == "abort":
            raise HttpError(409, "the request was aborted before it was done", code="aborted")
        status = _status(reason)
        items = [self._item(part, status if part is parts[-1] else "completed", logprobs) for part in parts]
        response = msgspec.structs.replace(
            self.begun,
            status=status,
            incomplete_details=replies.IncompleteDetails("max_output_tokens") if status == "incomplete" else None,
            output=items,
            usage=self._usage(usage, parts),
        )
        self.keep(response)
        return response

    def _usage(self, usage: Usage, parts: list[Part]) -> replies.ResponseUsage:
        thoughts = [part.text for part in parts if part.kind == "reasoning"]
        return replies.ResponseUsage(
            usage.prompt_tokens,
            replies.InputTokensDetails(usage.cached_tokens),
            usage.completion_tokens,
            replies.OutputTokensDetails(sum(len(self.tokenizer.encode_inner(text)) for text in thoughts)),
            usage.prompt_tokens + usage.completion_tokens,
        )

    def _events(self, step: Step, status: Status) -> list[replies.Event]:
        """`status`: of the part, if this closes it."""
        match step.what:
            case "open":
                return self._opening(step.part)
            case "grow":
                return [self._growth(step.part, step.text)]
        return self._closing(step.part, status)

    def _opening(self, part: Part) -> list[replies.Event]:
        item = self._item(part, "in_progress", {})
        added = replies.ItemAdded(output_index=part.index, item=item)
        if isinstance(item, replies.FunctionCallItem):
            return [added]
        (content,) = item.content
        item.content = []
        return [added, replies.PartAdded(item_id=item.id, output_index=part.index, part=content)]

    def _growth(self, part: Part, text: str) -> replies.Event:
        name = self._name(part)
        match part.kind:
            case "text":
                return replies.TextDelta(item_id=name, output_index=part.index, delta=text, logprobs=self._take_logprobs(part))
            case "reasoning":
                return replies.ReasoningDelta(item_id=name, output_index=part.index, delta=text)
        return replies.ArgumentsDelta(item_id=name, output_index=part.index, delta=text)

    def _closing(self, part: Part, status: Status) -> list[replies.Event]:
        if part.kind == "text":
            self._take_logprobs(part)
        item, at = self._item(part, status, self._logprobs), part.index
        done = replies.ItemDone(output_index=at, item=item)
        match item:
            case replies.FunctionCallItem():
                whole = replies.ArgumentsDone(item_id=item.id, output_index=at, name=part.name, arguments=part.text)
                return [whole, done]
            case replies.MessageItem():
                (content,) = item.content
                text = replies.TextDone(item_id=item.id, output_index=at, text=part.text, logprobs=content.logprobs)
                return [text, replies.PartDone(item_id=item.id, output_index=at, part=content), done]
            case replies.ReasoningItem():
                thought = replies.ReasoningDone(item_id=item.id, output_index=at, text=part.text)
                return [thought, replies.PartDone(item_id=item.id, output_index=at, part=item.content[0]), done]

    def _item(self, part: Part, status: Status, logprobs: dict[int, list[ChatTokenLogprob]]) -> replies.OutputItem:
        name = self._name(part)
        match part.kind:
            case "text":
                return replies.MessageItem(name, status, [replies.OutputText(part.text, logprobs=logprobs.get(part.index, []))])
            case "reasoning":
                return replies.ReasoningItem(name, status, [replies.ReasoningText(part.text)])
        if status == "completed" and read_arguments(part.text) is None:
            status = "incomplete"
        return replies.FunctionCallItem(name, status, part.call_id, part.name, part.text)

    def _name(self, part: Part) -> str:
        prefix = {"text": "msg", "reasoning": "rs", "call": "fc"}[part.kind]
        return f"{prefix}_{self.begun.id.removeprefix('resp_')}_{part.index}"

    def _take_logprobs(self, part: Part) -> list[ChatTokenLogprob]:
        """Those of the tokens that nothing was said about yet become the part's."""
        taken, self._waiting = self._waiting, []
        self._logprobs[part.index] = self._logprobs.get(part.index, []) + taken
        return taken

    def _worded(self, logprobs: list[TokenLogprob]) -> list[ChatTokenLogprob]:
        return chat_logprobs(self.tokenizer, logprobs).content

    def _frames(self, events: list[replies.Event]) -> bytes:
        for event in events:
            event.sequence_number = self._num_events
            self._num_events += 1
        return b"".join(map(event_frame, events))


def _status(reason: FinishReason | None) -> Status:
    return "incomplete" if reason == "length" else "completed"
