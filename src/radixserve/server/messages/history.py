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
    """Text, or blocks of it, as OpenAI's parts. Raises InvalidRequestError for other blocks."""
    if isinstance(content, str):
        return content
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
                message["reasoning_content"] = message.get("reasoning_content", "") + str(block.get("thinking", ""))
            case "redacted_thinking":
                pass  # nobody here can read it
            case "tool_use":
                function = {"name": block.get("name"), "arguments": block.get("input") or {}}
                message.setdefault("tool_calls", []).append({"id": block.get("id"), "type": "function", "function": function})
            case _:
                message["content"] += _part(block, f"{where}[{index}]")["text"]
    return message


def _part(block: dict[str, Any], where: str) -> dict[str, Any]:
    kind, text = block.get("type"), block.get("text")
    if kind != "text":
        raise InvalidRequestError(f"{where} has the type {str(kind)[:40]!r}: not supported here", param=where.partition("[")[0])
    if not isinstance(text, str):
        raise InvalidRequestError(f"{where}.text is missing or not text", param=where.partition("[")[0])
    return {"type": "text", "text": text}
