"""Streams of chunks, as OpenAI's completion routes and /generate send them. One that did not fail ends with `[DONE]`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from radixserve.ipc import Output
from radixserve.server.answers import Answer, Usage
from radixserve.server.errors import error_body
from radixserve.server.http.sse import frame
from radixserve.text.tokenizer import Tokenizer

DONE = b"data: [DONE]\n\n"


@dataclass
class ChunkBuilder(ABC):
    """A ReplyBuilder of chunks. `number` counts choices through all prompts."""

    tokenizer: Tokenizer
    _opened: set[int] = field(default_factory=set, init=False)

    @abstractmethod
    def opening(self, number: int, first: Output) -> msgspec.Struct | None:
        """The chunk that comes before a choice's first news, if there is one."""

    @abstractmethod
    def chunk(self, number: int, output: Output) -> msgspec.Struct | None:
        """News of one choice; None when there is nothing to tell yet."""

    @abstractmethod
    def whole(self, answers: list[Answer], usage: Usage) -> msgspec.Struct | Sequence[msgspec.Struct]:
        """The reply that is not streamed."""

    def chunks(self, number: int, output: Output, usage: Callable[[], Usage]) -> list[msgspec.Struct]:
        """A chunk, after the one that opens its choice."""
        opening = None if number in self._opened else self.opening(number, output)
        self._opened.add(number)
        return [chunk for chunk in (opening, self.chunk(number, output)) if chunk is not None]

    def news(self, number: int, output: Output, usage: Callable[[], Usage]) -> bytes:
        """The frames of the chunks."""
        return b"".join(map(frame, self.chunks(number, output, usage)))

    def end(self, usage: Usage) -> bytes:
        """The last frame."""
        return DONE

    def failure(self, error: Exception) -> bytes:
        """A frame that holds an `error`."""
        return frame(error_body(error))
