"""The parts of an answer, as APIs that number them word it: stretches of text, of reasoning, and tool calls, one after the other.

A whole answer and a stream come from the same steps, so that they say the same.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from radixserve.text.reply_pieces import Piece, ReasoningPiece, TextPiece, ToolArguments, ToolCallStart

Kind = Literal["text", "reasoning", "call"]


@dataclass
class Part:
    """`text`: of a call, its arguments so far, which are one JSON object at its end."""

    index: int
    kind: Kind
    text: str = ""
    call_id: str = ""
    name: str = ""


@dataclass(frozen=True)
class Step:
    """A part opens, grows by `text`, or is closed."""

    what: Literal["open", "grow", "close"]
    part: Part
    text: str = ""


@dataclass
class AnswerParts:
    """Joins the pieces of one answer. `push` what comes, then `finish` once; `parts` are those found so far."""

    parts: list[Part] = field(default_factory=list)
    _open: Part | None = None

    def push(self, pieces: Iterable[Piece]) -> Iterator[Step]:
        """What these pieces do."""
        for piece in pieces:
            match piece:
                case TextPiece():
                    yield from self._grow("text", piece.text)
                case ReasoningPiece():
                    yield from self._grow("reasoning", piece.text)
                case ToolCallStart():
                    yield from self._begin("call", piece.id, piece.name)
                case ToolArguments():
                    yield from self._grow("call", piece.text)

    def finish(self) -> Iterator[Step]:
        """The answer has ended. One without anything is one empty text, so that clients find what they look for."""
        if not self.parts:
            yield from self._begin("text")
        yield from self._close()

    def _grow(self, kind: Kind, text: str) -> Iterator[Step]:
        if self._open is None or self._open.kind != kind:
            yield from self._begin(kind)
        assert self._open is not None
        self._open.text += text
        yield Step("grow", self._open, text)

    def _begin(self, kind: Kind, call_id: str = "", name: str = "") -> Iterator[Step]:
        yield from self._close()
        self._open = Part(len(self.parts), kind, call_id=call_id, name=name)
        self.parts.append(self._open)
        yield Step("open", self._open)

    def _close(self) -> Iterator[Step]:
        if self._open is not None:
            part, self._open = self._open, None
            yield Step("close", part)


def whole_parts(pieces: Iterable[Piece]) -> list[Part]:
    """The parts of a whole answer."""
    parts = AnswerParts()
    for _ in parts.push(pieces):
        pass
    for _ in parts.finish():
        pass
    return parts.parts
