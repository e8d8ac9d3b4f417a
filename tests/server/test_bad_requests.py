"""What bad input gets: 400 or 413 at once, in OpenAI's error shape, naming field, value and limit, while others go on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.running import RunningServer, frames, running, wait_for

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
HI = [{"role": "user", "content": "Hi"}]

BAD: list[tuple[str, dict[str, Any], str, list[str]]] = [
    # route, fields, param, what the message must hold
    (COMPLETIONS, {"prompt": ""}, "prompt", ["no tokens"]),
    (COMPLETIONS, {"prompt": [""]}, "prompt", ["no tokens"]),
    (COMPLETIONS, {"prompt": []}, "prompt", ["empty"]),
    (COMPLETIONS, {"prompt": [[]]}, "prompt", ["no tokens"]),
    (COMPLETIONS, {"prompt": ["a", 1]}, "prompt", ["mixes"]),
    (COMPLETIONS, {"prompt": 5}, "prompt", ["5"]),
    (COMPLETIONS, {}, "prompt", ["prompt is missing"]),
    (COMPLETIONS, {"prompt": [1, -1]}, "prompt", ["-1", "258"]),
    (COMPLETIONS, {"prompt": [259]}, "prompt", ["259", "258"]),
    (COMPLETIONS, {"prompt": [2**70]}, "prompt", []),
    (COMPLETIONS, {"prompt": "a" * 301}, "prompt", ["301", "300"]),
    (COMPLETIONS, {"prompt": "a" * 513}, "prompt", ["513", "512"]),
    (COMPLETIONS, {"prompt": "a" * 500_000}, "prompt", ["500000", "512"]),
    (CHAT, {"messages": [{"role": "user", "content": "a" * 500_000}]}, "messages", ["500000", "512"]),
    (COMPLETIONS, {"prompt": "a", "max_tokens": 301}, "max_tokens", ["301", "300"]),
    (COMPLETIONS, {"prompt": "a", "max_tokens": 512}, "max_tokens", ["512"]),
    (COMPLETIONS, {"prompt": "a", "max_tokens": 10**12}, "max_tokens", ["512"]),
    (COMPLETIONS, {"prompt": "a", "max_tokens": -1}, "max_tokens", ["-1"]),
    (COMPLETIONS, {"prompt": "a", "max_tokens": "three"}, "max_tokens", ["three", "int"]),
    (COMPLETIONS, {"prompt": "a", "max_tokens": 1.5}, "max_tokens", ["1.5", "int"]),
    (COMPLETIONS, {"prompt": "a", "n": 5_000_000}, "n", ["5000000", "128"]),
    (COMPLETIONS, {"prompt": "a", "n": 0}, "n", ["0"]),
    (COMPLETIONS, {"prompt": ["a"] * 100, "n": 100}, "n", ["10000", "1024"]),
    (COMPLETIONS, {"prompt": ["a"] * 100_000}, "prompt", ["100000", "1024"]),
    (COMPLETIONS, {"prompt": [[1]] * 1025}, "prompt", ["1025", "1024"]),
    (COMPLETIONS, {"prompt": "a", "logprobs": 10**9}, "logprobs", ["1000000000", "20"]),
    (COMPLETIONS, {"prompt": "a", "temperature": -1}, "temperature", ["-1"]),
    (COMPLETIONS, {"prompt": "a", "temperature": 1e300}, "temperature", ["1e+300", "100"]),
    (COMPLETIONS, {"prompt": "a", "top_p": -1}, "top_p", ["-1", "1"]),
    (COMPLETIONS, {"prompt": "a", "top_p": 0}, "top_p", ["0", "1"]),
    (COMPLETIONS, {"prompt": "a", "top_k": 2**70}, "top_k", []),
    (COMPLETIONS, {"prompt": "a", "min_p": 2}, "min_p", ["2"]),
    (COMPLETIONS, {"prompt": "a", "repetition_penalty": 0}, "repetition_penalty", ["0"]),
    (COMPLETIONS, {"prompt": "a", "presence_penalty": 3}, "presence_penalty", ["3", "2"]),
    (COMPLETIONS, {"prompt": "a", "seed": 2**70}, "seed", []),
    (COMPLETIONS, {"prompt": "a", "priority": 2**64}, "priority", []),
    (COMPLETIONS, {"prompt": "a", "logit_bias": {"259": 1}}, "logit_bias", ["259", "258"]),
    (COMPLETIONS, {"prompt": "a", "logit_bias": {"x": 1}}, "logit_bias", ["x"]),
    (COMPLETIONS, {"prompt": "a", "stop_token_ids": [-1]}, "stop_token_ids", ["-1"]),
    (COMPLETIONS, {"prompt": "a", "stop": [""]}, "stop", ["empty"]),
    (COMPLETIONS, {"prompt": "a", "stop": [1]}, "stop", ["1"]),
    (COMPLETIONS, {"prompt": "a", "stop": ["ok", "a" * 1025]}, "stop", ["1025", "1024"]),
    (COMPLETIONS, {"prompt": "a", "stop": ["a"] * 65}, "stop", ["65", "64"]),
    (COMPLETIONS, {"prompt": "a", "cache_salt": "a" * 257}, "cache_salt", ["257", "256"]),
    (COMPLETIONS, {"prompt": "a", "min_tokens": 9, "max_tokens": 8}, "min_tokens", ["9", "8"]),
    (COMPLETIONS, {"prompt": "a", "suffix": "b"}, "suffix", ["suffix"]),
    (COMPLETIONS, {"prompt": "a", "best_of": 3}, "best_of", ["3", "1"]),
    (COMPLETIONS, {"prompt": "a", "echo": True, "logprobs": 21}, "logprobs", ["21", "20"]),
    (COMPLETIONS, {"prompt": "a", "prompt_logprobs": -1}, "prompt_logprobs", ["-1", "20"]),
    (COMPLETIONS, {"prompt": "a", "prompt_logprobs": 1, "stream": True}, "prompt_logprobs", ["stream", "echo"]),
    (COMPLETIONS, {"prompt": "a" * 301, "max_tokens": 0}, "prompt", ["301 slots", "300"]),
    (COMPLETIONS, {"prompt": "a", "guided_regex": "["}, "guided_regex", ["regex"]),
    (COMPLETIONS, {"prompt": "a", "regex": "["}, "regex", ["regex"]),
    (COMPLETIONS, {"prompt": "a", "ebnf": "root ::= missing"}, "ebnf", ["missing"]),
    (COMPLETIONS, {"prompt": "a", "guided_json": "{"}, "guided_json", ["JSON"]),
    (COMPLETIONS, {"prompt": "a", "guided_json": {"$ref": "#/$defs/gone"}}, "guided_json", ["gone"]),
    (COMPLETIONS, {"prompt": "a", "json_schema": {"type": "objekt"}}, "json_schema", ["objekt"]),
    (COMPLETIONS, {"prompt": "a", "json_schema": {"properties": {"a": "string"}}}, "json_schema", []),
    (COMPLETIONS, {"prompt": "a", "json_schema": {"not": {"type": "string"}}}, "json_schema", ["not"]),
    (COMPLETIONS, {"prompt": "a", "guided_choice": []}, "guided_choice", ["empty"]),
    (COMPLETIONS, {"prompt": "a", "guided_choice": [1]}, "guided_choice", ["1"]),
    (COMPLETIONS, {"prompt": "a", "guided_regex": "a", "guided_choice": ["a"]}, "guided_choice", ["guided_regex"]),
    (COMPLETIONS, {"prompt": "a", "structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs", ["one"]),
    (
        COMPLETIONS,
        {"prompt": "a", "structured_outputs": {"regex": "a", "whitespace_pattern": " "}},
        "structured_outputs",
        ["whitespace_pattern"],
    ),
    (COMPLETIONS, {"prompt": "a", "guided_whitespace_pattern": " "}, "guided_whitespace_pattern", ["not supported"]),
    (COMPLETIONS, {"prompt": "a", "tools": [{"function": {"name": "f"}}]}, "tools", ["/v1/chat/completions"]),
    (CHAT, {"messages": []}, "messages", ["empty"]),
    (CHAT, {"messages": "Hi"}, "messages", ["Hi"]),
    (CHAT, {"messages": [{"content": "Hi"}]}, "messages", ["role"]),
    (CHAT, {"messages": [{"role": "user", "content": 5}]}, "messages", []),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages", ["image_url"]),
    (CHAT, {"messages": HI, "top_logprobs": 3}, "top_logprobs", ["logprobs"]),
    (CHAT, {"messages": HI, "logprobs": True, "top_logprobs": 10**9}, "top_logprobs", ["1000000000", "20"]),
    (CHAT, {"messages": HI, "logprobs": 3}, "logprobs", ["3", "bool"]),
    (CHAT, {"messages": HI, "tools": [{"type": "function"}]}, "tools", ["function"]),
    (
        CHAT,
        {"messages": HI, "tools": [{"type": "web_search", "function": {"name": "f"}}]},
        "tools",
        ["web_search", "must be 'function'"],
    ),
    (CHAT, {"messages": HI, "tools": [{"function": {"name": "a b"}}]}, "tools", ["a b"]),
    (CHAT, {"messages": HI, "tools": [{"function": {"name": "f"}}] * 2}, "tools", ["'f'"]),
    (CHAT, {"messages": HI, "tools": [{"function": {"name": f"f{i}"}} for i in range(129)]}, "tools", ["129", "128"]),
    (CHAT, {"messages": HI, "tool_choice": "always"}, "tool_choice", ["always", "required"]),
    (CHAT, {"messages": HI, "tool_choice": "required"}, "tool_choice", ["tools"]),
    (CHAT, {"messages": HI, "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice", ["g", "none"]),
    (CHAT, {"messages": HI, "tool_choice": {"function": {"name": "g"}}}, "tool_choice", ["type"]),
    (CHAT, {"messages": HI, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": []}}}, "tool_choice", ["none"]),
    (CHAT, {"messages": HI, "functions": [{"name": "f"}]}, "functions", ["not supported"]),
    (CHAT, {"messages": HI, "response_format": {"type": "yaml"}}, "response_format", ["yaml", "'json_schema'"]),
    (CHAT, {"messages": HI, "response_format": {"type": "json_schema"}}, "response_format", ["json_schema"]),
    (
        CHAT,
        {"messages": HI, "response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        "response_format",
        ["schema"],
    ),
    (
        CHAT,
        {"messages": HI, "response_format": {"type": "json_schema", "json_schema": {"schema": {"uniqueItems": True}}}},
        "response_format",
        ["uniqueItems"],
    ),
    (CHAT, {"messages": HI, "response_format": {"type": "json_object"}, "regex": "a"}, "regex", ["response_format"]),
    (
        CHAT,
        {"messages": HI, "add_generation_prompt": True, "continue_final_message": True},
        "continue_final_message",
        ["add_generation_prompt"],
    ),
    (CHAT, {"messages": HI, "text": {"format": {"type": "json_object"}}}, "text", ["response_format"]),
    (CHAT, {"messages": HI, "modalities": ["audio"]}, "modalities", ["not supported"]),
    (CHAT, {"messages": HI, "max_tokens": 3, "max_completion_tokens": 4}, "max_completion_tokens", ["3", "4"]),
    ("/tokenize", {}, "prompt", ["prompt", "messages"]),
    ("/detokenize", {"tokens": [300]}, "tokens", ["300", "258"]),
]


def error_of(reply: httpx.Response, status: int = 400) -> dict[str, Any]:
    assert reply.status_code == status, reply.text
    assert len(reply.content) < 10_000
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


@pytest.mark.parametrize(("route", "fields", "param", "holds"), BAD, ids=lambda value: str(value)[:40])
def test_bad_field(server: RunningServer, route: str, fields: dict[str, Any], param: str, holds: list[str]) -> None:
    error = error_of(server.post(route, **fields))
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert param in error["message"] or (param == "messages" and "the prompt has" in error["message"])
    for text in holds:
        assert text in error["message"], error


@pytest.mark.parametrize(
    ("body", "holds"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"[1]", "object"),
        (b'{"prompt": "a", "temperature": NaN}', "temperature"),
        (b'{"prompt": "a", "top_p": 1e999}', "top_p"),
        (b'{"prompt": "\xff"}', "JSON"),
        (b'{"prompt": "a", "unknown": ' + b"[" * 3000 + b"]" * 3000 + b"}", "nested"),
        (b'{"prompt": "a", "tools": ' + b"[" * 3000 + b"]" * 3000 + b"}", "nested"),
        (b'{"prompt": "a", "json_schema": {"a": ' + b"[" * 3000 + b"]" * 3000 + b"}}", "nested"),
    ],
    ids=["empty", "cut", "array", "nan", "infinite", "not utf-8", "deep unknown", "deep tools", "deep schema"],
)
def test_bad_json(server: RunningServer, body: bytes, holds: str) -> None:
    assert holds in error_of(httpx.post(server.url + COMPLETIONS, content=body))["message"]


def test_a_path_that_is_no_endpoint_is_named(server: RunningServer) -> None:
    assert "no POST /v1/nowhere" in error_of(server.post("/v1/nowhere"), 404)["message"]
    assert "no POST /v1/models" in error_of(server.post("/v1/models"), 405)["message"]


def test_many_bad_messages_get_one_short_error(server: RunningServer) -> None:
    error_of(server.post(CHAT, messages=[{"role": "user", "content": {"bad": "x" * 50}}] * 5000))


@pytest.mark.parametrize("declared", [True, False])
def test_large_body(server: RunningServer, declared: bool) -> None:
    body = json.dumps({"prompt": "a" * 5_000_000}).encode()
    pieces = (body[i : i + 65536] for i in range(0, len(body), 65536))
    reply = httpx.post(server.url + COMPLETIONS, content=body if declared else pieces, timeout=10)
    assert "1000000" in error_of(reply, 413)["message"]
    assert server.get("/health") == {"status": "ok"}


def test_unknown_fields_are_tolerated_and_nulls_are_defaults(server: RunningServer) -> None:
    nulls = dict.fromkeys(["temperature", "top_p", "n", "stop", "logit_bias", "seed", "tools", "suffix", "stream_options", "echo"])
    reply = server.post(COMPLETIONS, prompt="a", max_tokens=2, store=True, metadata={"a": "b"}, **nulls)
    assert reply.status_code == 200
    harmless = {"response_format": {"type": "text"}, "tools": [], "tool_choice": "none", "top_k": -1}
    assert server.post(CHAT, messages=HI, max_tokens=2, **harmless).status_code == 200


def test_another_model_is_not_found(server: RunningServer) -> None:
    assert "'tiny'" in error_of(server.post(COMPLETIONS, model="gpt-9", prompt="a"), 404)["message"]


def test_wrong_paths_and_methods(server: RunningServer) -> None:
    error_of(server.post("/v1/audio/speech"), 404)
    error_of(server.post("/v1/completions/"), 404)
    error_of(httpx.get(server.url + COMPLETIONS), 405)


def test_streams_are_refused_with_a_status(server: RunningServer) -> None:
    error_of(server.post(COMPLETIONS, prompt="a", max_tokens=301, stream=True))


@pytest.mark.parametrize(("prompt_len", "max_tokens", "status"), [(299, 2, 200), (300, 1, 200), (300, 2, 400), (301, 1, 400)])
def test_the_edge_of_the_pool(server: RunningServer, prompt_len: int, max_tokens: int, status: int) -> None:
    reply = server.post(COMPLETIONS, prompt="a" * prompt_len, max_tokens=max_tokens, ignore_eos=True)
    assert reply.status_code == status
    if status == 200:
        assert reply.json()["usage"]["completion_tokens"] == max_tokens


@pytest.fixture(scope="module")
def short_context(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Context 128, in a pool with room for more."""
    with running(tmp_path_factory.mktemp("short"), tiny_model_dir, num_slots=500, max_context_len=128) as this:
        yield this


