"""Which JSON schemas xgrammar enforces. It ignores the rest in silence, so that what is not known to work is refused here.

The list is what the tests found (`tests/schema_cases.py`): keywords by type, and few of them together.
"""

from typing import Any

from radixserve.errors import InvalidRequestError
from radixserve.sampling.schema_walk import LIST, NAMED, ONE, walk

ANYWHERE = frozenset({"$defs", "definitions"})
BY_TYPE = {
    "null": frozenset[str](),
    "boolean": frozenset[str](),
    "integer": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems"}),
    "object": frozenset({"properties", "required", "additionalProperties", "minProperties", "maxProperties"}),
}
ALONE = ("$ref", "anyOf", "const", "enum")
"""Keywords that decide by themselves: xgrammar looks at nothing beside them."""
FORMATS = frozenset({"date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"})
ASSERTIONS = frozenset.union(
    ONE,
    LIST,
    NAMED,
    *BY_TYPE.values(),
    {"type", "$ref", "$dynamicRef", "$recursiveRef", "const", "enum", "uniqueItems", "minContains", "maxContains"},
    {"dependentRequired", "dependencies"},
)
"""Every keyword that says something about a value. Others are annotations, which no validator looks at."""


def check_schema(schema: dict[str, Any]) -> None:
    """Raises InvalidRequestError for the first keyword that xgrammar would ignore, with its place."""
    for pointer, here in walk(schema):
        for keyword in here:
            if keyword in ASSERTIONS and not _enforced(here, keyword):
                raise InvalidRequestError(
                    f'the json_schema uses "{keyword}" at {pointer:.200} in a way that xgrammar does not enforce: leave it out, '
                    "or serve with --grammar-backend llguidance",
                    param="grammar",
                )


def _enforced(here: dict[str, Any], keyword: str) -> bool:
    """Whether this keyword counts, beside the others of its schema."""
    if keyword in ANYWHERE:
        return True
    alone = next((name for name in ALONE if name in here), None)
    if alone in ("const", "enum") and keyword == "type":
        values = here["enum"] if alone == "enum" else [here["const"]]
        return isinstance(values, list) and all(_is_of(value, here["type"]) for value in values)
    if alone is not None:
        return keyword == alone and (alone != "$ref" or here["$ref"] == "#" or str(here["$ref"]).startswith("#/"))
    kind = here.get("type", "object" if "properties" in here else "array" if "items" in here else None)
    if keyword == "type":
        return isinstance(kind, str) or _plain_types(here)
    if not isinstance(kind, str) or keyword not in BY_TYPE.get(kind, ()):
        return False
    match keyword:
        case "format":
            return here["format"] in FORMATS and here.keys().isdisjoint({"pattern", "minLength", "maxLength"})
        case "pattern":
            return here.keys().isdisjoint({"minLength", "maxLength"})
        case "multipleOf":
            return here.keys().isdisjoint(BY_TYPE["number"])
        case "required":
            return isinstance(here["required"], list) and set(here["required"]) <= set(here.get("properties", ()))
        case "items":
            return not isinstance(here["items"], list)
    return True


def _is_of(value: Any, kind: Any) -> bool:
    """Whether a type that stands beside a value says nothing new about it."""
    kinds: dict[str, tuple[type, ...]] = {"string": (str,), "boolean": (bool,), "null": (type(None),), "integer": (int,)}
    kinds |= {"number": (int, float), "array": (list,), "object": (dict,)}
    return isinstance(kind, str) and type(value) in kinds.get(kind, ())


def _plain_types(here: dict[str, Any]) -> bool:
    """Several types with nothing to say about any of them."""
    return ASSERTIONS.isdisjoint(here.keys() - {"type"} - ANYWHERE)
