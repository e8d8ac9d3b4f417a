"""Tool calls over HTTP, by the official client: forced by a grammar, since the tiny model would never call by itself."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.server.running import RunningServer, running
from tests.tiny_models import make_tiny_model

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"enum": ["Rome", "Zürich 🙂"]},
                "days": {"type": "array", "items": {"enum": [1, 2]}, "maxItems": 2},
            },
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
ASK: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "How is it?"}],
    "max_tokens": 300,
    "temperature": 0,
}


@pytest.fixture(scope="module")
def client(tool_server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{tool_server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def is_weather(arguments: str) -> bool:
    value = json.loads(arguments)
    return set(value) == {"city", "days"} and value["city"] in ("Rome", "Zürich 🙂") and set(value["days"]) <= {1, 2}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_forced_call_whole_and_streamed(client: openai.OpenAI, choice: Any) -> None:
    asked = ASK | {"tools": [WEATHER], "tool_choice": choice, "parallel_tool_calls": False}
    whole = client.chat.completions.create(**asked).choices[0]
    assert (whole.finish_reason, whole.message.content) == ("tool_calls", None)
    (call,) = whole.message.tool_calls
    assert (call.type, call.function.name) == ("function", "get_weather")
    assert is_weather(call.function.arguments)

    chunks = [chunk.choices[0] for chunk in client.chat.completions.create(**asked, stream=True)]
    deltas = [delta for chunk in chunks for delta in chunk.delta.tool_calls or []]
    assert deltas[0].id
    assert (deltas[0].index, deltas[0].type, deltas[0].function.name) == (0, "function", "get_weather")
    assert all((delta.index, delta.id, delta.function.name) == (0, None, None) for delta in deltas[1:])
    assert len(deltas) > 3
    assert "".join(delta.function.arguments for delta in deltas) == call.function.arguments
    assert not any(chunk.delta.content for chunk in chunks)
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == ["tool_calls"]


def test_allowed_tools_are_the_ones_called_and_all_stay_in_the_prompt(client: openai.OpenAI) -> None:
    asked = ASK | {"tools": [WEATHER, NOW], "parallel_tool_calls": False}
    named = [{"type": "function", "function": {"name": "now"}}]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": named}}
    reply = client.chat.completions.create(**asked, tool_choice=choice)
    assert [call.function.name for call in reply.choices[0].message.tool_calls] == ["now"]
    every = client.chat.completions.create(**asked | {"max_tokens": 1})
    assert every.usage.prompt_tokens == reply.usage.prompt_tokens


def test_each_choice_has_its_own_calls(client: openai.OpenAI) -> None:
    asked = ASK | {"tools": [WEATHER, NOW], "tool_choice": "required", "parallel_tool_calls": False}
    reply = client.chat.completions.create(**asked | {"temperature": 1.5, "seed": 3}, n=4)
    calls = [choice.message.tool_calls[0] for choice in reply.choices]
    assert len({call.id for call in calls}) == 4
    assert {call.function.name for call in calls} == {"get_weather", "now"}


def test_a_call_that_is_cut_off_ends_by_length(client: openai.OpenAI) -> None:
    asked = ASK | {"tools": [WEATHER], "tool_choice": "required", "max_tokens": 62}
    choice = client.chat.completions.create(**asked).choices[0]
    assert choice.finish_reason == "length"
    assert choice.message.tool_calls[0].function.arguments.startswith('{"')


def test_logprobs_come_with_every_token_of_a_call(client: openai.OpenAI) -> None:
    asked = ASK | {"tools": [NOW], "tool_choice": "required", "parallel_tool_calls": False, "logprobs": True}
    reply = client.chat.completions.create(**asked)
    text = b"".join(bytes(token.bytes) for token in reply.choices[0].logprobs.content).decode()
    assert '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>' in text


def test_tools_and_their_history_reach_the_prompt(client: openai.OpenAI, tool_server: RunningServer) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome", "days": []}'}}
    history = [
        *ASK["messages"],
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    lengths = [
        client.chat.completions.create(**ASK | {"messages": messages, "max_tokens": 1, "tools": tools}).usage.prompt_tokens
        for messages in (ASK["messages"], history)
        for tools in ([], [WEATHER])
    ]
    plain, with_tools, with_history, with_both = lengths
    assert with_tools > plain + len(json.dumps(WEATHER))
    assert with_history > plain + len("sunny")
    assert with_both - with_history == with_tools - plain


def test_tokenize_counts_what_a_chat_with_tools_has(client: openai.OpenAI, tool_server: RunningServer) -> None:
    asked = client.chat.completions.create(**ASK | {"tools": [WEATHER], "max_tokens": 1})
    counted = tool_server.post("/tokenize", messages=ASK["messages"], tools=[WEATHER]).json()["count"]
    assert counted == asked.usage.prompt_tokens


def test_no_tool_is_called_when_the_choice_is_none(client: openai.OpenAI) -> None:
    asked = ASK | {"tools": [WEATHER], "tool_choice": "none", "max_tokens": 9, "response_format": {"type": "json_object"}}
    reply = client.chat.completions.create(**asked).choices[0]
    assert reply.message.tool_calls is None
    assert reply.message.content.startswith("{")


def test_a_schema_that_cant_be_enforced_names_its_keyword(client: openai.OpenAI) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "not": {"required": ["a"]}}}}
    client.chat.completions.create(**ASK | {"tools": [tool], "max_tokens": 1})  # nothing has to be enforced
    with pytest.raises(openai.BadRequestError, match="not") as caught:
        client.chat.completions.create(**ASK | {"tools": [tool], "tool_choice": "required"})
    assert caught.value.param == "tools"


@pytest.mark.parametrize("depth", [400, 3000])
def test_deep_schemas_are_refused(tool_server: RunningServer, depth: int) -> None:
    schema: Any = {"type": "integer"}
    deep = '{"type":"array","items":' * depth + json.dumps(schema) + "}" * depth
    tools = f'[{{"type": "function", "function": {{"name": "f", "parameters": {deep}}}}}]'
    body = f'{{"messages": [{{"role": "user", "content": "a"}}], "max_tokens": 2, "tools": {tools}, "tool_choice": "required"}}'
    reply = tool_server.post_raw("/v1/chat/completions", body)
    assert reply.status_code == 400
    assert len(reply.content) < 10_000
    assert tool_server.get("/health") == {"status": "ok"}


def test_a_form_whose_marker_is_a_special_token(tmp_path: Path) -> None:
    """Mistral's: the grammar forces the token, and it has text for the parser alone."""
    model = make_tiny_model(tmp_path / "model", max_position_embeddings=4096)
    tokenizer = model / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace("<|im_start|>", "[TOOL_CALLS]"))
    settings = model / "tokenizer_config.json"
    template = "{{ tools }}{% for message in messages %}{{ message.content }}{% endfor %}{# tool_calls: [TOOL_CALLS] #}"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"chat_template": template}))
    with running(tmp_path, model, num_slots=2000, max_context_len=1000) as server:
        asked = {"tools": [WEATHER, NOW], "tool_choice": "required", "max_tokens": 200, "parallel_tool_calls": False}
        reply = server.post("/v1/chat/completions", messages=ASK["messages"], temperature=0, **asked)
        (choice,) = reply.json()["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    assert len(choice["message"]["tool_calls"][0]["id"]) == 9
