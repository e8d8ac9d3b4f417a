"""What the grammar library does not hold is said in other words, or refused with keyword, place and subject."""

from typing import Any

import pytest

from radixserve.errors import InvalidRequestError
from radixserve.text.schemas.enforceable import enforceable
from radixserve.text.schemas.numbers import LAST_INT64

BIG = 9007199254740993
"""No double."""


def refusal(schema: dict[str, Any], subject: str = "the json_schema") -> str:
    with pytest.raises(InvalidRequestError) as caught:
        enforceable(schema, subject)
    assert caught.value.param == "grammar"
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    "inner",
    [
        {"const": BIG},
        {"const": {"id": [BIG]}},
        {"enum": [1, BIG]},
        {"enum": [1234567890123456789]},
        {"const": 2**63 - 1},
        {"const": 1e300},
        {"const": 1e-10},
        {"type": "integer", "minimum": BIG},
        {"type": "integer", "maximum": BIG},
        {"type": "integer", "exclusiveMinimum": BIG},
        {"type": "integer", "exclusiveMaximum": -BIG},
        {"type": "integer", "minimum": 2**64},
        {"type": "number", "minimum": 1e30},
        {"type": "number", "maximum": 5e-324},
        {"multipleOf": BIG},
        {"multipleOf": 0.123456789},
        {"multipleOf": 0},
        {"minimum": "1"},
        {"exclusiveMinimum": True},
    ],
)
def test_numbers_that_can_not_be_kept_are_refused_with_keyword_and_place(inner: dict[str, Any]) -> None:
    keyword = list(inner)[-1]
    message = refusal({"properties": {"a/b": {"anyOf": [inner]}}})
    assert message.startswith(f'"{keyword}" at #/properties/a~1b/anyOf/0 of the json_schema')


@pytest.mark.parametrize("kind", ["integer", ["integer", "null"]])
@pytest.mark.parametrize("bound", [2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, 1e30, 9.3e18])
def test_bounds_that_every_64_bit_integer_satisfies_are_moved_to_the_last_that_can_be_kept(kind: Any, bound: float) -> None:
    assert enforceable({"type": kind, "minimum": -bound, "maximum": bound}) == {
        "type": kind,
        "minimum": -LAST_INT64,
        "maximum": LAST_INT64,
    }


@pytest.mark.parametrize(("number", "kept"), [(5.0, 5), (2**53, 2**53), (2.0**60, 2**60), (-0.25, -0.25), (1e16, 10**16)])
def test_numbers_that_can_be_kept_are_kept(number: float, kept: float) -> None:
    assert enforceable({"enum": [{"a": [number]}]}) == {"enum": [{"a": [kept]}]}


@pytest.mark.parametrize(
    "nothing",
    [
        {"uniqueItems": False},
        {"minContains": 0},
        {"maxContains": 3},
        {"contains": {"type": "null"}, "minContains": 0},
        {"propertyNames": True},
        {"propertyNames": {}},
        {"dependentRequired": {}},
        {"dependentSchemas": {}},
        {"dependencies": {}},
        {"unevaluatedItems": True},
        {"unevaluatedProperties": {}},
        {"not": False},
        {"if": {"minimum": 1}},
        {"then": {"minimum": 1}},
        {"else": False},
        {"additionalItems": False},
        {"minProperties": 0},
        {"format": "int64"},
        {"propertyNames": {"type": "string"}},
        {"$dynamicAnchor": "a"},
        {"x-guidance": {"lenient": True}},
        {"title": "t", "examples": {"a": 1}},
    ],
)
def test_keywords_that_say_nothing_are_dropped(nothing: dict[str, Any]) -> None:
    assert enforceable({"type": "integer", **nothing}) == {"type": "integer"}


