"""A field that shapes an answer is honoured or refused by every endpoint, under whatever API's name for it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from radixserve.server.anthropic.body import MessagesBody
from radixserve.server.openai.bodies import ChatBody, CompletionBody
from radixserve.server.responses.body import ResponsesBody
from radixserve.server.sglang.protocol import GenerateBody, SamplingBody
from radixserve.server.unsupported_fields import CONSTRAINTS, RefusesUnsupported, not_honoured
from tests.server.fake_engine import FakeClient, http, make_service

MESSAGES = [{"role": "user", "content": "a"}]
ASKED: list[tuple[str, dict[str, Any], type[RefusesUnsupported]]] = [
    ("/v1/completions", {"prompt": "a"}, CompletionBody),
    ("/v1/chat/completions", {"messages": MESSAGES}, ChatBody),
    ("/v1/responses", {"input": "a"}, ResponsesBody),
    ("/v1/messages", {"messages": MESSAGES, "max_tokens": 5}, MessagesBody),
    ("/v1/messages/count_tokens", {"messages": MESSAGES}, MessagesBody),
    ("/generate", {"text": "a"}, GenerateBody),
]


async def ask(model: Path, path: str, bodies: list[dict[str, Any]]) -> tuple[list[Any], FakeClient]:
    client = FakeClient()
    async with http(make_service(model, client)) as connection:
        return [await connection.post(path, json=body) for body in bodies], client


@pytest.mark.parametrize(("path", "body", "kind"), ASKED, ids=[path for path, _, _ in ASKED])
def test_what_is_not_honoured_is_refused_by_its_name(
    tiny_model_dir: Path, path: str, body: dict[str, Any], kind: type[RefusesUnsupported]
) -> None:
    names = not_honoured(kind)
    replies, client = asyncio.run(ask(tiny_model_dir, path, [body | {name: "something"} for name in names]))
    for name, reply in zip(names, replies, strict=True):
        assert reply.status_code == 400
        assert f"{name} is not supported here: " in reply.json()["error"]["message"]
    assert client.requests == []


def test_sampling_params_refuse_too(tiny_model_dir: Path) -> None:
    names = not_honoured(SamplingBody)
    bodies = [{"text": "a", "sampling_params": {name: "something"}} for name in names]
    replies, client = asyncio.run(ask(tiny_model_dir, "/generate", bodies))
    assert [reply.json()["error"]["param"] for reply in replies] == list(names)
    assert client.requests == []


DEFAULTS = {
    "n": 1,
    "best_of": 1,
    "stop": None,
    "stop_sequences": [],
    "logit_bias": {},
    "presence_penalty": 0.0,
    "frequency_penalty": 0,
    "repetition_penalty": 1.0,
    "min_tokens": 0,
    "min_p": 0.0,
    "background": False,
    "modalities": ["text"],
    "functions": [],
    "function_call": "auto",
    "truncation": "disabled",
    "echo": False,
    "skip_special_tokens": True,
} | dict.fromkeys(CONSTRAINTS)
"""What clients send that write out what goes without saying."""


@pytest.mark.parametrize(("path", "body", "kind"), ASKED, ids=[path for path, _, _ in ASKED])
def test_values_that_ask_for_what_happens_anyway_are_let_through(
    tiny_model_dir: Path, path: str, body: dict[str, Any], kind: type[RefusesUnsupported]
) -> None:
    sent = [body | {name: value} for name, value in DEFAULTS.items()]
    replies, _ = asyncio.run(ask(tiny_model_dir, path, sent))
    assert [(fields, reply.text) for fields, reply in zip(sent, replies, strict=True) if reply.status_code != 200] == []


@pytest.mark.parametrize(
    ("path", "fields", "remedy"),
    [
        ("/v1/responses", {"stop": "x"}, "ask /v1/chat/completions"),
        ("/v1/responses", {"max_tokens": 5}, "send max_output_tokens"),
        ("/v1/messages", {"stop": ["x"]}, "send stop_sequences"),
        ("/v1/messages", {"n": 2}, "ask /v1/chat/completions"),
        ("/v1/chat/completions", {"system": "Be brief."}, "send a message with the role 'system'"),
        ("/v1/completions", {"max_new_tokens": 0}, "send max_tokens"),
        ("/generate", {"temperature": 0}, "send it in sampling_params"),
        ("/generate", {"cache_salt": "x"}, "send extra_key"),
    ],
)
def test_the_refusal_says_what_to_send(tiny_model_dir: Path, path: str, fields: dict[str, Any], remedy: str) -> None:
    body = next(body for asked, body, _ in ASKED if asked == path)
    (reply,), _ = asyncio.run(ask(tiny_model_dir, path, [body | fields]))
    assert reply.json()["error"]["message"] == f"{next(iter(fields))} is not supported here: {remedy}"
