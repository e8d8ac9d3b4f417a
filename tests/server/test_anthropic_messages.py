"""/v1/messages, by Anthropic's own client: whole and streamed, tools, what the cache gave, errors."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
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
TOOL: dict[str, Any] = {"name": "get_weather", "description": "Weather of a city", "input_schema": SCHEMA}
ASK: dict[str, Any] = {
    "model": "tiny",
    "max_tokens": 12,
    "messages": [{"role": "user", "content": "How is it?"}],
    "extra_body": {"temperature": 0, "ignore_eos": True},
}
FORCED = ASK | {
    "tools": [TOOL],
    "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    "max_tokens": 200,
    "extra_body": {"temperature": 0},
}
BODY: dict[str, Any] = {"max_tokens": 4, "messages": [{"role": "user", "content": "a"}]}


@pytest.fixture(scope="module")
def client(tool_server: RunningServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=tool_server.url, api_key="none", max_retries=0) as client:
        yield client


def test_a_stream_equals_the_whole(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(**ASK)
    assert (whole.type, whole.role, whole.model, whole.stop_reason) == ("message", "assistant", "tiny", "max_tokens")
    assert whole.content[0].type == "text"
    with client.messages.stream(**ASK) as stream:
        texts = list(stream.text_stream)
        final = stream.get_final_message()
    assert final.content[0].text == "".join(texts) == whole.content[0].text
    assert (final.stop_reason, final.usage.output_tokens) == ("max_tokens", 12)


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}])
def test_a_forced_call_whole_and_streamed(client: anthropic.Anthropic, choice: dict[str, Any]) -> None:
    asked = FORCED | {"tool_choice": choice | {"disable_parallel_tool_use": True}}
    whole = client.messages.create(**asked)
    (call,) = whole.content
    assert (whole.stop_reason, call.type, call.name) == ("tool_use", "tool_use", "get_weather")
    assert call.input["city"] in ("Rome", "Zürich 🙂")
    with client.messages.stream(**asked) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert (final.stop_reason, final.content[0].input) == ("tool_use", call.input)
    assert kinds.count("input_json") > 1


def test_events_come_in_their_order(tool_server: RunningServer) -> None:
    body = {name: value for name, value in FORCED.items() if name != "extra_body"}
    text = tool_server.post("/v1/messages", **body, temperature=0, stream=True).text
    frames = [frame.split("\n", 1) for frame in text.removesuffix("\n\n").split("\n\n")]
    data = [json.loads(rest.removeprefix("data: ")) for _, rest in frames]
    assert [name.removeprefix("event: ") for name, _ in frames] == [event["type"] for event in data]
    kinds = list(dict.fromkeys(event["type"] for event in data))
    blocks = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert kinds == ["message_start", "ping", *blocks, "message_delta", "message_stop"]
    assert data[0]["message"]["content"] == []
    assert data[2]["content_block"]["input"] == {}


def test_a_call_and_its_result_are_turns_of_the_prompt(client: anthropic.Anthropic) -> None:
    call = client.messages.create(**FORCED)
    result = {"type": "tool_result", "tool_use_id": call.content[0].id, "content": [{"type": "text", "text": "sunny"}]}
    history = [*ASK["messages"], {"role": "assistant", "content": call.content}, {"role": "user", "content": [result]}]
    after = client.messages.create(**ASK | {"tools": [TOOL], "messages": history})
    assert after.usage.cache_read_input_tokens > call.usage.input_tokens + call.usage.cache_read_input_tokens
    counted = client.messages.count_tokens(model="tiny", messages=history, tools=[TOOL])
    assert counted.input_tokens == after.usage.input_tokens + after.usage.cache_read_input_tokens


def test_tokens_are_read_from_the_cache_without_being_asked_to(client: anthropic.Anthropic) -> None:
    marked = {"type": "text", "text": "You answer in verse.", "cache_control": {"type": "ephemeral"}}
    asked = ASK | {"system": [marked], "messages": [{"role": "user", "content": [{"type": "text", "text": "Why rivers?"}]}]}
    cold, warm = client.messages.create(**asked).usage, client.messages.create(**asked).usage
    assert cold.cache_creation_input_tokens == warm.cache_creation_input_tokens == 0
    assert warm.input_tokens == 1
    assert warm.cache_read_input_tokens == cold.input_tokens + cold.cache_read_input_tokens - 1
    with client.messages.stream(**asked) as stream:
        streamed = stream.get_final_message().usage
    assert (streamed.input_tokens, streamed.cache_read_input_tokens) == (1, warm.cache_read_input_tokens)


def test_an_answer_goes_on_from_words_put_into_the_models_mouth(client: anthropic.Anthropic) -> None:
    begun = [*ASK["messages"], {"role": "assistant", "content": "It is"}]
    counted = [client.messages.count_tokens(model="tiny", messages=messages).input_tokens for messages in (begun, ASK["messages"])]
    assert counted[0] == counted[1] + len("It is")


def test_a_stop_sequence_is_named(client: anthropic.Anthropic) -> None:
    text = client.messages.create(**ASK).content[0].text
    stopped = client.messages.create(**ASK | {"stop_sequences": [text[3:5]]})
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", text[3:5])
    assert stopped.content[0].text == text[: text.index(text[3:5])]


def test_more_tokens_than_there_is_room_for_end_where_the_room_does(server: RunningServer) -> None:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        reply = client.messages.create(**ASK | {"max_tokens": 9_000})
    assert reply.stop_reason == "model_context_window_exceeded"
    assert reply.usage.input_tokens + reply.usage.cache_read_input_tokens + reply.usage.output_tokens == 301


def test_an_answer_satisfies_its_schema(client: anthropic.Anthropic) -> None:
    asked = ASK | {
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        "max_tokens": 100,
        "extra_body": {"temperature": 0},
    }
    assert json.loads(client.messages.create(**asked).content[0].text)["city"] in ("Rome", "Zürich 🙂")


WRONG = [
    ({"max_tokens": 0}, "max_tokens"),
    ({"temperature": -1}, "temperature"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "image"),
    ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "bash_20250124"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ({"stop_sequences": [""]}, "stop_sequences"),
    ({"container": "c"}, "container"),
    ({"cache_salt": ""}, "cache_salt"),
    ({"output_config": {"format": {"schema": {"not": {}}}}}, "output_config"),
]


@pytest.mark.parametrize(("wrong", "named"), WRONG, ids=[named for _, named in WRONG])
def test_errors_are_in_the_words_of_the_api(tool_server: RunningServer, wrong: dict[str, Any], named: str) -> None:
    for stream in (False, True):
        reply = tool_server.post("/v1/messages", **BODY | wrong, stream=stream)
        assert reply.status_code == 400
        assert reply.json()["type"] == "error"
        assert reply.json()["error"]["type"] == "invalid_request_error"
        assert named in reply.json()["error"]["message"]


def test_the_client_raises_its_own_errors(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="'other' is not served"):
        client.messages.create(**ASK | {"model": "other"})
    with pytest.raises(anthropic.BadRequestError, match="max_tokens is missing"):
        client.post("/v1/messages", body={"messages": []}, cast_to=object)


def test_the_key_comes_in_either_header(tiny_model_dir: Path) -> None:
    async def ask() -> list[httpx.Response]:
        async with http(make_service(tiny_model_dir, FakeClient(), ServerConfig(api_key="key"))) as client:
            headers = [{"x-api-key": "key"}, {"authorization": "Bearer key"}, {"x-api-key": "wrong"}, {}]
            return [await client.post("/v1/messages", json=BODY, headers=header) for header in headers]

    replies = asyncio.run(ask())
    assert [reply.status_code for reply in replies] == [200, 200, 401, 401]
    assert replies[2].json()["error"]["type"] == "authentication_error"


def test_a_stream_that_fails_ends_with_an_error(tiny_model_dir: Path) -> None:
    async def ask() -> httpx.Response:
        async with http(make_service(tiny_model_dir, FakeClient(EngineDeadError("the engine has died")))) as client:
            return await client.post("/v1/messages", json=BODY | {"stream": True})

    *_, last = asyncio.run(ask()).text.removesuffix("\n\n").split("\n\n")
    name, data = last.split("\n")
    assert name == "event: error"
    assert json.loads(data.removeprefix("data: "))["error"]["type"] == "overloaded_error"
