"""Large bodies: nobody waits for them, no text is tokenized that can't fit, and only so much is worked on at once."""

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from radixserve.errors import InvalidRequestError
from radixserve.sampling_params import Grammar, SamplingParams
from radixserve.server import prompts
from radixserve.server.http import body, intake
from radixserve.server.http.intake import LARGE, Intake
from radixserve.text import tokenizer as tokenizer_module
from radixserve.text.tokenizer import Tokenizer
from tests.server.fake_engine import FakeClient, http, make_service

LONG = "x" * (2 * LARGE)
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
TOOL = {"type": "function", "function": {"name": "f", "description": LONG, "parameters": {"type": "object"}}}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": f'{{"a": "{LONG}"}}'}}


def post(model: Path, path: str, **content: Any) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with http(make_service(model, FakeClient())) as client:
            return await client.post(path, **content)

    return asyncio.run(ask())


TOO_LONG: list[tuple[str, Any]] = [
    ("/v1/completions", {"prompt": LONG}),
    ("/v1/completions", {"prompt": ["x", LONG]}),
    ("/generate", {"text": LONG}),
    ("/tokenize", {"prompt": LONG}),
    ("/cache/warm", LONG),
    ("/cache/warm", {"messages": [{"role": LONG, "content": "x"}]}),
    ("/cache/pin", {"prompt": LONG}),
    ("/v1/responses", {"input": LONG}),
    ("/v1/responses", {"input": "x", "instructions": LONG}),
    ("/v1/messages", {"max_tokens": 1, "messages": [{"role": "user", "content": LONG}]}),
    ("/v1/messages", {"max_tokens": 1, "system": LONG, "messages": CHAT["messages"]}),
    (
        "/v1/messages/count_tokens",
        {"messages": CHAT["messages"], "tools": [{"name": "f", "description": LONG, "input_schema": {"type": "object"}}]},
    ),
    *(
        (path, {"messages": CHAT["messages"]} | more)
        for path in ("/v1/chat/completions", "/tokenize")
        for more in (
            {"messages": [{"role": "user", "content": LONG}]},
            {"messages": [{"role": "user", "content": [{"type": "text", "text": LONG}]}]},
            {"messages": [{"role": LONG, "content": "x"}]},
            {"messages": [{"role": "assistant", "content": "x", "tool_calls": [CALL]}, {"role": "user", "content": "x"}]},
            {"tools": [TOOL]},
        )
    ),
]


@pytest.mark.parametrize(("path", "sent"), TOO_LONG, ids=[path for path, _ in TOO_LONG])
def test_a_text_that_can_not_fit_is_refused_before_it_is_tokenized(
    tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch, path: str, sent: Any
) -> None:
    tokenized: list[int] = []
    real = tokenizer_module._encode

    def count(backend: Any, text: str, **options: bool) -> list[int]:
        tokenized.append(len(text))
        return real(backend, text, **options)

    monkeypatch.setattr(tokenizer_module, "_encode", count)
    content = {"json": sent} if not isinstance(sent, str) else {"content": sent, "headers": {"content-type": "text/plain"}}
    reply = post(tiny_model_dir, path, **content)
    assert reply.status_code == 400
    assert "maximum context length is 100 tokens" in reply.text
    assert max(tokenized, default=0) < len(LONG)


def test_a_short_request_is_answered_while_large_ones_are_worked_on(tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    threads = set()
    real = Tokenizer.encode_chat

    def slow(self: Tokenizer, messages: list[dict[str, Any]], **options: Any) -> Any:
        if len(messages[0]["content"]) > LARGE:
            threads.add(threading.current_thread())
            begun.set()
            go_on.wait()
        return real(self, messages, **options)

    monkeypatch.setattr(Tokenizer, "encode_chat", slow)

    async def ask() -> None:
        async with http(make_service(tiny_model_dir, FakeClient())) as client:
            body = {"messages": [{"role": "user", "content": LONG}]}
            large = [asyncio.create_task(client.post("/tokenize", json=body)) for _ in range(20)]
            await asyncio.to_thread(begun.wait)
            try:
                for _ in range(20):
                    assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200
                assert not any(task.done() for task in large)
            finally:
                go_on.set()
            assert {reply.status_code for reply in await asyncio.gather(*large)} == {400}

    asyncio.run(ask())
    assert len(threads) == 1


def test_work_that_ends_after_the_close_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "TRIM_AFTER_S", 0.0)

    async def steps() -> list[object]:
        faults: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context))
        this = Intake(100)
        await this.enter(60)
        this.close()
        this.leave(60)
        for _ in range(3):
            await asyncio.sleep(0)
        return faults

    assert asyncio.run(steps()) == []


