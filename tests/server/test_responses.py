"""/v1/responses, by the official client: whole and streamed, tools, conversations that go on, the store, errors."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pydantic
import pytest

from radixserve.config import ServerConfig
from radixserve.errors import EngineDeadError
from tests.server.fake_engine import FakeClient, http, make_service
from tests.server.running import RunningServer

SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Zürich 🙂"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL: dict[str, Any] = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": True}
ASK: dict[str, Any] = {
    "model": "tiny",
    "input": "How is it?",
    "max_output_tokens": 12,
    "temperature": 0,
    "extra_body": {"ignore_eos": True},
}
FORCED = ASK | {
    "tools": [TOOL],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "max_output_tokens": 200,
    "extra_body": {},
}


@pytest.fixture(scope="module")
def client(tool_server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{tool_server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_stream_equals_the_whole(client: openai.OpenAI) -> None:
    whole = client.responses.create(**ASK, include=["message.output_text.logprobs"], top_logprobs=2)
    assert (whole.status, whole.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert whole.usage.output_tokens == len(whole.output[0].content[0].logprobs) == 12
    with client.responses.stream(**ASK, include=["message.output_text.logprobs"], top_logprobs=2) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:4]] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert [event.type for event in events[-4:]] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert "".join(event.delta for event in deltas) == whole.output_text == events[-1].response.output_text
    streamed, kept = events[-1].response, client.responses.retrieve(events[-1].response.id)
    scores = [[score.logprob for score in answer.output[0].content[0].logprobs] for answer in (whole, streamed)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)
    assert [score.logprob for event in deltas for score in event.logprobs] == scores[1]
    assert kept.output_text == streamed.output_text
    assert kept.usage == streamed.usage


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "get_weather"}])
def test_a_forced_call_whole_and_streamed(client: openai.OpenAI, choice: Any) -> None:
    whole = client.responses.create(**FORCED | {"tool_choice": choice})
    (call,) = whole.output
    assert (whole.status, call.type, call.name, call.status) == ("completed", "function_call", "get_weather", "completed")
    assert json.loads(call.arguments)["city"] in ("Rome", "Zürich 🙂")
    with client.responses.stream(**FORCED | {"tool_choice": choice}) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output[0].arguments == call.arguments
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == call.arguments
    assert len(deltas) > 1
    (done,) = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert (done.name, done.arguments) == (call.name, call.arguments)


def test_parse_gives_an_object(client: openai.OpenAI) -> None:
    class Digit(pydantic.BaseModel):
        digit: bool

    parsed = client.responses.parse(**ASK | {"max_output_tokens": 60, "extra_body": {}}, text_format=Digit)
    assert isinstance(parsed.output_parsed, Digit)


@pytest.mark.parametrize("by", ["id", "items"])
def test_a_conversation_goes_on_from_all_of_it(client: openai.OpenAI, by: str) -> None:
    """The tokens that end an answer are never fed back: here the last letter, the quote that it forces, and the end itself."""
    word = {"type": "string", "pattern": "^[a-z]{20}$"}  # bytes at random would come back as other tokens
    form = {"format": {"type": "json_schema", "name": "word", "schema": word}}
    asked = ASK | {"text": form, "max_output_tokens": 60, "extra_body": {}, "instructions": "Be kind."}
    items: list[Any] = [{"role": "user", "content": f"Tell me more {by}."}]
    before = None
    for question in ("And then?", "Go on."):
        last = client.responses.create(**asked | {"input": items if by == "items" else items[-1:]}, previous_response_id=before)
        items += [*(item.to_dict() for item in last.output), {"role": "user", "content": question}]
        before = last.id if by == "id" else None
    more = client.responses.create(**asked | {"input": items if by == "items" else items[-1:]}, previous_response_id=before)
    assert more.usage.input_tokens_details.cached_tokens >= last.usage.total_tokens - 3
    assert last.usage.input_tokens_details.cached_tokens > 0
    assert more.previous_response_id == before


def test_calls_and_their_outputs_are_turns(client: openai.OpenAI) -> None:
    called = client.responses.create(**FORCED)
    output = {"type": "function_call_output", "call_id": called.output[0].call_id, "output": "sunny"}
    asked = FORCED | {"tool_choice": "none", "max_output_tokens": 5}
    by_id = client.responses.create(**asked | {"previous_response_id": called.id, "input": [output]})
    history = [{"role": "user", "content": ASK["input"]}, called.output[0].to_dict(), output]
    by_items = client.responses.create(**asked | {"input": history})
    assert by_id.output_text == by_items.output_text
    assert by_id.usage.input_tokens == by_items.usage.input_tokens > called.usage.input_tokens + len("sunny")
    assert by_id.usage.input_tokens_details.cached_tokens > called.usage.input_tokens


def test_what_is_not_stored_cant_go_on(client: openai.OpenAI) -> None:
    stored, other = client.responses.create(**ASK), client.responses.create(**ASK, store=False)
    assert client.responses.retrieve(stored.id).to_dict() == stored.to_dict()
    client.responses.delete(stored.id)
    for name in (stored.id, other.id):
        with pytest.raises(openai.NotFoundError, match="whole conversation"):
            client.responses.create(**ASK, previous_response_id=name)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(name)


def test_the_oldest_responses_go_first(tiny_model_dir: Path) -> None:
    async def ask() -> list[int]:
        service = make_service(tiny_model_dir, FakeClient(), ServerConfig(response_store_bytes=3000))
        async with http(service) as client:
            names = [(await client.post("/v1/responses", json={"input": "a"})).json()["id"] for _ in range(4)]
            return [(await client.get(f"/v1/responses/{name}")).status_code for name in names]

    found = asyncio.run(ask())
    assert found == sorted(found, reverse=True)
    assert set(found) == {200, 404}


def test_metadata_and_settings_come_back(client: openai.OpenAI) -> None:
    asked = client.responses.create(**FORCED | {"max_output_tokens": 60}, metadata={"run": "7"}, top_p=0.5, truncation="disabled")
    assert (asked.metadata, asked.top_p, asked.temperature) == ({"run": "7"}, 0.5, 0)
    assert (asked.tool_choice, asked.parallel_tool_calls, asked.tools[0].name) == ("required", False, "get_weather")


WRONG = [
    ({"input": []}, "input"),
    ({"input": [{"type": "computer_call"}]}, "input[0]"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]"),
    ({"input": [{"type": "function_call", "name": "f", "arguments": {}}]}, "input[0].arguments"),
    ({"input": [{"type": "message"}]}, "input[0].role"),
    ({"max_output_tokens": -1}, "max_output_tokens"),
    ({"max_output_tokens": 10**6}, "max_output_tokens"),
    ({"top_logprobs": 21}, "top_logprobs"),
    ({"temperature": -1}, "temperature"),
    ({"tools": [{"type": "web_search"}]}, "tools[0]"),
    ({"tool_choice": {"type": "file_search"}}, "tool_choice"),
    ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
    ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema"),
    ({"text": {"format": {"type": "json_schema", "name": "a", "schema": {"not": {}}}}}, "text.format"),
    ({"truncation": "auto"}, "truncation"),
    ({"background": True}, "background"),
    ({"conversation": "c"}, "conversation"),
    ({"cache_salt": ""}, "cache_salt"),
]


@pytest.mark.parametrize(("wrong", "named"), WRONG, ids=[str(wrong)[:50] for wrong, _ in WRONG])
def test_errors_name_the_field(tool_server: RunningServer, wrong: dict[str, Any], named: str) -> None:
    for stream in (False, True):
        reply = tool_server.post("/v1/responses", **{"input": "a", "max_output_tokens": 2} | wrong, stream=stream)
        assert reply.status_code == 400
        assert named in reply.json()["error"]["message"]
        assert reply.json()["error"]["param"].partition(".")[0] in wrong


def test_a_stream_that_fails_ends_with_a_failed_response(tiny_model_dir: Path) -> None:
    async def ask(*, stream: bool) -> httpx.Response:
        async with http(make_service(tiny_model_dir, FakeClient(EngineDeadError("the engine has died")))) as client:
            return await client.post("/v1/responses", json={"input": "a", "stream": stream})

    assert asyncio.run(ask(stream=False)).status_code == 503
    *_, last = asyncio.run(ask(stream=True)).text.removesuffix("\n\n").split("\n\n")
    name, data = last.split("\n")
    assert name == "event: response.failed"
    assert json.loads(data.removeprefix("data: "))["response"]["error"]["message"] == "the engine has died"
