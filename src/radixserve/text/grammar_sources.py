"""The sources of grammars, read: schemas, choices, structural tags. What is no such thing is refused here."""

import json
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from radixserve.errors import InvalidRequestError
from radixserve.json_text import read_json


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

    @property
    def subject(self) -> str:
        """What errors call its schema."""
        return f"the schema of the structural_tag that begins with {self.begin!r:.60}"


def read_structural_tag(source: str) -> list[Tag]:
    """The tags of {"structures": [{"begin", "schema", "end"}], "triggers": [texts]}, or of {"format": {"type": "triggered_tags",
    "triggers": [texts], "tags": [{"begin", "content": {"type": "json_schema", "json_schema"}, "end"}]}}.

    Raises InvalidRequestError if it is neither.
    """
    try:
        spec = msgspec.convert(read_json(source), type=_StructuralTag)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the structural_tag can't be read: {error}", param="grammar") from error
    structures, triggers = spec.structures, spec.triggers
    if spec.format is not None:
        structures = [_Structure(tag.begin, tag.content.json_schema, tag.end) for tag in spec.format.tags]
        triggers = spec.format.triggers
    if not structures:
        raise InvalidRequestError("the structural_tag has no structures: name at least one, and its trigger", param="grammar")
    return [Tag(_trigger(structure.begin, triggers), structure.begin, structure.schema, structure.end) for structure in structures]


def _trigger(begin: str, triggers: list[str]) -> str:
    for trigger in triggers:
        if trigger and begin.startswith(trigger):
            return trigger
    raise InvalidRequestError(
        f"the structural_tag has no trigger for the begin {begin!r:.60}: it must start with one", param="grammar"
    )


class _Structure(msgspec.Struct):
    begin: str
    schema: dict[str, Any]
    end: str


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["json_schema"]
    json_schema: dict[str, Any]


class _FormatTag(msgspec.Struct):
    begin: str
    content: _Content
    end: str


class _Format(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["triggered_tags"]
    triggers: list[str]
    tags: list[_FormatTag]


class _StructuralTag(msgspec.Struct):
    structures: list[_Structure] = []
    triggers: list[str] = []
    format: _Format | None = None


def _read(source: str, kind: str) -> Any:
    try:
        return read_json(source)
    except ValueError as error:
        raise InvalidRequestError(f"the {kind} is {source!r:.60}, which is not JSON: {error}", param="grammar") from error


def _short(value: Any) -> str:
    return f"{json.dumps(value)!s:.60}"
