"""Pieces of an answer in the words of OpenAI's chat API: as a whole message, or as what a chunk of a stream adds."""

from collections.abc import Sequence

from msgspec import UNSET

from radixserve.server.openai.replies import ChatDelta, ChatMessage, FunctionCall, ToolCall, ToolCallDelta
from radixserve.text.reply_pieces import Piece, ReasoningPiece, TextPiece, ToolArguments, ToolCallStart


def chat_delta(pieces: Sequence[Piece]) -> ChatDelta:
    """What these pieces add."""
    calls: list[ToolCallDelta] = []
    for piece in pieces:
        if isinstance(piece, ToolCallStart):
            calls.append(ToolCallDelta(piece.index, FunctionCall("", piece.name), piece.id, "function"))
        elif isinstance(piece, ToolArguments):
            last = calls.pop() if calls and calls[-1].index == piece.index else ToolCallDelta(piece.index, FunctionCall(""))
            function = FunctionCall(last.function.arguments + piece.text, last.function.name)
            calls.append(ToolCallDelta(piece.index, function, last.id, last.type))
    return ChatDelta(
        content=_joined(pieces, TextPiece) or UNSET,
        reasoning_content=_joined(pieces, ReasoningPiece) or UNSET,
        tool_calls=calls or UNSET,
    )


def chat_message(pieces: Sequence[Piece]) -> ChatMessage:
    """All pieces of an answer."""
    starts = [piece for piece in pieces if isinstance(piece, ToolCallStart)]
    calls = [ToolCall(start.id, FunctionCall(_arguments(pieces, start.index), start.name)) for start in starts]
    content = _joined(pieces, TextPiece)
    return ChatMessage(
        content=None if calls and not content else content,
        reasoning_content=_joined(pieces, ReasoningPiece) or UNSET,
        tool_calls=calls or UNSET,
    )


def _joined(pieces: Sequence[Piece], kind: type[TextPiece] | type[ReasoningPiece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, kind))


def _arguments(pieces: Sequence[Piece], index: int) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, ToolArguments) and piece.index == index)
