"""Reads a model's answer that arrives in pieces, for parsers that are written as if all of it were there.

A parser is a generator: where the text that has come does not decide how to go on, it yields, and is resumed when there is more. It
asks for the next characters only, never for how many have come, so what it finds does not depend on how the answer is cut.
"""

import re
from collections.abc import Generator
from typing import TypeVar

from radixserve.text.reply_pieces import Piece, ReasoningPiece, TextPiece, ToolArguments

T = TypeVar("T")
Reading = Generator[None, None, T]
"""A parser that reads a T; run it with `yield from`."""

_SPACE = re.compile(r"[^ \t\r\n]")


class ReplyReader:
    """The text, how far it is read, and the pieces found so far."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._mark: int | None = None
        self._ended = False
        self.ran_out = False
        """Whether the answer ended where more could have followed, since the last `mark`."""
        self._found: list[Piece] = []

    def feed(self, text: str) -> None:
        """More of the answer. What was read is forgotten, unless there may be a way back to it."""
        if self._mark is None:
            self._text, self._at = self._text[self._at :], 0
        self._text += text

    def end(self) -> None:
        """There is no more."""
        self._ended = True

    def emit(self, piece: Piece) -> None:
        """Says what was read. It can't be taken back."""
        self._found.append(piece)

    def take_found(self) -> list[Piece]:
        """What was found since the last call; neighbours of one kind are one piece."""
        merged: list[Piece] = []
        for piece in self._found:
            last = merged[-1] if merged else None
            if isinstance(piece, TextPiece | ReasoningPiece) and isinstance(last, type(piece)):
                merged[-1] = type(piece)(last.text + piece.text)
            elif isinstance(piece, ToolArguments) and isinstance(last, ToolArguments) and last.index == piece.index:
                merged[-1] = ToolArguments(last.index, last.text + piece.text)
            else:
                merged.append(piece)
        self._found = []
        return merged

    def peek(self) -> Reading[str]:
        """The next character; empty at the end."""
        while self._at == len(self._text):
            if self._ended:
                self.ran_out = True
                return ""
            yield
        return self._text[self._at]

    def accept(self, marker: str) -> Reading[bool]:
        """Reads `marker` if it comes next."""
        while not self._text.startswith(marker, self._at):
            if not marker.startswith(self._text[self._at : self._at + len(marker)]):
                return False
            if self._ended:
                self.ran_out = True
                return False
            yield
        self._at += len(marker)
        return True

    def take_run(self, stop: "re.Pattern[str]") -> Reading[str]:
        """Reads on to the first character that `stop` matches, at most what is there; empty where it comes next or all is read.

        How much it returns depends on the cut: use it in a loop that treats all it returns alike.
        """
        if not (yield from self.peek()):
            return ""
        found = stop.search(self._text, self._at)
        begin, self._at = self._at, found.start() if found else len(self._text)
        return self._text[begin : self._at]

    def take_all(self, stop: "re.Pattern[str]") -> Reading[str]:
        """Reads everything up to the first character that `stop` matches, or to the end."""
        text = ""
        while run := (yield from self.take_run(stop)):
            text += run
        return text

    def skip_space(self) -> Reading[None]:
        """Reads white space."""
        yield from self.take_all(_SPACE)

    def mark(self) -> None:
        """Remembers this place, until `rewind` or `release`."""
        self._mark = self._at
        self.ran_out = False

    def rewind(self) -> None:
        """Goes back to the marked place."""
        assert self._mark is not None
        self._at, self._mark = self._mark, None

    def release(self) -> None:
        """Gives up the way back."""
        self._mark = None
