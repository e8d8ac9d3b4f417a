"""The fields that constrain an answer, as OpenAI, vLLM and SGLang name them: whichever is sent becomes one Grammar."""

import json
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from radixserve.errors import InvalidRequestError
from radixserve.json_text import read_json
from radixserve.sampling_params import Grammar
from radixserve.server.unsupported_fields import RefusesUnsupported

Schema = dict[str, Any] | bool | str
"""A JSON Schema, or the text of one."""


class JsonSchemaFormat(msgspec.Struct):
    """`response_format.json_schema`. The schema is always enforced, whatever `strict` says."""

    schema: dict[str, Any] | bool
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct):
    """OpenAI's `response_format`; `structural_tag` as SGLang and vLLM have it, in its older (`structures`, `triggers`) or newer
    (`format`) shape."""

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchemaFormat | None = None
    structures: list[dict[str, Any]] | None = None
    triggers: list[str] | None = None
    format: dict[str, Any] | None = None
    schema: Any = None
    """Refused: elsewhere it stands beside the type `json_object`."""


class StructuredOutputs(msgspec.Struct):
    """vLLM's `structured_outputs`."""

    json: Schema | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: dict[str, Any] | str | None = None
    whitespace_pattern: Any = None
    """Refused: white space is bounded by the engine."""
    disable_additional_properties: Any = None
    """Refused: say it in the schema."""


class Constraint(NamedTuple):
    """A grammar, and the field that asked for it."""

    field: str
    grammar: Grammar


class ConstraintFields(RefusesUnsupported, kw_only=True):
    """A part of the bodies of both completion routes. At most one of them may be sent."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    json_schema: Schema | None = None
    regex: str | None = None
    ebnf: str | None = None

    def constraint(self) -> Constraint | None:
        """The one that was sent. Raises InvalidRequestError when there are two, or when it can't be read."""
        try:
            found = list(self._constraints())
        except RecursionError:
            raise InvalidRequestError("the schema is nested too deeply: flatten it", param="response_format") from None
        if len(found) > 1:
            first, second = found[0].field, found[1].field
            which = f"{second} holds two constraints" if first == second else f"{second} is sent together with {first}"
            raise InvalidRequestError(f"{which}: an answer can be held to one of them", param=second)
        return found[0] if found else None

    def _constraints(self) -> Iterator[Constraint]:
        if self.response_format is not None and (grammar := _of_response_format(self.response_format)) is not None:
            yield Constraint("response_format", grammar)
        if self.structured_outputs is not None:
            for grammar in _of_structured_outputs(self.structured_outputs):
                yield Constraint("structured_outputs", grammar)
        for name in ("guided_json", "json_schema"):
            if (schema := getattr(self, name)) is not None:
                yield Constraint(name, _json_schema(schema, name))
        for name in ("guided_regex", "regex"):
            if (pattern := getattr(self, name)) is not None:
                yield Constraint(name, Grammar("regex", pattern))
        for name in ("guided_grammar", "ebnf"):
            if (source := getattr(self, name)) is not None:
                yield Constraint(name, Grammar("ebnf", source))
        if self.guided_choice is not None:
            yield Constraint("guided_choice", _choice(self.guided_choice, "guided_choice"))


def _of_response_format(this: ResponseFormat) -> Grammar | None:
    if this.schema is not None:
        message = "response_format.schema is not supported: send the type 'json_schema' with the schema in json_schema.schema"
        raise InvalidRequestError(message, param="response_format", code="unsupported")
    match this.type:
        case "json_object":
            return Grammar("json_object")
        case "json_schema":
            if this.json_schema is None:
                message = "response_format.json_schema is missing: with the type 'json_schema' it must hold a schema"
                raise InvalidRequestError(message, param="response_format")
            return _json_schema(this.json_schema.schema, "response_format")
        case "structural_tag":
            fields = {"structures": this.structures, "triggers": this.triggers, "format": this.format}
            given = {name: value for name, value in fields.items() if value is not None}
            return Grammar("structural_tag", json.dumps({"type": this.type} | given, ensure_ascii=False))
    return None


def _of_structured_outputs(this: StructuredOutputs) -> Iterator[Grammar]:
    for name in ("whitespace_pattern", "disable_additional_properties"):
        if getattr(this, name):
            message = f"structured_outputs.{name} is not supported here: leave it out"
            raise InvalidRequestError(message, param="structured_outputs", code="unsupported")
    if this.json is not None:
        yield _json_schema(this.json, "structured_outputs")
    if this.regex is not None:
        yield Grammar("regex", this.regex)
    if this.choice is not None:
        yield _choice(this.choice, "structured_outputs")
    if this.grammar is not None:
        yield Grammar("ebnf", this.grammar)
    if this.json_object:
        yield Grammar("json_object")
    if (tag := this.structural_tag) is not None:
        yield Grammar("structural_tag", tag if isinstance(tag, str) else _json_text(tag, "structural_tag"))


def _json_schema(schema: Schema, field: str) -> Grammar:
    if isinstance(schema, str):
        try:
            schema = read_json(schema)
        except ValueError as error:
            raise InvalidRequestError(f"{field} is not JSON: {error}", param=field) from error
    return Grammar("json_schema", _json_text(schema, field))


def _json_text(value: Any, field: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise _too_deep(field) from None


def _too_deep(field: str) -> InvalidRequestError:
    return InvalidRequestError(f"{field} is nested too deeply: flatten it", param=field)


def _choice(options: list[str], field: str) -> Grammar:
    if not options:
        raise InvalidRequestError(f"{field} is empty: name at least one text to choose", param=field)
    return Grammar("choice", json.dumps(options, ensure_ascii=False))
