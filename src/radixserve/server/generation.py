"""One generation over HTTP: starts it, follows its choices, replies whole or as a stream, ends it when the client leaves.

The first event is awaited before a status goes out, so that a request which the engine refuses gets its 400. A failure after that
is a last frame with the error.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
from starlette.types import Receive, Scope, Send

from radixserve.errors import AnswerError, RadixServeError
from radixserve.ipc import GenerateRequest, Output
from radixserve.observe.metrics import Metrics
from radixserve.server.answers import Answer, Tally, Usage
from radixserve.server.backend import Backend
from radixserve.server.errors import log_reason, named
from radixserve.server.middleware.request_log import RequestRecord
from radixserve.text.answer_check import AnswerCheck, Answers
from radixserve.text.tokenizer import Tokenizer
from radixserve.tokens import token_len

STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]

logger = logging.getLogger(__name__)

LONG_ANSWER = 16_384
"""Characters: longer ones are checked on a thread, others take about a millisecond at most."""

Events = AsyncGenerator[tuple[int, Output], None]


class ReplyBuilder(Protocol):
    """How one route words its reply, whole or as frames of a stream. `number` counts choices through all prompts."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's."""

    def whole(self, answers: list[Answer], usage: Usage) -> msgspec.Struct | Sequence[msgspec.Struct]:
        """The reply that is not streamed."""

    def news(self, number: int, output: Output, usage: Callable[[], Usage]) -> bytes:
        """Frames that tell news of one choice; empty when there is nothing to tell yet. `usage`: tells the usage so far."""

    def end(self, usage: Usage) -> bytes:
        """The frames that end a stream."""

    def failure(self, error: Exception) -> bytes:
        """The last frame of a stream that failed."""


@dataclass
class Generation:
    """An ASGI response; see `Service.generate`. `requests`: one a prompt, with the same number of choices each."""

    client: Backend
    metrics: Metrics
    record: RequestRecord
    reply: ReplyBuilder
    requests: list[GenerateRequest]
    stream: bool
    checks: Sequence[AnswerCheck | None] = ()
    """One a prompt, where answers are held to a schema."""
    n: int = field(init=False)
    tally: Tally = field(init=False)

    def __post_init__(self) -> None:
        self.n = self.requests[0].params.n
        self.tally = Tally([token_len(request.prompt_ids) for request in self.requests], self.n, self.reply.tokenizer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs it. Raises what the engine refused before the reply began."""
        self.record.held.close()
        self.record.finish = "abort"
        try:
            await _while_connected(receive, self._stream(send) if self.stream else self._reply(send))
        except RadixServeError:
            self.record.finish = "error"
            raise
        finally:
            self.record.usage = self.tally.usage()

    async def _reply(self, send: Send) -> None:
        answers = [Answer() for _ in range(len(self.requests) * self.n)]
        async with aclosing(self._events()) as events:
            async for number, output in events:
                answers[number].add(output)
        body = msgspec.json.encode(self.reply.whole(answers, self.tally.usage()))
        self.record.finish = self.tally.finish_reasons()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _stream(self, send: Send) -> None:
        async with aclosing(self._events()) as events:
            first = await anext(events)
            await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
            try:
                last = await self._send_frames(first, events, send)
                self.record.finish = self.tally.finish_reasons()
            except Exception as failure:
                error = named(failure, self.record.names)
                self._note_failure(error)
                last = self.reply.failure(error)
            await send({"type": "http.response.body", "body": last})

    async def _send_frames(self, first: tuple[int, Output], events: Events, send: Send) -> bytes:
        """Sends everything up to the last choice's end; returns what ends the stream."""
        event: tuple[int, Output] | None = first
        while event is not None:
            if frames := self.reply.news(*event, self.tally.usage):
                await send({"type": "http.response.body", "body": frames, "more_body": True})
            event = await anext(events, None)
        return self.reply.end(self.tally.usage())

    async def _events(self) -> Events:
        """The engine's events, counted and timed."""
        events = self.client.generate(self.requests)
        if self.n > 1 and any(request.params.prompt_logprobs is not None for request in self.requests):
            events = _scores_first(events, self.n)
        if any(self.checks):
            events = self._checked(events)
        async with aclosing(events):
            async for number, output in events:
                now = time.monotonic()
                if self.record.first_token is None:
                    self.record.first_token = now
                self._observe(number, output, now)
                self.tally.add(number, output, now)
                yield number, output

    async def _checked(self, events: Events) -> Events:
        """The same. Raises AnswerError in place of the end of an answer that breaks its schema."""
        answers = Answers(self.reply.tokenizer.eos_ids)
        async with aclosing(events):
            async for number, output in events:
                check = self.checks[number // self.n]
                if check is not None and (answer := answers.add(number, output)) is not None:
                    await self._check(check, answer)
                yield number, output

    async def _check(self, check: AnswerCheck, answer: str) -> None:
        try:
            if len(answer) > LONG_ANSWER:
                await asyncio.to_thread(check.check, answer)
            else:
                check.check(answer)
        except AnswerError:
            self.metrics.schema_violations.inc()
            raise

    def _observe(self, number: int, output: Output, now: float) -> None:
        metrics, since = self.metrics, self.tally.last_time(number)
        if since is None:
            metrics.time_to_first_token.observe(now - self.record.begin)
            metrics.request_prompt_tokens.observe(output.prompt_tokens)
        elif output.token_ids:
            for _ in output.token_ids:
                metrics.inter_token_latency.observe((now - since) / len(output.token_ids))
        if output.finish_reason is not None:
            metrics.request_duration.observe(now - self.record.begin)
            metrics.request_generated_tokens.observe(output.completion_tokens)
            if output.admitted_s is not None:
                metrics.queue.observe(output.admitted_s - self.record.begin)
                self.record.admitted = min(output.admitted_s, self.record.admitted or output.admitted_s)

    def _note_failure(self, error: Exception) -> None:
        self.record.finish = "error"
        self.record.error = log_reason(error)
        if not isinstance(error, RadixServeError):
            logger.exception("a stream failed")


async def _scores_first(events: Events, n: int) -> Events:
    """Holds back the news of a prompt's other choices until its first one has news: they bring the scores of the prompt."""
    held: dict[int, list[tuple[int, Output]]] = {}
    scored: set[int] = set()
    async with aclosing(events):
        async for number, output in events:
            prompt, choice = divmod(number, n)
            if choice == 0 and prompt not in scored:
                scored.add(prompt)
                held.setdefault(prompt, []).insert(0, (number, output))
            else:
                held.setdefault(prompt, []).append((number, output))
            if prompt in scored:
                for event in held.pop(prompt):
                    yield event


async def _while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Runs `work` to its end, or cancels it when the client disconnects."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
