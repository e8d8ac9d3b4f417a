"""Where two prompts part, and what in their requests makes them: what stands there, and what kind of difference it is."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Cause = Literal["tools_order", "key_order", "whitespace", "time", "number", "template", "tokens", "text"]
"""tools_order: the same tools in another order. key_order: the same object with its keys in another order. whitespace. time: a date
or a time. number: a number or an id. template: other settings of the chat template, or what the template itself adds. tokens: the
texts go on alike for a while, but are cut into other tokens. text: anything else."""

TEMPLATE_PARTS = ("chat_template_kwargs", "reasoning_effort", "add_generation_prompt", "continue_final_message")
PARTS = (*TEMPLATE_PARTS, "tools", "messages", "prompt")
"""Fields of a request that make its prompt."""

NEAR = 12
"""Characters of a field that must be found behind the break to say that the break is in this field."""

_TIME = re.compile(
    r"\d{4}-\d\d?-\d\d?(?:[T ]\d\d?:\d\d(?::\d\d(?:\.\d+)?)?)?|\d\d?:\d\d(?::\d\d)?|\d\d?[./]\d\d?[./]\d{2,4}"
    r"|\d{0,2} ?\b(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b\.?(?: \d\d?,?)?(?: \d{4})?"
    r"|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b|\b1[67]\d{8}(?:\d{3})?\b"
)
_NUMBER = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]*\d[0-9a-fA-F-]*|\w*\d\w*")


@dataclass(frozen=True)
class Place:
    """A field that differs: its path, such as messages[0].content, and the first character at which it does."""

    path: str
    at: int
    cause: Cause


def shared_len(first: Sequence[int], second: Sequence[int]) -> int:
    """Tokens that two prompts share at their starts."""
    pairs = zip(first, second, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))


def find_break(first: Mapping[str, Any], second: Mapping[str, Any], after: tuple[str, str]) -> Place | None:
    """The field in which two request bodies part. `after`: the texts of the two prompts from a little before the break on.

    Of the fields that differ the first is taken of which both texts show what differs, or else the first. None if none differs.
    """
    places = _places(first, second)
    found = [place for place, shown in places if all(part and part in text for part, text in zip(shown, after, strict=True))]
    return found[0] if found else places[0][0] if places else None


def _places(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[tuple[Place, tuple[str, str]]]:
    """Every field that differs, in the order in which templates show them; with the beginnings of what differs in both."""
    if reordered := _reordered_tools(first, second):
        return [(reordered, ("", ""))]
    ours, theirs = ({path: text for part in PARTS for path, text in _leaves(body.get(part), part)} for body in (first, second))
    found = []
    for path in [*ours, *(path for path in theirs if path not in ours)]:
        one, other = ours.get(path, ""), theirs.get(path, "")
        if one != other:
            at = shared_len([ord(char) for char in one], [ord(char) for char in other])
            cause = "template" if path.startswith(TEMPLATE_PARTS) else _cause(one, other, at)
            found.append((Place(path, at, cause), (one[at : at + NEAR], other[at : at + NEAR])))
    if not found and (reordered := _reordered_keys(first, second)):
        return [(reordered, ("", ""))]
    return found


def _leaves(value: Any, path: str) -> list[tuple[str, str]]:
    match value:
        case None:
            return []
        case dict():
            return [leaf for key, item in value.items() for leaf in _leaves(item, f"{path}.{key}")]
        case list():
            return [leaf for index, item in enumerate(value) for leaf in _leaves(item, f"{path}[{index}]")]
    return [(path, value if isinstance(value, str) else json.dumps(value))]


def _reordered_tools(first: Mapping[str, Any], second: Mapping[str, Any]) -> Place | None:
    ours, theirs = ([json.dumps(tool, sort_keys=True) for tool in body.get("tools") or []] for body in (first, second))
    if ours == theirs or sorted(ours) != sorted(theirs):
        return None
    return Place(f"tools[{next(at for at, tool in enumerate(ours) if tool != theirs[at])}]", 0, "tools_order")


def _reordered_keys(first: Mapping[str, Any], second: Mapping[str, Any]) -> Place | None:
    for part in PARTS:
        one, other = json.dumps(first.get(part)), json.dumps(second.get(part))
        if one != other and first.get(part) == second.get(part):
            return Place(part, shared_len(one.encode(), other.encode()), "key_order")
    return None


def _cause(first: str, second: str, at: int) -> Cause:
    if _squeezed(first[at:])[:NEAR] == _squeezed(second[at:])[:NEAR] and _squeezed(first[:at]) == _squeezed(second[:at]):
        return "whitespace"
    for cause, pattern in (("time", _TIME), ("number", _NUMBER)):
        if all(any(match.start() <= at < match.end() for match in pattern.finditer(text)) for text in (first, second)):
            return cause  # type: ignore[return-value]  # one of the two above
    return "text"


def _squeezed(text: str) -> str:
    return "".join(text.split())
