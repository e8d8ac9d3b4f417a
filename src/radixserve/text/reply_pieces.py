"""What a model's answer to a chat consists of, piece by piece as it comes: text, reasoning, tool calls.

Every chat route words its replies from these, whatever the model's own form is.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextPiece:
    """More of the answer itself."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPiece:
    """More of what the model thought before it answered."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """The model begins its call number `index` (from 0), of the tool `name`."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolArguments:
    """More of the arguments of call `index`: joined, they are one JSON object."""

    index: int
    text: str


Piece = TextPiece | ReasoningPiece | ToolCallStart | ToolArguments