@pytest.mark.parametrize("name", ["path", "password", "binary", "colour", ""])
def test_a_format_that_json_schema_does_not_define_says_nothing(name: str) -> None:
    assert enforceable({"type": "string", "format": name}) == {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"uniqueItems": True}, '"uniqueItems" at # of'),
        ({"contains": {}, "maxContains": 2, "minContains": 0}, '"contains" at # of'),
        ({"not": {}}, '"not" at # of'),
        ({"$defs": {"a": {"if": True, "then": False}}}, '"if" at #/$defs/a of'),
        ({"minProperties": 2}, '"minProperties" at # of'),
        ({"properties": {"a": {}}, "patternProperties": {"^x": {}}, "minProperties": 2}, '"minProperties" at # of'),
        ({"type": "string", "format": "uri-template"}, "'uri-template', which can't be enforced"),
        ({"type": "string", "format": ["date"]}, "which can't be enforced"),
        ({"propertyNames": {"pattern": "^a"}}, '"propertyNames" at # of'),
        ({"propertyNames": {"enum": ["a"]}, "patternProperties": {"^x": {}}}, '"propertyNames" at # of'),
        ({"pattern": "^(?!(?:a|b)$)x"}, "look-around"),
        ({"pattern": "a(?=b)"}, "look-around"),
        ({"pattern": "^(?=" + "[]" * 60}, "look-around"),
        ({"pattern": r"^(?=\A)a"}, '"pattern" at # of'),
        ({"const": "\x01"}, '"const" at # of'),
        ({"properties": {"\x7f": {}}}, '"properties" at # of'),
        ({"properties": {"\n": {"enum": []}}}, '"enum" at #/properties/? of'),
        ({"minLength": -1}, '"minLength" at # of the json_schema is -1'),
        ({"pattern": r"\A"}, '"pattern" at # of'),
        ({"pattern": "(?i)a"}, "flags"),
        ({"patternProperties": {"^(?!a)": {}}}, '"patternProperties" at # of'),
        ({"$ref": "#"}, "leads back to itself"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}}, "leads back to itself"),
        ({"$ref": "#/$defs/none"}, "which is not there"),
        ({"$ref": "https://example.org/a"}, "in the schema itself"),
    ],
)
def test_what_can_not_be_enforced_is_refused_with_keyword_and_place(schema: dict[str, Any], words: str) -> None:
    assert words in refusal(schema)
    assert "the parameters of the tool 'f'" in refusal(schema, "the parameters of the tool 'f'")


def test_many_references_to_the_same_take_no_time() -> None:
    """Each definition refers to the next twice: 2**60 ways through them."""
    steps = {f"s{i}": {"allOf": [{"$ref": f"#/$defs/s{i + 1}"}] * 2} for i in range(60)}
    enforceable({"$defs": steps | {"s60": {"properties": {"a": {}}}}, "properties": {"a": {}}, "$ref": "#/$defs/s0"})


A, B = {"type": "object", "properties": {"a": {}}}, {"properties": {"b": {}}}


@pytest.mark.parametrize(
    ("schema", "places"),
    [
        (A, [()]),
        (A | {"additionalProperties": True}, []),
        (A | {"additionalProperties": {"type": "integer"}}, []),
        ({"type": "object"}, []),
        ({"type": "object", "properties": {}}, [()]),
        ({"patternProperties": {"^x": {}}}, [()]),
        ({"anyOf": [A, B]}, [("anyOf", 0), ("anyOf", 1)]),
        ({"allOf": [A]}, [("allOf", 0)]),
        ({"allOf": [A, B]}, []),
        (A | {"anyOf": [{"required": ["a"]}, {"properties": {"a": {"minimum": 5}}}]}, [()]),
        (A | {"anyOf": [B]}, []),
        ({"$defs": {"x": A}, "$ref": "#/$defs/x"}, [("$defs", "x")]),
        ({"$defs": {"x": A}, "$ref": "#/$defs/x", **B}, []),
        ({"$defs": {"x": A, "y": {"$ref": "#/$defs/x"}}, "allOf": [{"$ref": "#/$defs/y"}, B]}, []),
        ({"$defs": {"x": A | {"$anchor": "x"}}, "allOf": [{"$ref": "#x"}, B]}, []),
        ({"properties": {"p": A}, "additionalProperties": {"items": B}}, [("properties", "p"), ("additionalProperties", "items")]),
    ],
)
def test_objects_are_closed_where_their_schema_declares_all_of_them(schema: dict[str, Any], places: list[tuple[Any, ...]]) -> None:
    out, found = enforceable(schema), []

    def look(here: Any, place: tuple[Any, ...]) -> None:
        if isinstance(here, dict) and here.get("additionalProperties") is False:
            found.append(place)
        inner = here.items() if isinstance(here, dict) else enumerate(here) if isinstance(here, list) else ()
        for key, value in inner:
            look(value, (*place, key))

    look(out, ())
    assert sorted(found, key=str) == sorted(places, key=str)


def test_what_a_closed_object_demands_and_does_not_name_may_have_any_value() -> None:
    assert enforceable(A | {"required": ["a", "b"]})["properties"] == {"a": {}, "b": {}}
