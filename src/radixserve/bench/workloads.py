"""What a benchmark asks: sessions of turns, with prompts as token ids, as text or as chat messages.

A workload is data. The same options give the same workload, on any machine; whoever runs it decides when each session starts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from radixserve.bench.record import Record

Message = dict[str, Any]
Messages = tuple[Message, ...]
Prompt = bytes | str | Messages
Content = TypeVar("Content", bytes, str, Messages)


@dataclass(frozen=True)
class Turn(Generic[Content]):
    """What a turn adds to its session's history, and how many tokens it asks for."""

    content: Content
    max_tokens: int


@dataclass(frozen=True)
class TokenSession:
    """Requests that follow one another: each is sent when the one before is answered, and carries the whole history.

    Contents are token ids as native int32 bytes (see `radixserve.req.token_bytes`). Answers are appended as the ids that were
    generated, so nothing is ever tokenized a second time.
    """

    turns: tuple[Turn[bytes], ...]

    def prompt(self, answers: Sequence[Record]) -> bytes:
        """The prompt of turn number len(answers), given the answers to all turns before it."""
        history = self.turns[0].content
        for answer, turn in zip(answers, self.turns[1:], strict=False):
            assert answer.output_ids is not None, "a session of tokens needs the ids of its answers"
            history += answer.output_ids + turn.content
        return history


@dataclass(frozen=True)
class ChatSession:
    """The same with messages. Answers are appended as text, as chat clients do."""

    turns: tuple[Turn[Messages], ...]
    recorded: bool = False
    """The turns hold recorded answers; the answers of this run are not fed back."""

    def prompt(self, answers: Sequence[Record]) -> Messages:
        """The prompt of turn number len(answers), given the answers to all turns before it."""
        history = self.turns[0].content
        for answer, turn in zip(answers, self.turns[1:], strict=False):
            if not self.recorded:
                history += ({"role": "assistant", "content": answer.text},)
            history += turn.content
        return history


@dataclass(frozen=True)
class TextSession:
    """Whole prompts as plain text, one a turn: nothing is appended, neither the turns before nor their answers."""

    turns: tuple[Turn[str], ...]

    def prompt(self, answers: Sequence[Record]) -> str:
        """The prompt of turn number len(answers)."""
        return self.turns[len(answers)].content


Session = TokenSession | TextSession | ChatSession


@dataclass(frozen=True)
class Workload:
    """Sessions in order of arrival."""

    name: str
    sessions: tuple[Session, ...]
    ignore_eos: bool = True
    """Every answer has exactly its turn's max_tokens; otherwise at most as many."""
    note: str = ""
    """What a reader of the results must know, such as what was left out."""

    @property
    def num_requests(self) -> int:
        return sum(len(session.turns) for session in self.sessions)
