"""Where the schemas are inside of a JSON schema: the places whose keys are keywords, not names of properties or plain values."""

from collections.abc import Iterator
from typing import Any

ONE = frozenset(
    {
        "items",
        "additionalItems",
        "unevaluatedItems",
        "contains",
        "additionalProperties",
        "unevaluatedProperties",
        "propertyNames",
        "not",
        "if",
        "then",
        "else",
    }
)
"""Keywords whose value is a schema."""
LIST = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
"""Keywords whose value is a list of schemas."""
NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose value is an object of schemas by name."""


def walk(schema: Any, pointer: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object schema in `schema`, itself first, with its JSON pointer. What is not where a schema must be is passed over."""
    stack = [(pointer, schema)]
    while stack:
        place, here = stack.pop()
        if not isinstance(here, dict):
            continue
        yield place, here
        for keyword, value in here.items():
            inner = f"{place}/{keyword}"
            if keyword in LIST and isinstance(value, list):
                stack += [(f"{inner}/{index}", item) for index, item in enumerate(value)]
            elif keyword in NAMED and isinstance(value, dict):
                stack += [(f"{inner}/{_escape(name)}", item) for name, item in value.items()]
            elif keyword in ONE:
                stack.append((inner, value))


def _escape(name: str) -> str:
    """A name in a JSON pointer (RFC 6901, section 3)."""
    return name.replace("~", "~0").replace("/", "~1")


def find_keyword(schema: Any, keywords: frozenset[str]) -> tuple[str, str] | None:
    """The first of `keywords` that a schema uses, and the pointer of the schema that does; None if none does."""
    for pointer, here in walk(schema):
        for keyword in here:
            if keyword in keywords:
                return keyword, pointer
    return None
