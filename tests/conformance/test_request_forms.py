"""Requests in the very form in which tools send them that are not installed here, with what these tools read from the replies."""

import json
from typing import Any

import httpx
import pytest

from tests.server.running import RunningServer, frames

MODEL = "smollm2-135m"
PARTS = [{"role": "user", "content": [{"type": "text", "text": "What is the weather in Rome?"}]}]
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def chunks_of(server: RunningServer, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    *chunks, done = frames(server.post(path, **body).text)
    assert done == "[DONE]"
    return chunks


def test_guidellm_counts_tokens_by_the_usage_of_each_chunk(server: RunningServer) -> None:
    assert server.get("/v1/models")["data"][0]["id"] == MODEL
    body = {
        "model": MODEL,
        "messages": PARTS,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "max_completion_tokens": 6,
        "max_tokens": 6,
        "stop": None,
        "ignore_eos": True,
    }
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks_of(server, CHAT, body)]
    assert counts == sorted(counts)
    assert counts[-1] == 6


def test_guidellm_completions(server: RunningServer) -> None:
    body = {"model": MODEL, "prompt": "Once", "stream": True, "stream_options": {"include_usage": True}}
    chunks = chunks_of(server, COMPLETIONS, body | {"max_tokens": 6, "stop": None, "ignore_eos": True})
    assert chunks[-1]["usage"]["completion_tokens"] == 6
    assert chunks[-1]["choices"] == []


def test_aiperf_reads_the_metrics_before_and_after(server: RunningServer) -> None:
    def generated() -> float:
        (line,) = [
            line
            for line in httpx.get(f"{server.url}/metrics", timeout=10).text.splitlines()
            if line.startswith("radixserve_generated_tokens_total")
        ]
        return float(line.split()[-1])

    server.wait_idle()
    before = generated()
    body = {
        "messages": [{"role": "user", "name": "", "content": "Once"}],
        "model": MODEL,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 5,
        "min_tokens": 5,
        "ignore_eos": True,
    }
    chunks = chunks_of(server, CHAT, body)
    server.wait_idle()
    assert chunks[-1]["usage"]["completion_tokens"] == 5 == generated() - before


@pytest.mark.parametrize("chat", [False, True])
def test_vllm_bench_serve(server: RunningServer, chat: bool) -> None:
    """It tokenizes over HTTP, asks for exact lengths, and sums up what each chunk brings."""
    tokens = server.post("/tokenize", model=MODEL, prompt="Once upon a time", add_special_tokens=False).json()
    assert tokens["count"] == len(tokens["tokens"])
    body: dict[str, Any] = {
        "model": MODEL,
        "temperature": 0.0,
        "repetition_penalty": 1.0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if chat:
        chunks = chunks_of(server, CHAT, body | {"messages": PARTS, "max_completion_tokens": 6})
        text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    else:
        body |= {"prompt": tokens["tokens"], "max_tokens": 6, "logprobs": None, "best_of": 1}
        chunks = chunks_of(server, COMPLETIONS, body)
        text = "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])
    assert text
    assert chunks[-1]["usage"]["completion_tokens"] == 6
    assert chunks[-1]["usage"]["prompt_tokens"] >= tokens["count"]


def test_dspy_asks_for_several_choices(server: RunningServer) -> None:
    """Its signatures come as markers in the text; `n` gives it candidates."""
    messages = [
        {"role": "system", "content": "Your input fields are:\n1. `question` (str)\nYour output fields are:\n1. `answer` (str)"},
        {"role": "user", "content": "[[ ## question ## ]]\nWhat is 1 + 1?\n\nRespond with `[[ ## answer ## ]]`."},
    ]
    reply = server.post(CHAT, model=MODEL, messages=messages, n=3, temperature=0.7, max_tokens=8).json()
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    assert reply["usage"]["completion_tokens"] > 8


def test_inspect_ai_reads_cached_tokens(server: RunningServer) -> None:
    body = {
        "model": MODEL,
        "messages": [{"role": "system", "content": "Be brief."}, *PARTS],
        "max_tokens": 4,
        "temperature": 0.0,
        "seed": 1,
        "stop": ["###"],
        "logprobs": True,
        "top_logprobs": 2,
    }
    for _ in range(2):
        reply = server.post(CHAT, **body).json()
    assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] == reply["usage"]["prompt_tokens"] - 1
    assert len(reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 2


def test_llm_the_command_sends_a_schema_and_reads_the_usage(server: RunningServer) -> None:
    schema = {"type": "object", "properties": {"name": {"enum": ["Rome", "Oslo"]}}, "required": ["name"]}
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "a city"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "response_format": {"type": "json_schema", "json_schema": {"name": "output", "schema": schema}},
    }
    chunks = chunks_of(server, CHAT, body)
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert json.loads(text)["name"] in ("Rome", "Oslo")
    assert chunks[-1]["usage"]["total_tokens"] > 0
