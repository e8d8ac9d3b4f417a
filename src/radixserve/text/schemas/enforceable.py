"""A JSON Schema in the terms that the grammar library holds an answer to.

The library ignores no keyword that it knows, but lets through what some of them forbid: numbers are doubles to it, `.` in a
pattern matches line separators, formats are loose, a key that comes twice counts twice. What it would not hold is said in other
words here, or refused with the keyword and its place. The result never allows more than the schema.
"""

import re
from collections.abc import Callable
from typing import Any

from radixserve.errors import InvalidRequestError
from radixserve.text.schemas import numbers
from radixserve.text.schemas.declared import Closable, close
from radixserve.text.schemas.formats import NOT_HELD, PATTERNS
from radixserve.text.schemas.lookahead import without_lookahead
from radixserve.text.schemas.modern import modern
from radixserve.text.schemas.patterns import portable
from radixserve.text.schemas.property_names import with_named_properties
from radixserve.text.schemas.walk import rewrite, shown

REFUSED = frozenset(
    {
        "uniqueItems",
        "contains",
        "minContains",
        "maxContains",
        "propertyNames",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "unevaluatedItems",
        "unevaluatedProperties",
        "not",
        "if",
        "then",
        "else",
        "$dynamicRef",
        "$recursiveRef",
    }
)
"""Assertions that the library has not. Every other keyword is an annotation."""
DROPPED = frozenset({"$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "x-guidance"})
"""What the library has no name for, or takes for itself."""
SAYS_NOTHING: dict[str, tuple[Any, ...]] = {
    "uniqueItems": (False,),
    "propertyNames": (True, {}, {"type": "string"}),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "dependencies": ({},),
    "unevaluatedItems": (True, {}),
    "unevaluatedProperties": (True, {}),
    "not": (False,),
    "then": (True, {}),
    "else": (True, {}),
}
"""Values with which a keyword forbids nothing."""
NEEDS = {"minContains": ("contains",), "maxContains": ("contains",), "then": ("if",), "else": ("if",), "if": ("then", "else")}
"""Keywords that say nothing unless one of others is there."""
COUNTS = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})


_UNWRITABLE = re.compile("[\x00-\x07\x0b\x0e-\x1f\x7f]")


class _RefusedError(Exception):
    """A keyword and why it can't be enforced."""

    def __init__(self, keyword: str, reason: str) -> None:
        super().__init__(reason)
        self.keyword = keyword


def enforceable(schema: dict[str, Any], subject: str = "the json_schema") -> dict[str, Any]:
    """The schema rewritten. Raises InvalidRequestError (param "grammar") that names keyword, place and `subject`."""
    schema = modern(schema, subject)

    def rewritten(here: Any, pointer: str) -> Any:
        if not isinstance(here, dict):
            return here
        here = rewrite(close(here) if pointer in closable else here, pointer, rewritten)
        try:
            return _keywords(here)
        except _RefusedError as refused:
            message = f'"{refused.keyword}" at {shown(pointer)} of {subject} {refused}'
            raise InvalidRequestError(message, param="grammar") from None

    try:
        schema = with_named_properties(schema)
        closable = Closable(schema).pointers
        out = rewritten(schema, "#")
    except RecursionError:
        raise InvalidRequestError(f"{subject} is nested too deeply: make it flatter", param="grammar") from None
    if not isinstance(out, dict):
        raise InvalidRequestError(f'"not" at # of {subject} forbids every answer: leave it out', param="grammar")
    return out


def _keywords(schema: dict[str, Any]) -> dict[str, Any] | bool:
    """One schema with keywords that the library knows and holds; what is inside of it is left as it is.

    `{"not": {}}`, which clients write for what is not there, is false.
    """
    if schema.get("not") is True or schema.get("not") == {}:
        return False
    here = {keyword: value for keyword, value in schema.items() if not _says_nothing(schema, keyword, value)}
    for keyword in here:
        if keyword in REFUSED:
            raise _RefusedError(keyword, "can't be enforced: leave it out")
    here = _without_lookahead(here)
    for keyword, value in list(here.items()):
        try:
            if rewrite := _REWRITES.get(keyword):
                here[keyword] = rewrite(value)
            elif keyword in numbers.SIDES:
                here[keyword] = numbers.bound(keyword, value, whole=_is_whole(here))
            elif keyword in COUNTS:
                here[keyword] = _count(value)
        except ValueError as error:
            raise _RefusedError(keyword, str(error)) from None
    _count_properties(here)
    return _without_format(here)


