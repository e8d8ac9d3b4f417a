"""Schemas as clients' libraries write them (zod, pydantic): they are held, however oddly they say what they mean."""

import json
from typing import Any

import pytest

from radixserve.sampling.grammar_llguidance import LLGuidance
from radixserve.sampling_params import Grammar
from radixserve.text.schemas.schema_check import SchemaCheck
from radixserve.text.tokenizer import Tokenizer
from tests.tiny_models import EOS_ID

S = {"type": "string"}
NUMBER = {"type": "number"}


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


OF_ZOD: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "email": (
        S
        | {
            "format": "email",
            "pattern": r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$",
        },
        ["a.b@example.org"],
        ["a..b@example.org", ".a@example.org", "a@b"],
    ),
    "uuid": (
        S | {"format": "uuid", "pattern": "^([0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}|0{8}-.*)$"},
        ["123e4567-e89b-42d3-a456-426614174000"],
        ["123e4567-e89b-92d3-a456-426614174000"],
    ),
    "base64": (
        S | {"format": "base64", "contentEncoding": "base64", "pattern": "^$|^(?:[0-9a-zA-Z+/]{4})*(?:[0-9a-zA-Z+/]{3}=)?$"},
        ["", "YWI="],
        ["a"],
    ),
    "cuid": (S | {"format": "cuid", "pattern": r"^[cC][^\s-]{8,}$"}, ["c12345678"], ["x12345678"]),
    "nanoid": (S | {"format": "nanoid", "pattern": "^[a-zA-Z0-9_-]{5}$"}, ["abc-_"], ["a"]),
    "int": ({"type": "integer", "minimum": -(2**53) + 1, "maximum": 2**53 - 1}, [1, -5], [1.5, 2**53]),
    "record": ({"type": "object", "propertyNames": S, "additionalProperties": NUMBER}, [{"a": 1}, {}], [{"a": "x"}]),
    "record of an enum": (
        {"type": "object", "propertyNames": S | {"enum": ["a", "b"]}, "additionalProperties": NUMBER, "required": ["a", "b"]},
        [{"a": 1, "b": 2}],
        [{"a": 1}, {"a": 1, "b": 2, "c": 3}, {"a": "x", "b": 1}],
    ),
    "optional": ({"anyOf": [{"not": {}}, S]}, ["x"], [1]),
    "never": ({"properties": {"a": S, "b": {"not": {}}}, "required": ["a"]}, [{"a": "x"}], [{"a": "x", "b": 1}]),
    "discriminated union": (
        {"oneOf": [closed(k=S | {"const": "a"}, x=S), closed(k=S | {"const": "b"}, y=NUMBER)]},
        [{"k": "a", "x": "q"}, {"k": "b", "y": 1}],
        [{"k": "a", "y": 1}],
    ),
    "loose object": (closed(a=S) | {"additionalProperties": {}}, [{"a": "x", "z": 1}], [{}]),
    "starts and ends": (S | {"allOf": [{"pattern": "^a.*"}, {"pattern": ".*z$"}]}, ["a-z"], ["a", "z"]),
}

OF_PYDANTIC: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "decimal": (
        {"anyOf": [NUMBER, S | {"pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"}]},
        [1.5, "1.5", "+.5", "-5.", "007"],
        ["", "+.", "-", "x", "1.2.3"],
    ),
    "keys of an enum": (
        {
            "$defs": {"Colour": {"enum": ["red", "blue"], "title": "Colour", "type": "string"}},
            "additionalProperties": {"type": "integer"},
            "propertyNames": {"$ref": "#/$defs/Colour"},
            "type": "object",
        },
        [{}, {"red": 1}, {"red": 1, "blue": 2}],
        [{"green": 1}, {"red": "x"}],
    ),
    "one key": ({"propertyNames": {"const": "a"}, "type": "object"}, [{}, {"a": [1]}], [{"b": 1}]),
    "Path": (S | {"format": "path"}, ["/etc", ""], [1]),
    "SecretStr": (S | {"format": "password", "writeOnly": True}, ["x"], [1]),
    "bytes": (S | {"format": "binary"}, ["x"], [1]),
    "UUID4": (
        S | {"format": "uuid4"},
        ["123e4567-e89b-42d3-a456-426614174000"],
        ["123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-42d3-7456-426614174000", "x"],
    ),
    "IPvAnyAddress": (S | {"format": "ipvanyaddress"}, ["::1"], [1]),
    "pattern and nullable format": ({"anyOf": [S | {"format": "date-time"}, {"type": "null"}]}, [None], ["2024", 1]),
}

BY_HAND: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "password": (S | {"pattern": r"^(?=.*[A-Z])(?=.*\d).{8,12}$"}, ["Abcdefg1"], ["abcdefg1", "ABCDEFGH", "A1"]),
    "name": (S | {"pattern": r"^(?!_)(?!.*__)[a-z_]{1,64}$"}, ["a_b", "a_"], ["_a", "a__b", ""]),
    "no digit first": (S | {"pattern": "^(?![0-9])[0-9a-z]*$"}, ["", "a1"], ["1a"]),
    "no letter last": (S | {"pattern": "^(?=[a-z]{2}$)"}, ["ab"], ["a", "abc", "a1"]),
}


CASES = [
    (f"{source}: {name}", *case)
    for source, cases in (("zod", OF_ZOD), ("pydantic", OF_PYDANTIC), ("by hand", BY_HAND))
    for name, case in cases.items()
]


@pytest.mark.parametrize(("schema", "right", "wrong"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_schema_that_a_library_writes_is_held(
    compiler: LLGuidance, tokenizer: Tokenizer, schema: dict[str, Any], right: list[Any], wrong: list[Any]
) -> None:
    compiled = compiler.compile(Grammar("json_schema", json.dumps(schema)))
    check = SchemaCheck(schema)

    def taken(value: Any) -> bool:
        matcher = compiled.matcher(ignore_eos=False)
        return all(map(matcher.accept, tokenizer.encode_plain(json.dumps(value)))) and (matcher.finished or matcher.accept(EOS_ID))

    for value in right:
        check.check(json.dumps(value))
        assert taken(value), f"{value!r} can't be said"
    for value in wrong:
        assert not taken(value), f"{value!r} is let through"
