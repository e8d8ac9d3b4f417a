"""Chat messages as clients send them, brought into the shape that templates expect."""

from typing import Any

from radixserve.errors import InvalidRequestError, ParamError
from radixserve.json_text import read_json


def normalize_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns copies with string content, and with tool calls whose arguments are objects.

    Content that is null or absent becomes the empty string; a list of text parts is joined by line breaks; arguments that are
    JSON text are parsed. What a model wrote that is none stays text, as the template may put it. Raises InvalidRequestError for
    an empty list, a message without a role, and content that is not text.
    """
    if not isinstance(messages, list) or not messages:
        raise ParamError("messages", "is empty: send at least one message")
    return [_normalize(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _normalize(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise InvalidRequestError(f"{where} is a {type(message).__name__}: must be an object", param="messages")
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise InvalidRequestError(f"{where}.role is missing or not text: must be such as 'user'", param="messages")
    normal = message | {"content": _text(message.get("content"), f"{where}.content")}
    if message.get("tool_calls") is not None:
        normal["tool_calls"] = _tool_calls(message["tool_calls"], f"{where}.tool_calls")
    return normal


def _text(content: Any, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidRequestError(f"{where} is a {type(content).__name__}: must be text or a list of text parts", param="messages")
    return "\n".join(_part_text(part, f"{where}[{index}]") for index, part in enumerate(content))


def _part_text(part: Any, where: str) -> str:
    if not isinstance(part, dict) or part.get("type") != "text":
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        raise InvalidRequestError(f"{where} has the type {str(kind)[:40]!r}: only 'text' parts are supported", param="messages")
    text = part.get("text")
    if not isinstance(text, str):
        raise InvalidRequestError(f"{where}.text is missing or not text", param="messages")
    return text


def _tool_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise InvalidRequestError(f"{where} must be a list of objects", param="messages")
    return [_tool_call(call, f"{where}[{index}]") for index, call in enumerate(calls)]


def _tool_call(call: dict[str, Any], where: str) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidRequestError(f"{where}.function.name is missing or not text: must be the tool's name", param="messages")
    if not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = read_json(function["arguments"] or "{}", surrogates=True)
    except ValueError:
        return call
    return call | {"function": function | {"arguments": arguments}}
