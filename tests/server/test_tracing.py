"""A span says what a request experienced; without a place to send it to there is none."""

import asyncio
import logging
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from radixserve.server.middleware.request_log import RequestRecord
from radixserve.server.middleware.tracing import SWITCHES, Tracer, make_tracer
from tests.server.fake_engine import FakeClient, http, make_service

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")


@pytest.fixture(autouse=True)
def no_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SWITCHES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """A collector's address, and the bodies that it was sent."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", bodies
        server.shutdown()
        thread.join()


def test_a_span_has_the_request_s_facts_and_its_caller(tiny_model_dir: Path) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    service = make_service(tiny_model_dir, FakeClient())
    service.tracer = Tracer(provider, "tiny")
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    async def call() -> None:
        async with http(service) as client:
            body = {"prompt": "Hello", "max_tokens": 5}
            reply = await client.post("/v1/completions", json=body, headers={"traceparent": caller, "x-request-id": "mine"})
            assert reply.status_code == 200
            await client.get("/health")

    asyncio.run(call())
    service.tracer.close()
    (span,) = exporter.get_finished_spans()
    assert span.name == "POST /v1/completions"
    assert span.parent is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == tuple(caller.split("-")[1:3])
    assert span.attributes is not None
    assert span.attributes["radixserve.request_id"] == "mine"
    assert span.attributes["radixserve.cached_tokens"] == 0
    assert span.attributes["gen_ai.usage.output_tokens"] == 5
    assert span.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert [event.name for event in span.events] == ["first token"]
    assert span.start_time <= span.events[0].timestamp <= span.end_time  # type: ignore[operator]


def test_the_environment_switches_it_on(collector: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert make_tracer("tiny") is None
    url, bodies = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "my-service")
    tracer = make_tracer("tiny")
    assert tracer is not None
    tracer.trace(RequestRecord("one"), "POST", "/v1/completions", [])
    tracer.close()
    assert b"my-service" in bodies[0]
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert make_tracer("tiny") is None


def test_without_the_extra_a_warning_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with caplog.at_level(logging.WARNING):
        assert make_tracer("tiny") is None
    assert "pip install opentelemetry-sdk" in caplog.text
