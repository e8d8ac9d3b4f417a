"""The sources of grammars, read: JSON schemas and lists of choices. What is no such thing is refused here, for every backend."""

import json
from typing import Any

from radixserve.errors import InvalidRequestError


def read_schema(source: str) -> dict[str, Any]:
    """The schema as an object; `true`, which allows every value, as an empty one. Raises InvalidRequestError if it is none."""
    schema = _read(source, "json_schema")
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        raise InvalidRequestError(f"the json_schema is {_short(schema)}: it must be an object", param="grammar")
    return schema


def read_choices(source: str) -> list[str]:
    """The texts to choose from. Raises InvalidRequestError unless they are a list of at least one text."""
    choices = _read(source, "choice")
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, str) for choice in choices):
        raise InvalidRequestError(f"the choice is {_short(choices)}: it must be a list of texts, at least one", param="grammar")
    return choices


def _read(source: str, kind: str) -> Any:
    try:
        return json.loads(source)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the {kind} is {source!r:.60}, which is not JSON: {error}", param="grammar") from error


def _short(value: Any) -> str:
    return f"{json.dumps(value)!s:.60}"
