"""Workloads of chat messages: recorded conversations, and dialogues whose turns are fed with the served model's answers."""

from pathlib import Path
from typing import Any

import msgspec

from radixserve.bench.workloads import ChatSession, Message, Turn, Workload
from radixserve.errors import ConfigError


class Exchange(msgspec.Struct):
    """A turn of MT-Bench-101. The recorded answer (`bot`) is not used: the served model gives its own."""

    user: str


class Dialogue(msgspec.Struct):
    """A line of MT-Bench-101."""

    history: list[Exchange]


class Conversation(msgspec.Struct):
    """A recorded conversation in the messages of the OpenAI API; `traj` is what tau-bench calls them."""

    messages: list[Message] = []
    traj: list[Message] = []


def mt_bench_101(path: Path, *, num_prompts: int | None, output_len: int, ignore_eos: bool) -> Workload:
    """One session a dialogue: each turn carries the user's turns so far and the answers that the server gave to them."""
    dialogues = _decode(path, Dialogue)[:num_prompts]
    sessions = tuple(
        ChatSession(tuple(Turn(({"role": "user", "content": exchange.user},), output_len) for exchange in dialogue.history))
        for dialogue in dialogues
    )
    return Workload("mt-bench-101", sessions, ignore_eos=ignore_eos)


def openai_messages(path: Path, *, num_prompts: int | None, output_len: int, ignore_eos: bool) -> Workload:
    """One session a conversation, one request for each answer that it records, with the recorded history before it.

    A conversation that does not end with an answer is one more request. The server's answers are not fed back, because what
    follows in the record (the results of tools, say) answers the recorded ones.
    """
    conversations = _decode(path, Conversation | list[Message])[:num_prompts]
    sessions = []
    for conversation in conversations:
        messages = conversation if isinstance(conversation, list) else conversation.messages or conversation.traj
        turns = tuple(Turn(tuple(added), output_len) for added in _split_before_answers(messages))
        if turns:
            sessions.append(ChatSession(turns, recorded=True))
    if not sessions:
        raise ConfigError(f"{path} has no conversation: expected JSON or JSONL of messages, or of objects with `messages`")
    return Workload("openai-messages", tuple(sessions), ignore_eos=ignore_eos)


def _split_before_answers(messages: list[Message]) -> list[list[Message]]:
    """Cuts a record before each assistant message that follows something else; a trailing answer is dropped."""
    parts: list[list[Message]] = []
    added: list[Message] = []
    for message in messages:
        if message.get("role") == "assistant" and added and added[-1].get("role") != "assistant":
            parts.append(added)
            added = []
        added.append(message)
    if added and added[-1].get("role") != "assistant":
        parts.append(added)
    return parts


def _decode(path: Path, kind: Any) -> list[Any]:
    """Reads a JSON array or JSON lines."""
    data = path.read_bytes()
    try:
        if path.suffix == ".json":
            return msgspec.json.decode(data, type=list[kind])
        return [msgspec.json.decode(line, type=kind) for line in data.splitlines() if line.strip()]
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} can't be read as a dataset: {error}") from error