@pytest.mark.parametrize(
    ("prompt_len", "max_tokens", "generated"),
    [(126, 2, 2), (127, 1, 1), (127, 2, None), (128, 0, 0), (128, 1, None), (129, 0, None), (126, None, 2), (128, None, None)],
)
def test_the_edge_of_the_context(
    short_context: RunningServer, prompt_len: int, max_tokens: int | None, generated: int | None
) -> None:
    """Case: a prompt that exactly filled the context was an internal error, and messages showed wrong limits."""
    reply = short_context.post(COMPLETIONS, prompt="a" * prompt_len, max_tokens=max_tokens, ignore_eos=True)
    if generated is None:
        error = error_of(reply)
        assert error["code"] == "context_length_exceeded"
        assert f"the prompt has {prompt_len} tokens" in error["message"]
        assert "maximum context length is 128 tokens" in error["message"]
    else:
        assert reply.status_code == 200, reply.text
        assert reply.json()["usage"]["completion_tokens"] == generated


def test_the_others_went_on(server: RunningServer) -> None:
    body = {"prompt": "Once", "max_tokens": 200, "temperature": 0, "ignore_eos": True}
    alone = server.post(COMPLETIONS, **body).json()["choices"][0]["text"]
    with httpx.stream("POST", server.url + COMPLETIONS, json=body | {"stream": True}, timeout=60) as stream:
        for route, fields, _, _ in BAD[::6]:
            assert server.post(route, **fields).status_code == 400
        *chunks, done = frames(stream.read().decode())
    assert done == "[DONE]"
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == alone


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/v1/completions", '{"prompt": "the secret text", "max_tokens": "secret number"}'),
        ("/v1/completions", '{"prompt": "the secret text" "broken'),
        ("/v1/completions", '{"prompt": "x", "model": "secret model"}'),
        ("/v1/completions", '{"prompt": "x", "guided_regex": "(secret"}'),
        ("/v1/completions", '{"prompt": "x", "stream": true, "guided_regex": "(secret"}'),
        ("/v1/chat/completions", '{"messages": [{"role": "user", "content": [{"type": "secret kind"}]}]}'),
        ("/v1/messages", '{"max_tokens": 1, "messages": [{"role": "secret role", "content": "x"}]}'),
        ("/v1/responses", '{"input": [{"type": "secret type"}]}'),
        ("/cache/warm", "secret line"),
    ],
)
def test_the_log_of_a_refused_request_holds_none_of_its_text(server: RunningServer, path: str, text: str) -> None:
    reply = server.post_raw(path, text)
    assert reply.status_code in (400, 404)
    name = reply.headers["x-request-id"]
    line = wait_for(lambda: [line for line in server.log.splitlines() if name in line], bool)[0]
    assert "error=" in line
    assert "secret" not in line
