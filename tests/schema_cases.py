"""JSON Schema 2020-12, keyword by keyword: a schema, values it allows and values it forbids.

The compiler must refuse a schema, or let every answer through that is allowed and none that is forbidden. `docs/json-schema.md`
shows which of the two it does, in a table made from this list.
"""

import json
from dataclasses import dataclass
from typing import Any

from radixserve.errors import InvalidRequestError
from radixserve.grammar import GrammarCompiler
from radixserve.sampling_params import Grammar


@dataclass(frozen=True)
class SchemaCase:
    """`keyword` heads a row of the table; a row is enforced when all of its cases are."""

    keyword: str
    schema: Any
    allowed: tuple[Any, ...]
    forbidden: tuple[Any, ...]

    def texts(self, value: Any) -> list[str]:
        """The forms in which the compiler may write a value."""
        return [json.dumps(value, ensure_ascii=False, separators=form) for form in ((", ", ": "), (",", ":"))]


def enforced(compiler: GrammarCompiler, case: SchemaCase) -> bool:
    """Whether the compiler takes the case's schema. If not, it says so and names what it can't do."""
    try:
        compiler.compile(Grammar("json_schema", json.dumps(case.schema)))
    except InvalidRequestError:
        return False
    return True


def closed_object(**properties: Any) -> dict[str, Any]:
    """The schema of an object with just these properties."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


_INT, _STR = {"type": "integer"}, {"type": "string"}
_TREE = closed_object(value=_INT) | {"properties": {"value": _INT, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}


def _formats() -> list[SchemaCase]:
    samples = {
        "date-time": ("2024-02-29T12:30:00Z", "2023-02-29T12:30:00Z"),
        "date": ("2024-02-29", "2023-02-29"),
        "time": ("12:30:00Z", "24:00:00Z"),
        "duration": ("P3DT4H", "P1Y2D"),
        "email": ("a@example.org", "a at example"),
        "hostname": ("example.org", "-example-"),
        "ipv4": ("127.0.0.1", "127.0.0.300"),
        "ipv6": ("::1", "1.2.3"),
        "uri": ("http://example.org/a", "no uri"),
        "uuid": ("123e4567-e89b-12d3-a456-426614174000", "123"),
    }
    return [SchemaCase("format", {"type": "string", "format": name}, (good,), (bad,)) for name, (good, bad) in samples.items()]


CASES = [
    SchemaCase("type", {"type": "null"}, (None,), (0, "null")),
    SchemaCase("type", {"type": "boolean"}, (True, False), (0, "true")),
    SchemaCase("type", {"type": "integer"}, (0, -12), (1.5, "1")),
    SchemaCase("type", {"type": "number"}, (0, -1.5), ("1", None)),
    SchemaCase("type", {"type": "string"}, ("", 'ä"\n'), (1,)),
    SchemaCase("type", {"type": "array"}, ([], [1, "a"]), ({},)),
    SchemaCase("type", {"type": "object"}, ({}, {"a": 1}), ([],)),
    SchemaCase("type", {"type": ["integer", "null"]}, (1, None), ("1",)),
    SchemaCase("enum", {"enum": ["a", 1, None, [1]]}, ("a", 1, None, [1]), ("b", 2)),
    SchemaCase("enum", {"type": "string", "enum": ["a", "b"]}, ("a",), ("c",)),
    SchemaCase("enum", {"type": "string", "enum": ["a", 1]}, ("a",), (1,)),
    SchemaCase("enum", {"enum": ["a", "bcd"], "minLength": 2}, ("bcd",), ("a",)),
    SchemaCase("const", {"const": {"a": [1]}}, ({"a": [1]},), ({"a": [2]}, 1)),
    SchemaCase("const", {"type": "integer", "const": 7}, (7,), (8,)),
    SchemaCase("boolean schemas", {"type": "array", "items": True}, ([1, "a"],), (1,)),
    SchemaCase("boolean schemas", {"type": "array", "items": False}, ([],), ([1],)),
    SchemaCase("boolean schemas", closed_object(a=True), ({"a": None},), ({},)),
    # strings
    SchemaCase("minLength", {"type": "string", "minLength": 2}, ("ab", "abc"), ("a",)),
    SchemaCase("maxLength", {"type": "string", "maxLength": 2}, ("", "äö"), ("abc",)),
    SchemaCase("maxLength", {"maxLength": 2}, ("ab", 123), ("abc",)),
    SchemaCase("pattern", {"type": "string", "pattern": "^[a-c]+$"}, ("abc",), ("abd", "")),
    SchemaCase("pattern", {"type": "string", "pattern": "b"}, ("b",), ("ac",)),
    SchemaCase("pattern", {"type": "string", "pattern": "^a+$", "maxLength": 2}, ("aa",), ("aaa",)),
    *_formats(),
    SchemaCase("format", {"type": "string", "format": "date", "maxLength": 4}, (), ("2024-02-29",)),
    # numbers
    SchemaCase("minimum", {"type": "integer", "minimum": 5}, (5, 123), (4, -7)),
    SchemaCase("minimum", {"type": "number", "minimum": 0.5}, (0.5, 2), (0.25, -1)),
    SchemaCase("maximum", {"type": "integer", "maximum": 12}, (12, -50), (13, 100)),
    SchemaCase("maximum", {"type": "number", "minimum": 0, "maximum": 1}, (0.75, 1), (1.5, -0.5)),
    SchemaCase("maximum", {"maximum": 12}, (12, "a"), (13,)),
    SchemaCase("exclusiveMinimum", {"type": "integer", "exclusiveMinimum": 5}, (6,), (5,)),
    SchemaCase("exclusiveMinimum", {"type": "number", "exclusiveMinimum": 0}, (0.5,), (0, -1)),
    SchemaCase("exclusiveMaximum", {"type": "integer", "exclusiveMaximum": 5}, (4,), (5,)),
    SchemaCase("exclusiveMaximum", {"type": "number", "exclusiveMaximum": 1}, (0.5,), (1, 2)),
    SchemaCase("minimum", {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}, (-5, 2**62), (2**63, -(2**63) - 1)),
    SchemaCase("maximum", {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}, (0, 2**62), (-1, 2**64)),
    SchemaCase("multipleOf", {"type": "integer", "multipleOf": 3}, (0, 9), (10,)),
    SchemaCase("multipleOf", {"type": "integer", "multipleOf": 3, "minimum": 4}, (6,), (3, 7)),
    # arrays
    SchemaCase("items", {"type": "array", "items": _INT}, ([], [1, 2]), (["a"], [1, "a"])),
    SchemaCase("items", {"items": _INT}, ([1],), (["a"],)),
    SchemaCase("prefixItems", {"type": "array", "prefixItems": [_INT, _STR]}, ([1, "a"], [1, "a", None]), (["a"], [1, 2])),
    SchemaCase("prefixItems", {"type": "array", "prefixItems": [_INT], "items": False, "minItems": 1}, ([1],), ([], [1, 2])),
    SchemaCase("prefixItems", {"type": "array", "prefixItems": [_INT], "items": _STR}, ([1, "a"],), ([1, 2],)),
    SchemaCase("minItems", {"type": "array", "items": _INT, "minItems": 2}, ([1, 2],), ([1], [])),
    SchemaCase("maxItems", {"type": "array", "items": _INT, "maxItems": 2}, ([1, 2], []), ([1, 2, 3],)),
    SchemaCase("uniqueItems", {"type": "array", "items": _INT, "uniqueItems": True}, ([1, 2],), ([1, 1],)),
    SchemaCase("uniqueItems", {"type": "array", "items": _INT, "uniqueItems": False}, ([1, 1],), (["a"],)),
    SchemaCase("contains", {"type": "array", "contains": _INT}, ([1],), (["a"], [])),
    SchemaCase("minContains", {"type": "array", "contains": _INT, "minContains": 2}, ([1, 2],), ([1],)),
    SchemaCase("maxContains", {"type": "array", "contains": _INT, "maxContains": 1}, ([1],), ([1, 2],)),
    SchemaCase("unevaluatedItems", {"type": "array", "prefixItems": [_INT], "unevaluatedItems": False}, ([1],), ([1, 2],)),
    # objects
    SchemaCase("properties", {"type": "object", "properties": {"a": _INT}}, ({"a": 1}, {}), ({"a": "x"},)),
    SchemaCase("properties", {"properties": {"a": _INT}}, ({"a": 1},), ({"a": "x"},)),
    SchemaCase(
        "required", {"type": "object", "properties": {"a": _INT, "b": _INT}, "required": ["b"]}, ({"b": 1},), ({"a": 1}, {})
    ),
    SchemaCase("required", {"type": "object", "required": ["b"]}, ({"b": 1},), ({},)),
    SchemaCase("additionalProperties", closed_object(a=_INT), ({"a": 1},), ({"a": 1, "b": 2}, {})),
    SchemaCase("additionalProperties", {"type": "object", "additionalProperties": _INT}, ({"x": 1},), ({"x": "a"},)),
    SchemaCase("additionalProperties", {"type": "object", "properties": {"a": _STR}}, ({"a": "x"}, {}), ({"a": 1},)),
    SchemaCase(
        "additionalProperties",
        {"properties": {"a": _STR}, "additionalProperties": True},
        ({"a": "x", "b": 1}, {"b": 1}),
        ({"a": 1, "b": 2},),
    ),
    SchemaCase(
        "patternProperties",
        {"type": "object", "patternProperties": {"^x": _INT}, "additionalProperties": False},
        ({"x1": 1},),
        ({"x1": "a"}, {"y": 1}),
    ),
    SchemaCase(
        "propertyNames",
        {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": _INT},
        ({"b": 1}, {}),
        ({"c": 1}, {"a": "x"}),
    ),
    SchemaCase("propertyNames", {"type": "object", "propertyNames": {"pattern": "^a"}}, ({"ab": 1},), ({"b": 1},)),
    SchemaCase(
        "minProperties", {"type": "object", "additionalProperties": _INT, "minProperties": 2}, ({"a": 1, "b": 2},), ({"a": 1}, {})
    ),
    SchemaCase("minProperties", {"type": "object", "properties": {"a": _INT}, "minProperties": 1}, ({"a": 1},), ({},)),
    SchemaCase("minProperties", {"type": "object", "additionalProperties": _INT, "minProperties": 1}, ({"a": 1},), ({},)),
    SchemaCase(
        "maxProperties", {"type": "object", "additionalProperties": _INT, "maxProperties": 1}, ({"a": 1}, {}), ({"a": 1, "b": 2},)
    ),
    SchemaCase(
        "maxProperties",
        {"type": "object", "properties": {"a": _INT, "b": _INT}, "maxProperties": 1},
        ({"a": 1},),
        ({"a": 1, "b": 2},),
    ),
    SchemaCase(
        "dependentRequired",
        {"type": "object", "properties": {"a": _INT}, "dependentRequired": {"a": ["b"]}},
        ({"a": 1, "b": 1},),
        ({"a": 1},),
    ),
    SchemaCase(
        "dependentSchemas",
        {"type": "object", "properties": {"a": _INT}, "dependentSchemas": {"a": {"required": ["b"]}}},
        ({},),
        ({"a": 1},),
    ),
    SchemaCase(
        "unevaluatedProperties",
        {"type": "object", "properties": {"a": _INT}, "unevaluatedProperties": False},
        ({"a": 1},),
        ({"a": 1, "b": 1},),
    ),
    # composition
    SchemaCase("anyOf", {"anyOf": [_INT, _STR]}, (1, "a"), (None,)),
    SchemaCase("anyOf", {"type": "object", "properties": {"a": _INT}, "anyOf": [{"required": ["a"]}]}, ({"a": 1},), ({},)),
    SchemaCase("anyOf", {"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 1}]}, (6, 0), (3, "a")),
    SchemaCase("oneOf", {"oneOf": [_INT, _STR]}, (1, "a"), (None,)),
    SchemaCase(
        "oneOf",
        {"oneOf": [closed_object(k={"const": "a"}), closed_object(k={"const": "b"}, n=_INT)]},
        ({"k": "a"}, {"k": "b", "n": 1}),
        ({"k": "c"},),
    ),
    SchemaCase("oneOf", {"oneOf": [{"type": "integer", "maximum": 5}, {"type": "integer", "minimum": 5}]}, (3, 7), (5,)),
    SchemaCase("allOf", {"allOf": [{"type": "integer"}, {"minimum": 5}]}, (6,), (4,)),
    SchemaCase("allOf", {"allOf": [closed_object(a=_INT)]}, ({"a": 1},), ({},)),
    SchemaCase("allOf", {"type": "integer", "allOf": [{"minimum": 5}, {"maximum": 9}]}, (6,), (4, 10)),
    SchemaCase("not", {"type": "integer", "not": {"const": 5}}, (6,), (5,)),
    SchemaCase("if, then, else", {"type": "integer", "if": {"minimum": 5}, "then": {"maximum": 9}}, (3, 6), (10,)),
    SchemaCase("if, then, else", {"type": "integer", "if": {"minimum": 5}, "else": {"maximum": 1}}, (6,), (3,)),
    # references
    SchemaCase("$ref, $defs", {"$defs": {"n": _INT}, "type": "array", "items": {"$ref": "#/$defs/n"}}, ([1],), (["a"],)),
    SchemaCase("$ref, $defs", {"$defs": {"n": _INT}, "$ref": "#/$defs/n", "minimum": 5}, (6,), (4,)),
    SchemaCase(
        "$ref, recursive", _TREE, ({"value": 1}, {"value": 1, "next": {"value": 2, "next": None}}), ({"value": 1, "next": 2},)
    ),
    SchemaCase("$anchor", {"$defs": {"n": {"$anchor": "num", "type": "integer"}}, "$ref": "#num"}, (1,), ("a",)),
    SchemaCase("$dynamicRef", {"$defs": {"n": {"$dynamicAnchor": "num", "type": "integer"}}, "$dynamicRef": "#num"}, (1,), ("a",)),
    SchemaCase(
        "annotations",
        {
            "type": "integer",
            "title": "t",
            "description": "d",
            "default": 1,
            "examples": [2],
            "deprecated": True,
            "readOnly": True,
            "$comment": "c",
        },
        (1,),
        ("a",),
    ),
]
