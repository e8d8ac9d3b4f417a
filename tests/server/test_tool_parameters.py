"""Arguments of a call are an object: parameters that allow anything else are refused on every API, by the tool's name."""

from typing import Any

import pytest

from tests.server.running import RunningServer

WRONG: list[dict[str, Any]] = [
    {"type": "string", "enum": ["z"]},
    {"type": "array"},
    {"type": ["object", "null"]},
    {"enum": [{"a": 1}, "z"]},
    {"const": 3},
    {"anyOf": [{"type": "object"}, {"type": "number"}]},
    {"oneOf": [{"type": "array"}]},
    {"allOf": [{"type": "integer"}]},
    {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
]
MESSAGES = [{"role": "user", "content": "x"}]


def bodies(parameters: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        "/v1/chat/completions": {
            "messages": MESSAGES,
            "max_tokens": 1,
            "tools": [{"type": "function", "function": {"name": "look", "parameters": parameters}}],
        },
        "/v1/responses": {
            "input": "x",
            "max_output_tokens": 1,
            "tools": [{"type": "function", "name": "look", "parameters": parameters}],
        },
        "/v1/messages": {"messages": MESSAGES, "max_tokens": 1, "tools": [{"name": "look", "input_schema": parameters}]},
        "/tokenize": {
            "messages": MESSAGES,
            "tools": [{"type": "function", "function": {"name": "look", "parameters": parameters}}],
        },
    }


@pytest.mark.parametrize("parameters", WRONG, ids=str)
def test_parameters_that_allow_other_than_objects_are_refused(tool_server: RunningServer, parameters: dict[str, Any]) -> None:
    for path, body in bodies(parameters).items():
        reply = tool_server.post(path, **body)
        assert reply.status_code == 400, path
        assert "the parameters of the tool 'look'" in reply.text


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"properties": {"a": {"type": "integer"}}},
        {"type": "object"},
        {"anyOf": [{"type": "object"}, {"properties": {}}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}},
        {"enum": [{"a": 1}]},
    ],
    ids=str,
)
def test_parameters_of_objects_are_taken(tool_server: RunningServer, parameters: dict[str, Any]) -> None:
    for path, body in bodies(parameters).items():
        assert tool_server.post(path, **body).status_code == 200, path
