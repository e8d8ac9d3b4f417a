"""Keeps control markers in what clients send from acting as control tokens.

A chat template writes markers such as <|im_end|> around the messages. The same characters inside a message are only characters.
So before a template runs, each marker in the client's strings is replaced by a placeholder; afterwards the placeholders become
the marker's characters again, in segments that are encoded as plain text.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

_FENCE = "\ufdd0"
"""A noncharacter of Unicode, which texts don't hold. One in a client's text can at worst become a marker as plain text."""


class Segment(NamedTuple):
    """A stretch of a rendered chat. In a `plain` one markers are only characters."""

    text: str
    plain: bool


class ControlMarkers:
    """The markers of one vocabulary."""

    def __init__(self, markers: Iterable[str]) -> None:
        self._markers = sorted(filter(None, markers), key=lambda marker: (-len(marker), marker))
        self._numbers = {marker: number for number, marker in enumerate(self._markers)}
        self._marker = re.compile("(" + "|".join(map(re.escape, self._markers)) + ")") if self._markers else re.compile("(?!)()")
        self._placeholder = re.compile(f"{_FENCE}([0-9]+){_FENCE}")

    def shield(self, value: Any) -> Any:
        """A copy of a JSON value with the markers in all its strings, keys included, replaced by placeholders."""
        if isinstance(value, str):
            return self._marker.sub(lambda match: f"{_FENCE}{self._numbers[match[1]]}{_FENCE}", value)
        if isinstance(value, dict):
            return {self.shield(key): self.shield(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.shield(item) for item in value]
        return value

    def segments(self, rendered: str) -> list[Segment]:
        """Cuts a rendered chat so that a piece with placeholders, from marker to marker, stands alone; the rest stays together."""
        if not self._placeholder.search(rendered):
            return [Segment(rendered, plain=False)]
        segments: list[Segment] = []
        for piece in filter(None, self._marker.split(rendered)):
            text, shielded = self._placeholder.subn(self._restore, piece)
            if segments and not shielded and not segments[-1].plain:
                text = segments.pop().text + text
            segments.append(Segment(text, plain=bool(shielded)))
        return segments

    def _restore(self, match: re.Match[str]) -> str:
        number = int(match[1]) if len(match[1]) < 10 else len(self._markers)
        return self._markers[number] if number < len(self._markers) else match[0]
