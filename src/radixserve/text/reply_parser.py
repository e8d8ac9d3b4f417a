"""Takes a model's answer apart as it comes: reasoning first, then text and tool calls.

What is found does not depend on how the answer is cut into pieces, nothing of a marker is ever shown, and a beginning of a call
that turns out to be none is given back as text.
"""

import re
from collections.abc import Sequence

from radixserve.text.reply_pieces import Piece, ReasoningPiece, TextPiece
from radixserve.text.reply_reader import Reading, ReplyReader
from radixserve.text.tools.form import ToolForm
from radixserve.text.tools.json_call import Calls

THINK, END_THINK = "<think>", "</think>"
_NOT_SPACE = re.compile(r"\S")
_THINK_STOP = re.compile(r"[<\s]")


class ReplyParser:
    """Parses one answer: `push` what comes, then `finish` once."""

    def __init__(
        self, form: ToolForm | None = None, tool_names: Sequence[str] = (), *, reasoning: bool = False, thinking: bool = False
    ) -> None:
        """`form`: None when no calls are looked for. `reasoning`: a first <think> is; `thinking`: the prompt has opened it."""
        self._reader = ReplyReader()
        self._form = form
        self._names = frozenset(tool_names)
        self._calls = Calls(self._reader, form.new_id if form else str)
        self._reasoning = reasoning
        self._thinking = thinking
        self._plain = form is None and not reasoning
        self._reading = self._read()
        self._text_stop = re.compile(rf"[{re.escape(form.starts) if form else ''}\s]")

    @property
    def has_calls(self) -> bool:
        """Whether there are tool calls and all of them can be made: none was cut off in its arguments."""
        return self._calls.count > 0 and self._calls.are_whole

    def push(self, text: str) -> list[Piece]:
        """Takes the next piece of the answer; returns what is now certain."""
        if self._plain:
            return [TextPiece(text)] if text else []
        self._reader.feed(text)
        return self._advance()

    def finish(self) -> list[Piece]:
        """The answer has ended; returns what was held back."""
        if self._plain:
            return []
        self._reader.end()
        return self._advance()

    def _advance(self) -> list[Piece]:
        next(self._reading, None)
        return self._reader.take_found()

    def _read(self) -> Reading[None]:
        if self._reasoning:
            yield from self._read_reasoning()
        if self._form is None:
            yield from self._read_text()
        else:
            yield from self._read_text_and_calls(self._form)

    def _read_reasoning(self) -> Reading[None]:
        """White space at either end of it, and before the answer, is no part of either."""
        reader = self._reader
        if not self._thinking:
            reader.mark()
            yield from reader.skip_space()
            if not (yield from reader.accept(THINK)):
                reader.rewind()
                return
            reader.release()
        yield from reader.skip_space()
        space = ""
        while char := (yield from reader.peek()):
            if (yield from reader.accept(END_THINK)):
                break
            if char.isspace():
                space += yield from reader.take_run(_NOT_SPACE)
                continue
            if char == "<":
                yield from reader.accept(char)
            text = char if char == "<" else (yield from reader.take_run(_THINK_STOP))
            reader.emit(ReasoningPiece(space + text))
            space = ""
        yield from reader.skip_space()

    def _read_text(self) -> Reading[None]:
        nothing = re.compile(r"(?!)")
        while run := (yield from self._reader.take_run(nothing)):
            self._reader.emit(TextPiece(run))

    def _read_text_and_calls(self, form: ToolForm) -> Reading[None]:
        """White space before, between and after calls is no text; neither is the beginning of another call that was cut off."""
        reader, calls = self._reader, self._calls
        space, fresh = "", True
        while char := (yield from reader.peek()):
            if char.isspace():
                space += yield from reader.take_run(_NOT_SPACE)
                continue
            if char in form.starts:
                reader.mark()
                if (yield from form.read(reader, calls, self._names, fresh)):
                    reader.release()
                    space = ""
                    continue
                if reader.ran_out and calls.count:
                    return
                reader.rewind()
                yield from reader.accept(char)
                text = char
            else:
                text = yield from reader.take_run(self._text_stop)
            reader.emit(TextPiece(space + text))
            space, fresh = "", False
        if space and not calls.count:
            reader.emit(TextPiece(space))
