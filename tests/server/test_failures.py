"""Failures of the engine, as clients see them."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from radixserve.config import ServerConfig
from radixserve.errors import EngineDeadError, RadixServeError
from radixserve.server.app import make_app
from tests.server.fake_engine import FakeClient, http, make_service
from tests.server.running import frames

DEAD = EngineDeadError("the engine process ended by signal SIGKILL")


def post(model: Path, client: FakeClient, path: str, **body: Any) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with http(make_service(model, client)) as session:
            return await session.post(path, json=body)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("failure", "status"), [(RadixServeError("logits are not numbers"), 500), (DEAD, 503), (RuntimeError("a bug"), 500)]
)
def test_a_whole_answer_that_fails_has_an_error_status(tiny_model_dir: Path, failure: Exception, status: int) -> None:
    reply = post(tiny_model_dir, FakeClient(failure), "/v1/completions", prompt="Once")
    assert reply.status_code == status
    assert reply.json()["error"]["type"] == "server_error"
    assert ("a bug" in reply.text) is False
    assert "choices" not in reply.json()


@pytest.mark.parametrize("failure", [RadixServeError("logits are not numbers"), DEAD, RuntimeError("a bug")])
def test_a_stream_that_fails_ends_with_the_error(tiny_model_dir: Path, failure: Exception) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    reply = post(tiny_model_dir, FakeClient(failure), "/v1/chat/completions", messages=messages, stream=True)
    assert reply.status_code == 200
    *chunks, last = frames(reply.text)
    assert last["error"]["message"] == ("internal error: the server's log says more" if "bug" in str(failure) else str(failure))
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "aaaa"
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)


def test_a_bug_is_counted_and_logged_as_such(tiny_model_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def ask() -> tuple[httpx.Response, float | None]:
        service = make_service(tiny_model_dir, FakeClient(RuntimeError("a bug")))
        async with http(service) as session:
            reply = await session.post("/v1/completions", json={"prompt": "Once"})
        return reply, service.metrics.registry.get_sample_value("radixserve_http_requests_total", {"status": "500"})

    with caplog.at_level(logging.INFO, "radixserve.requests"):
        reply, count = asyncio.run(ask())
    assert (reply.status_code, count) == (500, 1)
    assert "500 POST /v1/completions" in caplog.text
    assert "error='RuntimeError'" in caplog.text


@pytest.mark.parametrize(
    ("level", "reason"), [(logging.INFO, "error='invalid_request_error temperature'"), (logging.DEBUG, "error='temperature is -1")]
)
def test_a_refusal_s_log_line_says_why(tiny_model_dir: Path, caplog: pytest.LogCaptureFixture, level: int, reason: str) -> None:
    """The field at fault; its value, which may be a prompt, at the debug level alone."""
    with caplog.at_level(level, "radixserve.requests"):
        post(tiny_model_dir, FakeClient(), "/v1/completions", prompt="Once", temperature=-1)
    assert "400 POST /v1/completions" in caplog.text
    assert reason in caplog.text


def test_flush_while_busy_is_a_conflict(tiny_model_dir: Path) -> None:
    reply = post(tiny_model_dir, FakeClient(), "/flush_cache")
    assert reply.status_code == 409
    assert "1 requests run" in reply.json()["error"]["message"]


def test_health_follows_the_engine_and_the_gate(tiny_model_dir: Path) -> None:
    async def probe() -> list[int]:
        client = FakeClient()
        service = make_service(tiny_model_dir, client)
        async with http(service) as session:
            statuses = [(await session.get("/health")).status_code]
            service.gate.close()
            statuses.append((await session.get("/health")).status_code)
            statuses.append((await session.post("/v1/completions", json={"prompt": "a"})).status_code)
            statuses.append((await session.get("/metrics")).status_code)
            client.failure = EngineDeadError("it ended")
            statuses.append((await session.get("/health")).status_code)
        return statuses

    assert asyncio.run(probe()) == [200, 503, 503, 200, 503]


def test_a_full_server_turns_new_work_away_and_says_when_to_come_again(tiny_model_dir: Path) -> None:
    async def ask() -> None:
        client = FakeClient()
        service = make_service(tiny_model_dir, client, ServerConfig(max_open_requests=2))
        async with http(service) as session:
            for _ in range(2):
                service.gate.enter()
            refused = await session.post("/v1/completions", json={"prompt": "a"})
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "1"
            assert refused.json()["error"]["code"] == "overloaded"
            assert refused.json()["error"]["message"].startswith("2 requests wait or are answered")
            in_messages = await session.post("/v1/messages", json={})
            assert in_messages.json()["error"]["type"] == "overloaded_error"
            watchers = ("/health", "/health_generate", "/metrics", "/server_info")
            assert [(await session.get(path)).status_code for path in watchers] == [200] * 4
            service.gate.leave()
            assert (await session.post("/v1/completions", json={"prompt": "a"})).status_code == 200

    asyncio.run(ask())


def test_a_client_that_leaves_while_it_sends_is_no_bug(tiny_model_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "query_string": b"", "headers": [(b"host", b"localhost")]}
    received = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> dict[str, Any]:
        return next(received)

    async def send(message: Any) -> None:
        pass

    with caplog.at_level(logging.INFO, "radixserve.requests"):
        asyncio.run(make_app(make_service(tiny_model_dir, FakeClient(DEAD)))(scope, receive, send))
    assert "499 POST /v1/completions" in caplog.text
