"""Streams of chunks, as OpenAI's completion routes and /generate send them. One that did not fail ends with `[DONE]`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from radixserve.ipc import Output
from radixserve.server.answers import Answer
from radixserve.server.errors import error_body
from radixserve.server.http.sse import frame
from radixserve.server.openai.replies import Usage
from radixserve.text.tokenizer import Tokenizer

DONE = b"data: [DONE]\n\n"


class Shape(Protocol):
    """How one route words its chunks and whole replies. `number` counts choices through all prompts."""

    tokenizer: Tokenizer

    def opening(self, number: int, first: Output) -> msgspec.Struct | None:
        """The chunk that comes before a choice's first news, if there is one."""

    def chunk(self, number: int, output: Output) -> msgspec.Struct | None:
        """News of one choice; None when there is nothing to tell yet."""

    def whole(self, answers: list[Answer], usage: Usage) -> msgspec.Struct | Sequence[msgspec.Struct]:
        """The reply that is not streamed."""


@dataclass
class Chunks:
    """A Reply of chunks. `each`: every chunk has the usage so far. `usage_chunk` words the last, without choices, if any."""

    shape: Shape
    each: bool = False
    usage_chunk: Callable[[Usage], msgspec.Struct] | None = None
    _opened: set[int] = field(default_factory=set)

    @property
    def tokenizer(self) -> Tokenizer:
        """The shape's."""
        return self.shape.tokenizer

    def whole(self, answers: list[Answer], usage: Usage) -> msgspec.Struct | Sequence[msgspec.Struct]:
        """As the shape words it."""
        return self.shape.whole(answers, usage)

    def news(self, number: int, output: Output, usage: Callable[[], Usage]) -> bytes:
        """A chunk, after the one that opens its choice."""
        opening = None if number in self._opened else self.shape.opening(number, output)
        self._opened.add(number)
        chunks = [chunk for chunk in (opening, self.shape.chunk(number, output)) if chunk is not None]
        if self.each:
            chunks = [msgspec.structs.replace(chunk, usage=usage()) for chunk in chunks]
        return b"".join(map(frame, chunks))

    def end(self, usage: Usage) -> bytes:
        """The usage, if it was asked for."""
        return frame(self.usage_chunk(usage)) + DONE if self.usage_chunk is not None else DONE

    def failure(self, error: Exception) -> bytes:
        """A frame that holds an `error`."""
        return frame(error_body(error))
