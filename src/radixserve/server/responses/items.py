"""The items of a conversation in the Responses API as OpenAI's chat messages, which chat templates expect."""

from collections.abc import Sequence
from typing import Any

from radixserve.errors import InvalidRequestError

Item = dict[str, Any]
_TEXTS = ("input_text", "output_text", "text")


def read_items(items: Sequence[Item]) -> list[dict[str, Any]]:
    """One message a turn: reasoning, text and calls of the assistant that follow each other are one, as the model wrote them.

    Raises InvalidRequestError for a kind of item that isn't supported.
    """
    turns = _Turns()
    for index, item in enumerate(items):
        where = f"input[{index}]"
        match item.get("type") or "message":
            case "message":
                turns.say(_string(item, "role", where), _content(item.get("content"), f"{where}.content"))
            case "reasoning":
                turns.think(_thoughts(item, where))
            case "function_call":
                turns.call(_call(item, where))
            case "function_call_output":
                output = _content(item.get("output"), f"{where}.output")
                turns.other({"role": "tool", "tool_call_id": item.get("call_id"), "content": output})
            case kind:
                message = (
                    f"{where} has the type {str(kind)[:40]!r}: must be message, function_call, function_call_output or reasoning"
                )
                raise InvalidRequestError(message, param="input", code="unsupported")
    return turns.messages


class _Turns:
    """Messages so far; `thoughts` belong to the assistant's next one."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.thoughts = ""

    def think(self, text: str) -> None:
        self.thoughts += text

    def say(self, role: str, content: str) -> None:
        last = self.messages[-1] if self.messages else {}
        if role != "assistant":
            self.other({"role": role, "content": content})
        elif "tool_calls" in last:
            self._turn()["content"] += content
        else:
            self._begin()["content"] = content

    def other(self, message: dict[str, Any]) -> None:
        """A message that is not the assistant's: thoughts that led to nothing are dropped."""
        self.messages.append(message)
        self.thoughts = ""

    def call(self, call: dict[str, Any]) -> None:
        self._turn().setdefault("tool_calls", []).append(call)

    def _turn(self) -> dict[str, Any]:
        """The assistant's turn that goes on."""
        if not self.messages or self.messages[-1]["role"] != "assistant":
            return self._begin()
        self._keep_thoughts(self.messages[-1])
        return self.messages[-1]

    def _begin(self) -> dict[str, Any]:
        self.messages.append({"role": "assistant", "content": ""})
        self._keep_thoughts(self.messages[-1])
        return self.messages[-1]

    def _keep_thoughts(self, message: dict[str, Any]) -> None:
        if self.thoughts:
            message["reasoning_content"] = message.get("reasoning_content", "") + self.thoughts
            self.thoughts = ""


def _string(item: Item, name: str, where: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise InvalidRequestError(f"{where}.{name} is missing or not text", param="input")
    return value


def _content(content: Any, where: str) -> str:
    """Text, or parts of it."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidRequestError(f"{where} is missing or wrong: must be text or a list of parts", param="input")
    return "\n".join(_part(part, f"{where}[{index}]") for index, part in enumerate(content))


def _part(part: Any, where: str) -> str:
    if not isinstance(part, dict):
        raise InvalidRequestError(f"{where} is no object", param="input")
    if part.get("type") == "refusal":
        return _string(part, "refusal", where)
    if part.get("type") not in _TEXTS:
        message = f"{where} has the type {str(part.get('type'))[:40]!r}: only text is supported, such as 'input_text'"
        raise InvalidRequestError(message, param="input", code="unsupported")
    return _string(part, "text", where)


def _thoughts(item: Item, where: str) -> str:
    """Not the summary: the model didn't write it."""
    parts = item.get("content") or []
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise InvalidRequestError(f"{where}.content is wrong: must be a list of parts", param="input")
    return "".join(_string(part, "text", f"{where}.content[{index}]") for index, part in enumerate(parts))


def _call(item: Item, where: str) -> dict[str, Any]:
    function = {"name": _string(item, "name", where), "arguments": _string(item, "arguments", where)}
    return {"id": item.get("call_id"), "type": "function", "function": function}
