"""Where the schemas are inside of a JSON schema: the places whose keys are keywords, not names of properties or plain values."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

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


def inside(here: dict[str, Any], pointer: str) -> Iterator[tuple[str, str, Any]]:
    """What is where a schema must be directly inside of one: the keyword, its JSON pointer, and itself."""
    for keyword, value in here.items():
        place = f"{pointer}/{keyword}"
        if keyword in LIST and isinstance(value, list):
            yield from ((keyword, f"{place}/{index}", item) for index, item in enumerate(value))
        elif keyword in NAMED and isinstance(value, dict):
            yield from ((keyword, f"{place}/{_escape(name)}", item) for name, item in value.items())
        elif keyword in ONE:
            yield keyword, place, value


def walk(schema: Any, pointer: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object schema in `schema`, itself first, with its JSON pointer. What is not where a schema must be is passed over."""
    stack = [(pointer, schema)]
    while stack:
        place, here = stack.pop()
        if isinstance(here, dict):
            yield place, here
            stack += [(inner, item) for _, inner, item in inside(here, place)]


def rewrite(here: dict[str, Any], pointer: str, rewritten: Callable[[Any, str], Any]) -> dict[str, Any]:
    """A copy with `rewritten(schema, pointer)` for everything that `inside` names."""
    inner = iter([rewritten(item, place) for _, place, item in inside(here, pointer)])
    out = dict(here)
    for keyword, value in here.items():
        if keyword in LIST and isinstance(value, list):
            out[keyword] = [next(inner) for _ in value]
        elif keyword in NAMED and isinstance(value, dict):
            out[keyword] = {name: next(inner) for name in value}
        elif keyword in ONE:
            out[keyword] = next(inner)
    return out


def find(root: dict[str, Any], reference: str) -> Any:
    """What a JSON pointer such as "#/$defs/a" refers to; None for other references, and where nothing is."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    here: Any = root
    for step in unquote(reference).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(here, list):
            here = here[int(name)] if name.isdecimal() and int(name) < len(here) else None
        else:
            here = here.get(name) if isinstance(here, dict) else None
    return here


def shown(pointer: str) -> str:
    """A pointer as errors show it: in one line, cut off when it is long."""
    return "".join(char if char.isprintable() else "?" for char in pointer[:200])


def _escape(name: str) -> str:
    """A name in a JSON pointer (RFC 6901, section 3)."""
    return name.replace("~", "~0").replace("/", "~1")
