"""The last line of defence: a finished answer that breaks its schema is an error on every API, never a success."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from radixserve.limits import Limits
from tests.server.fake_engine import FakeClient, http, make_service

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer", "maximum": 2**62}}, "required": ["id"]}
RIGHT, WRONG, TWICE, NO_JSON = '{"id": 7}', '{"id": "secret"}', r'{"id": 7, "\u0069d": "secret"}', '{"id": NaN}'
MESSAGES = [{"role": "user", "content": "Hi"}]
FORMAT = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
TAG = {"type": "structural_tag", "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}], "triggers": ["<f"]}
OPENAI_TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
CALL = '<tool_call>\n{{"name": "f", "arguments": {}}}\n</tool_call>'

ASKED: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/completions", {"prompt": "a", "response_format": FORMAT}, "{}"),
    ("/v1/completions", {"prompt": "a", "guided_json": json.dumps(SCHEMA)}, "{}"),
    ("/v1/completions", {"prompt": "a", "structured_outputs": {"json": SCHEMA}}, "{}"),
    ("/v1/completions", {"prompt": "a", "response_format": TAG}, "so <f>{}</f>"),
    ("/generate", {"text": "a", "sampling_params": {"json_schema": json.dumps(SCHEMA)}}, "{}"),
    ("/v1/chat/completions", {"messages": MESSAGES, "response_format": FORMAT}, "{}"),
    ("/v1/chat/completions", {"messages": MESSAGES, "response_format": FORMAT, "tools": [OPENAI_TOOL]}, "{}"),
    ("/v1/chat/completions", {"messages": MESSAGES, "tools": [OPENAI_TOOL], "tool_choice": "required"}, CALL),
    (
        "/v1/chat/completions",
        {"messages": MESSAGES, "tools": [{"type": "function", "function": OPENAI_TOOL["function"] | {"strict": True}}]},  # type: ignore[operator]
        CALL,
    ),
    ("/v1/responses", {"input": "Hi", "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}}, "{}"),
    (
        "/v1/responses",
        {"input": "Hi", "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}], "tool_choice": "required"},
        CALL,
    ),
    (
        "/v1/messages",
        {"max_tokens": 90, "messages": MESSAGES, "tools": [{"name": "f", "input_schema": SCHEMA}], "tool_choice": {"type": "any"}},
        CALL,
    ),
]


def ask(model: Path, client: FakeClient, route: str, body: dict[str, Any]) -> tuple[httpx.Response, str]:
    """The reply of a server on `client`, and its metrics."""
    service = make_service(model, client)
    service.info = msgspec.structs.replace(service.info, limits=Limits(259, 5000, 5000, 1))

    async def post() -> httpx.Response:
        async with http(service) as asking:
            return await asking.post(route, json=body)

    return asyncio.run(post()), service.metrics.render().decode()


def pieces(text: str) -> list[str]:
    return [text[:4], text[4:]]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("route", "asked", "form"), ASKED, ids=lambda value: str(value)[:60])
def test_an_answer_that_breaks_its_schema_is_an_error(
    tiny_model_dir: Path, route: str, asked: dict[str, Any], form: str, stream: bool
) -> None:
    for arguments in (WRONG, TWICE, NO_JSON):
        text = form.replace("{{", "{").replace("}}", "}").replace("{}", arguments)
        reply, metrics = ask(tiny_model_dir, FakeClient(texts=pieces(text)), route, asked | {"stream": stream})
        assert reply.status_code == (200 if stream else 500)
        assert "error" in reply.text
        if arguments != NO_JSON:
            assert "#/properties/id" in reply.text
        assert stream or "secret" not in reply.text
        assert "radixserve_schema_violations_total 1.0" in metrics


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("route", "asked", "form"), ASKED, ids=lambda value: str(value)[:60])
def test_right_answers_and_those_that_were_cut_pass(
    tiny_model_dir: Path, route: str, asked: dict[str, Any], form: str, stream: bool
) -> None:
    right = form.replace("{{", "{").replace("}}", "}").replace("{}", RIGHT)
    for client in (FakeClient(texts=pieces(right)), FakeClient(texts=pieces(right[:-3]), stop_reason="stop")):
        reply, metrics = ask(tiny_model_dir, client, route, asked | {"stream": stream})
        assert reply.status_code == 200, reply.text
        assert "radixserve_schema_violations_total 0.0" in metrics


def test_a_map_with_a_key_twice_is_right_when_its_values_are(tiny_model_dir: Path) -> None:
    asked = {"prompt": "a", "guided_json": {"type": "object", "additionalProperties": {"type": "integer"}}}
    for last, status in (("2", 200), ('"b"', 500)):
        reply, _ = ask(tiny_model_dir, FakeClient(texts=[f'{{"a": 1, "a": {last}}}']), "/v1/completions", asked)
        assert reply.status_code == status, reply.text


def test_long_answers_are_checked_too(tiny_model_dir: Path) -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    for last, status in ((1, 200), ("x", 500)):
        text = json.dumps([*range(10_000), last])
        reply, _ = ask(tiny_model_dir, FakeClient(texts=[text]), "/v1/completions", {"prompt": "a", "guided_json": schema})
        assert reply.status_code == status


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"properties": {"a": {"type": "whole"}}}, '"type" at #/properties/a'),
        ({"properties": {"a": {"pattern": "["}}}, '"pattern" at #/properties/a'),
        ({"items": {"required": "a"}}, '"required" at #/items'),
        ({"$ref": "http://example.org/"}, '"$ref" at #'),
    ],
)
def test_what_is_no_schema_is_refused_before_it_is_asked_for(tiny_model_dir: Path, schema: dict[str, Any], words: str) -> None:
    client = FakeClient()
    for route, asked in (("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": MESSAGES})):
        reply, _ = ask(tiny_model_dir, client, route, asked | {"guided_json": schema})
        assert reply.status_code == 400
        assert words in reply.json()["error"]["message"]
        assert reply.json()["error"]["param"] == "guided_json"
    tool = {"type": "function", "function": {"name": "weather", "parameters": schema | {"type": "object"}, "strict": True}}
    reply, _ = ask(tiny_model_dir, client, "/v1/chat/completions", {"messages": MESSAGES, "tools": [tool]})
    assert reply.status_code == 400
    assert "'weather'" in reply.json()["error"]["message"]
    assert client.requests == []


@pytest.mark.parametrize("text", ["NaN", '{"const": 1e400}', '{"enum": [Infinity]}', '{"maximum": -Infinity}'])
@pytest.mark.parametrize("field", ["guided_json", "json_schema", "structured_outputs", "structural_tag"])
def test_schemas_as_text_are_strict_json(tiny_model_dir: Path, field: str, text: str) -> None:
    given: dict[str, Any] = {field: text}
    if field == "structured_outputs":
        given = {field: {"json": text}}
    if field == "structural_tag":
        tag = f'{{"structures": [{{"begin": "<f>", "schema": {text}, "end": "</f>"}}], "triggers": ["<f"]}}'
        given = {"structured_outputs": {field: tag}}
    reply, _ = ask(tiny_model_dir, FakeClient(), "/v1/completions", {"prompt": "a"} | given)
    assert reply.status_code == 400, reply.text
