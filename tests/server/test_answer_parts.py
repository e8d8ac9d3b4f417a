"""Reasoning, text and tool calls of one answer, as /v1/responses and /v1/messages word them: a stream equals the whole."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from radixserve.config import ServerConfig
from radixserve.ipc import GenerateRequest, Output
from radixserve.limits import Limits
from tests.server.fake_engine import FakeClient, http, make_service

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": [1, "}"]}}\n</tool_call>'
ANSWER = f"<think>\nLet me see.\n</think>\nI call it. {CALL}\n{CALL} That is all."
SCHEMA = {"type": "object", "properties": {"a": {"type": "array"}}}


class AbortedClient(FakeClient):
    """Ends as a request does that /abort_request ended."""

    async def generate(self, requests: Sequence[GenerateRequest]) -> AsyncGenerator[tuple[int, Output], None]:
        async for number, output in super().generate(requests):
            yield number, msgspec.structs.replace(output, finish_reason=output.finish_reason and "abort")


def ask(model: Path, path: str, body: dict[str, Any], texts: list[str], engine: type[FakeClient] = FakeClient) -> str:
    async def post() -> str:
        service = make_service(model, engine(texts=texts), ServerConfig(reasoning_parser="think"))
        service.info = msgspec.structs.replace(service.info, limits=Limits(259, 9000, 9000, 1))
        async with http(service) as client:
            return (await client.post(path, json=body)).text

    return asyncio.run(post())


def events(text: str) -> list[Any]:
    return [json.loads(frame.partition("\ndata: ")[2]) for frame in text.removesuffix("\n\n").split("\n\n")]


def without_ids(items: list[Any]) -> list[Any]:
    return [{name: value for name, value in item.items() if not name.endswith("id")} for item in items]


@pytest.fixture(params=[1, 7, 1000])
def texts(request: pytest.FixtureRequest) -> list[str]:
    """The answer in pieces of so many characters."""
    return [ANSWER[at : at + request.param] for at in range(0, len(ANSWER), request.param)]


def test_messages(tiny_model_dir: Path, texts: list[str]) -> None:
    body = {"max_tokens": 400, "messages": [{"role": "user", "content": "a"}], "tools": [{"name": "f", "input_schema": SCHEMA}]}
    whole = json.loads(ask(tiny_model_dir, "/v1/messages", body, texts))
    assert without_ids(whole["content"]) == [
        {"type": "thinking", "thinking": "Let me see.", "signature": ""},
        {"type": "text", "text": "I call it."},
        {"type": "tool_use", "name": "f", "input": {"a": [1, "}"]}},
        {"type": "tool_use", "name": "f", "input": {"a": [1, "}"]}},
        {"type": "text", "text": " That is all."},
    ]
    assert whole["stop_reason"] == "tool_use"
    content: list[Any] = []
    for event in events(ask(tiny_model_dir, "/v1/messages", body | {"stream": True}, texts)):
        match event["type"]:
            case "content_block_start":
                assert event["index"] == len(content)
                content.append(event["content_block"] | {"json": ""})
            case "content_block_delta":
                assert event["index"] == len(content) - 1
                for name, more in event["delta"].items():
                    if name != "type":
                        content[-1][name.removeprefix("partial_")] += more
    for block in content:
        arguments = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(arguments)
    assert without_ids(content) == without_ids(whole["content"])


def test_responses(tiny_model_dir: Path, texts: list[str]) -> None:
    body = {"input": "a", "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}]}
    whole = json.loads(ask(tiny_model_dir, "/v1/responses", body, texts))
    assert [item["type"] for item in whole["output"]] == ["reasoning", "message", "function_call", "function_call", "message"]
    assert whole["usage"]["output_tokens_details"]["reasoning_tokens"] == len("Let me see.")
    streamed = events(ask(tiny_model_dir, "/v1/responses", body | {"stream": True}, texts))
    assert without_ids(streamed[-1]["response"]["output"]) == without_ids(whole["output"])
    done = [event for event in streamed if event["type"] == "response.output_item.done"]
    assert [event["item"] for event in done] == streamed[-1]["response"]["output"]
    assert [event["output_index"] for event in done] == list(range(5))
    for index, item in enumerate(whole["output"]):
        deltas = [event["delta"] for event in streamed if event["type"].endswith(".delta") and event["output_index"] == index]
        assert "".join(deltas) == (item.get("arguments") or item["content"][0]["text"])


def test_what_was_aborted_does_not_look_done(tiny_model_dir: Path) -> None:
    for path, body in (
        ("/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "a"}]}),
        ("/v1/responses", {"input": "a"}),
    ):
        whole = json.loads(ask(tiny_model_dir, path, body, ["a", "b"], AbortedClient))
        assert "aborted" in whole["error"]["message"]
        last = events(ask(tiny_model_dir, path, body | {"stream": True}, ["a", "b"], AbortedClient))[-1]
        assert "aborted" in last.get("response", last)["error"]["message"]
