"""The sources of grammars, read: schemas, choices, structural tags. What is no such thing is refused here, for every backend."""

import json
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from radixserve.errors import InvalidRequestError
from radixserve.sampling.schema_walk import find_keyword


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


@dataclass(frozen=True)
class Tag:
    """Where `trigger` comes in a text, `begin` (which starts with it), a document of `schema` and `end` must follow."""

    trigger: str
    begin: str
    schema: dict[str, Any]
    end: str


def read_structural_tag(source: str) -> list[Tag]:
    """The tags of {"structures": [{"begin", "schema", "end"}], "triggers": [texts]}; InvalidRequestError if it is no such thing."""
    try:
        spec = msgspec.json.decode(source, type=_StructuralTag)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidRequestError(f"the structural_tag can't be read: {error}", param="grammar") from error
    tags = []
    for structure in spec.structures:
        trigger = next((text for text in spec.triggers if text and structure.begin.startswith(text)), None)
        if trigger is None:
            raise InvalidRequestError(
                f"the structural_tag has no trigger for the begin {structure.begin!r:.60}: it must start with one", param="grammar"
            )
        tags.append(Tag(trigger, structure.begin, structure.schema, structure.end))
    return tags


class _Structure(msgspec.Struct):
    begin: str
    schema: dict[str, Any]
    end: str


class _StructuralTag(msgspec.Struct):
    structures: Annotated[list[_Structure], msgspec.Meta(min_length=1)]
    triggers: list[str]


def refused_keyword(schema: Any, keywords: frozenset[str], backend: str) -> InvalidRequestError:
    """The error for a schema that uses one of `keywords`, which `backend` can't enforce."""
    keyword, pointer = find_keyword(schema, keywords) or (min(keywords), "#")
    return InvalidRequestError(
        f'the json_schema uses "{keyword}" at {pointer:.200}, which {backend} can\'t enforce: leave it out', param="grammar"
    )


def _read(source: str, kind: str) -> Any:
    try:
        return json.loads(source)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the {kind} is {source!r:.60}, which is not JSON: {error}", param="grammar") from error


def _short(value: Any) -> str:
    return f"{json.dumps(value)!s:.60}"
