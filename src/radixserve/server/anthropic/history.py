"""The turns of an Anthropic conversation as OpenAI's messages, which chat templates expect."""

from collections.abc import Sequence
from typing import Any

from radixserve.errors import InvalidRequestError

Content = str | list[dict[str, Any]]


def read_history(turns: Sequence[tuple[str, Content]]) -> list[dict[str, Any]]:
    """`turns`: role and content. Results of tools become messages of their own, before what else their turn says.

    Raises InvalidRequestError for a kind of content that isn't supported.
    """
    messages: list[dict[str, Any]] = []
    for index, (role, content) in enumerate(turns):
        where = f"messages[{index}].content"
        if isinstance(content, str):
            messages.append({"role": role, "content": content})
        elif role == "assistant":
            messages.append(_assistant(content, where))
        else:
            messages += _others(role, content, where)
    return messages


def read_text(content: Content, where: str) -> Content:
    """Text, or blocks of it, as OpenAI's parts. Raises InvalidRequestError for anything else."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _wrong(where, "must be text or a list of blocks")
    return [_part(block, f"{where}[{index}]") for index, block in enumerate(content)]


def _others(role: str, content: list[dict[str, Any]], where: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for index, block in enumerate(content):
        here = f"{where}[{index}]"
        if block.get("type") == "tool_result":
            result = read_text(block.get("content") or "", f"{here}.content")
            results.append({"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": result})
        else:
            parts.append(_part(block, here))
    return [*results, {"role": role, "content": parts}] if parts or not results else results


def _assistant(content: list[dict[str, Any]], where: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    for index, block in enumerate(content):
        match block.get("type"):
            case "thinking":
                message["reasoning_content"] = message.get("reasoning_content", "") + _thought(block, f"{where}[{index}]")
            case "redacted_thinking":
                pass  # nobody here can read it
            case "tool_use":
                message.setdefault("tool_calls", []).append(_call(block, f"{where}[{index}]"))
            case _:
                message["content"] += _part(block, f"{where}[{index}]")["text"]
    return message


def _thought(block: dict[str, Any], where: str) -> str:
    thought = block.get("thinking")
    if not isinstance(thought, str):
        raise _wrong(where, "must have a text as thinking")
    return thought


def _call(block: dict[str, Any], where: str) -> dict[str, Any]:
    name, arguments = block.get("name"), block.get("input")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise _wrong(where, "must have a name and an object as input")
    return {"id": block.get("id"), "type": "function", "function": {"name": name, "arguments": arguments}}


def _part(block: Any, where: str) -> dict[str, Any]:
    if not isinstance(block, dict):
        raise _wrong(where, "must be an object with a type")
    kind, text = block.get("type"), block.get("text")
    if kind != "text":
        raise _wrong(where, f"has the type {str(kind)[:40]!r}, which is not supported here")
    if not isinstance(text, str):
        raise _wrong(where, "must have a text")
    return {"type": "text", "text": text}


def _wrong(where: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"{where} {reason}", param=where.partition("[")[0].partition(".")[0])