def test_the_bytes_of_large_bodies_at_once_are_bounded_and_turns_kept() -> None:
    async def steps() -> None:
        this, order = Intake(100), []

        async def one(name: str, size: int) -> None:
            await this.enter(size)
            order.append(name)

        first = [asyncio.create_task(one(name, size)) for name, size in [("a", 60), ("b", 60), ("c", 10), ("d", 500), ("e", 1)]]
        await asyncio.sleep(0)
        assert order == ["a"]  # c would fit, and doesn't overtake b
        this.leave(60)
        await asyncio.sleep(0)
        assert order == ["a", "b", "c"]
        first[3].cancel()  # who leaves holds up nobody
        with contextlib.suppress(asyncio.CancelledError):
            await first[3]
        await asyncio.gather(first[4])
        assert order == ["a", "b", "c", "e"]
        for size in (60, 10, 1):
            this.leave(size)
        await asyncio.wait_for(this.enter(500), 1)  # larger than all, and alone
        this.leave(500)
        this.close()

    asyncio.run(steps())


def test_room_taken_for_a_body_is_given_back_and_memory_is_trimmed(tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed = threading.Event()
    monkeypatch.setattr(intake, "TRIM_AFTER_S", 0)
    monkeypatch.setattr(intake.heap, "trim", trimmed.set)

    async def ask() -> None:
        service = make_service(tiny_model_dir, FakeClient())
        async with http(service) as client:
            for sent in ("{" + LONG, '{"prompt": "' + LONG + '"}', '{"prompt": "x", "user": "' + LONG + '"}'):
                await client.post("/v1/completions", content=sent)
        assert service.intake._held == 0
        assert await asyncio.to_thread(trimmed.wait, 10)

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/v1/completions", '{"prompt": [%s]}'),
        ("/v1/completions", '{"prompt": [[%s]]}'),
        ("/generate", '{"input_ids": [%s]}'),
        ("/detokenize", '{"tokens": [%s]}'),
        ("/cache/pin", '{"prompt": [%s]}'),
        ("/v1/chat/completions", '{"messages": [{"role": "user", "content": "\\",", "x": [%s]}]}'),
    ],
)
def test_a_body_of_too_many_values_is_refused_before_it_is_decoded(
    tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch, path: str, text: str
) -> None:
    monkeypatch.setattr(body, "MAX_VALUES", 1000)
    reply = post(tiny_model_dir, path, content=text % ",".join(["1"] * 40_000))
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "too_many_values")


def test_commas_in_texts_are_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "MAX_VALUES", 10)
    body.check_num_values(rb'{"a": "%s\", ,\\", "b": 1}' % (b",\n" * 100))
    with pytest.raises(InvalidRequestError, match="holds 11 values"):
        body.check_num_values(b'["a,b"' + b",1" * 10 + b"]")


def test_parameters_are_validated_once_whatever_the_number_of_prompts(
    tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(SamplingParams, "validate", lambda self, vocab_size: seen.append(self))
    reply = post(tiny_model_dir, "/v1/completions", json={"prompt": ["x"] * 500, "logit_bias": {"1": 1}, "max_tokens": 1})
    assert reply.status_code == 200
    assert len(seen) == 1


def test_what_every_answer_carries_along_is_bounded_in_all() -> None:
    grammar = Grammar("regex", "x" * (prompts.MAX_WEIGHT // 10))
    biases = dict.fromkeys(range(1024), 1.0)
    prompts.check_weight(1, SamplingParams(grammar=Grammar("regex", "x" * (2 * prompts.MAX_WEIGHT))))
    prompts.check_weight(60, SamplingParams(logit_bias=biases))
    for num_prompts, params, name in [
        (1024, SamplingParams(logit_bias=biases), "logit_bias"),
        (1, SamplingParams(n=11, grammar=grammar), "grammar"),
        (1024, SamplingParams(stop=("x" * 1024,) * 64), "stop"),
    ]:
        with pytest.raises(InvalidRequestError, match=f"{name} has about .* at most {prompts.MAX_WEIGHT}"):
            prompts.check_weight(num_prompts, params)
