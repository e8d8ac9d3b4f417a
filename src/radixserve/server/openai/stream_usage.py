"""Where the streams of the completion routes tell the usage."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from radixserve.ipc import Output
from radixserve.server.answers import Usage
from radixserve.server.chunks import ChunkBuilder
from radixserve.server.http.sse import frame
from radixserve.server.openai.replies import CompletionUsage

StreamUsage = Literal["none", "last", "each"]
"""Chunks of a stream that tell the usage: none, one at the end, or each one."""


@dataclass
class UsageChunkBuilder(ChunkBuilder):
    """Chunks of `model`, created at `created` (Unix time in seconds), with the usage where it was asked for."""

    id: str
    created: int
    model: str
    stream_usage: StreamUsage

    @property
    def chunk_usage(self) -> UnsetType | None:
        """The usage in a chunk that doesn't tell it: null where another does."""
        return UNSET if self.stream_usage == "none" else None

    @abstractmethod
    def usage_chunk(self, usage: CompletionUsage) -> msgspec.Struct:
        """The last chunk, without choices."""

    def chunks(self, number: int, output: Output, usage: Callable[[], Usage]) -> list[msgspec.Struct]:
        """The chunks, with the usage so far if each has it."""
        chunks = super().chunks(number, output, usage)
        if self.stream_usage != "each":
            return chunks
        return [msgspec.structs.replace(chunk, usage=CompletionUsage.of(usage())) for chunk in chunks]

    def end(self, usage: Usage) -> bytes:
        """The usage, if it was asked for."""
        last = frame(self.usage_chunk(CompletionUsage.of(usage))) if self.stream_usage != "none" else b""
        return last + super().end(usage)
