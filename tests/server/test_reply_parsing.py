"""What the model writes by itself, as chat clients get it: reasoning, calls of its own choice, and text. The engine is a fake."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from radixserve.config import ServerConfig
from tests.server.fake_engine import INFO, FakeClient, http, make_service
from tests.server.running import frames
from tests.tiny_models import make_tiny_model

ROOMY = msgspec.structs.replace(INFO, limits=msgspec.structs.replace(INFO.limits, max_context_len=4000, num_slots=4000))
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
CALL = ["Let me", " see.\n", "<tool", '_call>{"name": "f", "argu', 'ments": {"a"', ": 1}}\n</tool_", "call>"]


def chat(
    model: Path,
    texts: Sequence[str],
    config: ServerConfig | None = None,
    stop_reason: str | int | None = None,
    **fields: Any,
) -> tuple[dict[str, Any], FakeClient]:
    """The choice of a whole reply, checked against the stream of the same."""

    async def ask() -> tuple[Any, str]:
        service.info = ROOMY
        body = {"messages": [{"role": "user", "content": "Hi"}]} | fields
        async with http(service) as connection:
            whole = await connection.post("/v1/chat/completions", json=body)
            stream = await connection.post("/v1/chat/completions", json=body | {"stream": True})
            assert whole.status_code == stream.status_code == 200, whole.text
            return whole.json(), stream.text

    client = FakeClient(texts=texts, stop_reason=stop_reason)
    service = make_service(model, client, config)
    whole, stream = asyncio.run(ask())
    choice = whole["choices"][0]
    *chunks, _ = frames(stream)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    message = choice["message"]
    for field in ("content", "reasoning_content"):
        assert "".join(delta.get(field, "") for delta in deltas) == (message.get(field) or "")
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert "".join(call["function"]["arguments"] for call in calls) == "".join(
        call["function"]["arguments"] for call in message.get("tool_calls", [])
    )
    assert chunks[-1]["choices"][0]["finish_reason"] == choice["finish_reason"]
    return choice, client


def test_a_call_that_the_model_chose(tiny_model_dir: Path) -> None:
    choice, client = chat(tiny_model_dir, CALL, tools=TOOLS)
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", "Let me see.")
    (call,) = choice["message"]["tool_calls"]
    assert (call["type"], call["function"]) == ("function", {"name": "f", "arguments": '{"a": 1}'})
    assert client.requests[0].params.grammar is None


BEGUN = '<tool_call>{"name": "f", "arguments": {"city": "Par'
WHOLE = '<tool_call>{"name": "f", "arguments": {"city": "Paris"}}'


@pytest.mark.parametrize(
    ("text", "stop", "finish", "message_stop"),
    [
        (BEGUN, "is", "stop", "stop_sequence"),
        (BEGUN, 7, "stop", "end_turn"),
        (BEGUN, None, "stop", "end_turn"),
        (WHOLE + BEGUN, "is", "stop", "stop_sequence"),
        (WHOLE, "</tool_call>", "tool_calls", "stop_sequence"),
        (WHOLE, None, "tool_calls", "tool_use"),
    ],
)
def test_nobody_is_told_to_make_a_call_that_was_cut_off(
    tiny_model_dir: Path, text: str, stop: str | int | None, finish: str, message_stop: str
) -> None:
    service = make_service(tiny_model_dir, FakeClient(texts=list(text), stop_reason=stop))
    service.info = ROOMY
    cut = text.endswith(BEGUN)
    choice, _ = chat(tiny_model_dir, list(text), stop_reason=stop, tools=TOOLS)
    arguments = choice["message"]["tool_calls"][-1]["function"]["arguments"]
    assert (choice["finish_reason"], arguments) == (finish, '{"city": "Par' if cut else '{"city": "Paris"}')

    async def ask() -> list[Any]:
        tool = {"name": "f", "input_schema": {"type": "object"}}
        message = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 99, "tools": [tool]}
        function = {"type": "function", "name": "f", "parameters": {"type": "object"}}
        response = {"input": "Hi", "tools": [function]}
        async with http(service) as connection:
            bodies = [("/v1/messages", message), ("/v1/responses", response)]
            return [
                await connection.post(path, json=body | {"stream": stream}) for path, body in bodies for stream in (False, True)
            ]

    message, message_stream, response, response_stream = asyncio.run(ask())
    assert (message.json()["stop_reason"], message.json()["content"][-1]["type"]) == (message_stop, "tool_use")
    assert f'"stop_reason":"{message_stop}"' in message_stream.text
    status = "incomplete" if cut else "completed"
    assert response.json()["output"][-1]["status"] == status
    done = json.loads(response_stream.text.rpartition("data: ")[2])
    assert done["response"]["output"][-1]["status"] == status


@pytest.mark.parametrize("fields", [{}, {"tools": []}, {"tools": TOOLS, "tool_choice": "none"}], ids=str)
def test_without_tools_a_call_is_text(tiny_model_dir: Path, fields: dict[str, Any]) -> None:
    choice, _ = chat(tiny_model_dir, CALL, **fields)
    assert (choice["finish_reason"], choice["message"]["content"]) == ("stop", "".join(CALL))


def test_a_false_start_is_text(tiny_model_dir: Path) -> None:
    choice, _ = chat(tiny_model_dir, ["<tool_", 'call>{"nam', 'e": 5}'], tools=TOOLS)
    assert (choice["finish_reason"], choice["message"]) == ("stop", {"role": "assistant", "content": '<tool_call>{"name": 5}'})


THINKS = ["<thi", "nk>\nHm.", "\n</th", "ink>\n\nYes", "."]


@pytest.mark.parametrize(
    ("config", "fields", "reasoning", "content"),
    [
        (ServerConfig(reasoning_parser="think"), {}, "Hm.", "Yes."),
        (ServerConfig(reasoning_parser="think"), {"separate_reasoning": False}, None, "".join(THINKS)),
        (ServerConfig(), {}, None, "".join(THINKS)),  # the template doesn't speak of it
    ],
)
def test_reasoning(tiny_model_dir: Path, config: ServerConfig, fields: dict[str, Any], reasoning: str | None, content: str) -> None:
    choice, _ = chat(tiny_model_dir, THINKS, config, **fields)
    assert choice["message"].get("reasoning_content") == reasoning
    assert choice["message"]["content"] == content


def test_reasoning_that_the_prompt_opens_comes_before_constraints_and_calls(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model")
    settings = json.loads((model / "tokenizer_config.json").read_text())
    settings["chat_template"] = settings["chat_template"].replace("assistant\n'", "assistant\n<think>\n'")
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    choice, client = chat(model, ["Hm.</think>", *CALL], tools=TOOLS, response_format={"type": "json_object"})
    assert (choice["message"]["reasoning_content"], choice["message"]["content"]) == ("Hm.", "Let me see.")
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "f"
    grammar = client.requests[0].params.grammar
    assert grammar is not None
    assert "</think>" in grammar.source.replace("\\", "")


def test_every_chunk_tells_the_usage_on_demand(tiny_model_dir: Path) -> None:
    async def ask() -> str:
        options = {"include_usage": True, "continuous_usage_stats": True}
        async with http(make_service(tiny_model_dir, FakeClient())) as connection:
            body = {"prompt": "Once", "stream": True, "stream_options": options}
            return (await connection.post("/v1/completions", json=body)).text

    *chunks, last, done = frames(asyncio.run(ask()))
    assert done == "[DONE]"
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [1, 2, 3, 4, 5]
    assert last["choices"] == []
    assert last["usage"] == chunks[-1]["usage"]