def _says_nothing(schema: dict[str, Any], keyword: str, value: Any) -> bool:
    if keyword in DROPPED or (keyword in NEEDS and schema.keys().isdisjoint(NEEDS[keyword])):
        return True
    if keyword == "contains":
        return schema.get("minContains") == 0 and "maxContains" not in schema
    if keyword == "minContains":
        return value == 0 and "maxContains" not in schema
    return any(value == nothing and type(value) is type(nothing) for nothing in SAYS_NOTHING.get(keyword, ()))


def _is_whole(here: dict[str, Any]) -> bool:
    """Whether all numbers that a schema allows are whole."""
    kinds = here.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return "integer" in kinds and "number" not in kinds


def _count(value: Any) -> int:
    if not numbers.is_number(value) or value < 0 or value != int(value):
        raise ValueError(f"is {value!r:.40}: it must be a whole number, 0 or more")
    return int(value)


def _enum(values: Any) -> list[Any]:
    if not isinstance(values, list) or not values:
        raise ValueError("must be a list of at least one value")
    return [_literal(value) for value in values]


def _literal(value: Any) -> Any:
    _check_texts(value)
    return numbers.literal(value)


def _check_texts(value: Any) -> None:
    """Raises ValueError for a text with a control character that can't be written: answers have no \\u escapes."""
    stack = [value]
    while stack:
        here = stack.pop()
        if isinstance(here, dict):
            stack += [*here.keys(), *here.values()]
        elif isinstance(here, list):
            stack += here
        elif isinstance(here, str) and _UNWRITABLE.search(here):
            raise ValueError(f"holds the text {here!r:.60}, whose control characters can't be written: leave them out")


def _properties(value: Any) -> Any:
    if isinstance(value, dict):
        _check_texts(list(value))
    return value


def _pattern(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a text")
    try:
        return portable(value)
    except ValueError as error:
        raise ValueError(f"is {value!r:.60}: {error}") from None


def _without_lookahead(here: dict[str, Any]) -> dict[str, Any]:
    """Look-ahead at the beginning of the pattern as further patterns."""
    if not isinstance(here.get("pattern"), str):
        return here
    pattern, *others = without_lookahead(here["pattern"])
    try:
        others = [portable(other) for other in others]
    except ValueError as error:
        raise _RefusedError("pattern", f"is {here['pattern']!r:.60}: {error}") from None
    return _with_patterns(here | {"pattern": pattern}, others)


def _with_patterns(here: dict[str, Any], patterns: list[str]) -> dict[str, Any]:
    """A schema whose texts match further patterns too."""
    parts = here.get("allOf", [])
    if not patterns or not isinstance(parts, list):  # of what is no list the library says so
        return here
    return here | {"allOf": [*parts, *({"pattern": pattern} for pattern in patterns)]}


def _pattern_properties(value: Any) -> Any:
    return {_pattern(pattern): item for pattern, item in value.items()} if isinstance(value, dict) else value


_REWRITES: dict[str, Callable[[Any], Any]] = {
    "const": _literal,
    "enum": _enum,
    "properties": _properties,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "multipleOf": numbers.divisor,
}


def _count_properties(here: dict[str, Any]) -> None:
    """The library counts a key that comes twice as two properties, so that only named ones can be counted."""
    required = here.get("required")
    if here.get("minProperties", 0) <= len(set(map(str, required)) if isinstance(required, list) else ()):
        here.pop("minProperties", None)
    named_only = here.get("additionalProperties") is False and not here.get("patternProperties")
    if here.get("minProperties", 0) > 1 and not named_only:
        raise _RefusedError("minProperties", "can't be enforced where properties have any name: name them, or demand 1 at most")


def _without_format(here: dict[str, Any]) -> dict[str, Any]:
    """A format as a pattern. Of a schema of no texts it says nothing, nor does one that JSON Schema doesn't define."""
    if "format" not in here:
        return here
    name = here["format"]
    kinds = here.get("type", "string")
    if "string" in (kinds if isinstance(kinds, list) else [kinds]):
        if not isinstance(name, str) or name in NOT_HELD:
            raise _RefusedError("format", f"is {name!r:.40}, which can't be enforced: use one of {', '.join(PATTERNS)}")
        if name in PATTERNS:
            pattern = portable(PATTERNS[name])
            here = _with_patterns(here, [pattern]) if "pattern" in here else here | {"pattern": pattern}
    return {keyword: value for keyword, value in here.items() if keyword != "format"}
