"""Whether a finished answer keeps to the schemas that its grammar was made of: its text, and the arguments of its calls."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from radixserve.errors import AnswerError
from radixserve.ipc import Output
from radixserve.sampling_params import Grammar
from radixserve.text.grammar_sources import Tag, read_schema, read_structural_tag
from radixserve.text.reply_parser import ReplyParser
from radixserve.text.reply_pieces import Piece, TextPiece, ToolArguments, ToolCallStart
from radixserve.text.schemas.schema_check import SchemaCheck
from radixserve.text.tools.lark import ANY_OBJECT


class TextCheck(Protocol):
    """What a text is checked by."""

    def check(self, text: str) -> None:
        """Raises AnswerError."""


@dataclass(frozen=True)
class AnswerCheck:
    """`text`: None where any will do; `arguments`: of calls, by tool; `parser`: takes an answer apart that may hold calls."""

    text: TextCheck | None
    arguments: Mapping[str, SchemaCheck] = field(default_factory=dict)
    parser: Callable[[], ReplyParser] | None = None

    def check(self, answer: str) -> None:
        """Raises AnswerError for an answer that breaks a schema."""
        text, calls = _parts(self.parser, answer)
        for name, arguments in calls:
            if name in self.arguments:
                self.arguments[name].check(arguments)
        if self.text is not None and not calls:
            self.text.check(text)


def text_check(grammar: Grammar | None) -> TextCheck | None:
    """The check of a text that is held to `grammar`; None where there is no schema in it. Raises InvalidRequestError."""
    match grammar.kind if grammar else None:
        case "json_object":
            return SchemaCheck(ANY_OBJECT, "the json_object")
        case "json_schema":
            assert grammar is not None
            return SchemaCheck(read_schema(grammar.source))
        case "structural_tag":
            assert grammar is not None
            return TagCheck(read_structural_tag(grammar.source))
    return None


def checks_of(grammars: Iterable[Grammar | None]) -> list[AnswerCheck | None]:
    """The checks of answers that are each held to one of `grammars` and hold nothing else. Raises InvalidRequestError."""
    made: dict[Grammar | None, AnswerCheck | None] = {}
    checks = []
    for grammar in grammars:
        if grammar not in made:
            text = text_check(grammar)
            made[grammar] = AnswerCheck(text) if text is not None else None
        checks.append(made[grammar])
    return checks


class Answers:
    """Answers that come in pieces, by `key`. `eos_ids`: tokens that end an answer of this model."""

    def __init__(self, eos_ids: frozenset[int]) -> None:
        self._eos_ids = eos_ids
        self._texts: dict[int | str, str] = {}

    def add(self, key: int | str, output: Output) -> str | None:
        """Takes the next piece of one. Returns all of it when it has ended by its grammar: nothing cut it."""
        text = self._texts[key] = self._texts.get(key, "") + output.text
        by_own_end = output.stop_reason is None or output.stop_reason in self._eos_ids
        return text if output.finish_reason == "stop" and by_own_end else None


class TagCheck:
    """The documents between the tags of a text."""

    def __init__(self, tags: list[Tag]) -> None:
        self._checks = {tag.begin: SchemaCheck(tag.schema, tag.subject) for tag in tags}

    def check(self, text: str) -> None:
        """Raises AnswerError for one that breaks its schema."""
        at = 0
        while found := self._next(text, at):
            place, begin = found
            start = place + len(begin)
            try:
                _, at = json.JSONDecoder().raw_decode(text, start)
            except (ValueError, RecursionError):
                raise AnswerError(f"the answer has no JSON after {begin!r:.60}, as its structural_tag demands") from None
            self._checks[begin].check(text[start:at])

    def _next(self, text: str, at: int) -> tuple[int, str] | None:
        """Where the next tag begins, and its beginning: of several the longest."""
        found = [(text.find(begin, at), begin) for begin in self._checks]
        return min(((place, begin) for place, begin in found if place >= 0), key=lambda it: (it[0], -len(it[1])), default=None)


def _parts(parser: Callable[[], ReplyParser] | None, answer: str) -> tuple[str, list[tuple[str, str]]]:
    """The text of an answer, and names and arguments of its calls."""
    pieces: list[Piece] = [TextPiece(answer)]
    if parser is not None:
        parsing = parser()
        pieces = parsing.push(answer) + parsing.finish()
    names = {piece.index: piece.name for piece in pieces if isinstance(piece, ToolCallStart)}
    arguments = dict.fromkeys(names, "")
    for piece in pieces:
        if isinstance(piece, ToolArguments):
            arguments[piece.index] += piece.text
    text = "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))
    return text, [(name, arguments[index]) for index, name in names.items()]
