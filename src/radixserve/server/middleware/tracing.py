"""OpenTelemetry traces: one span a request for work, child of the caller's span if it sent one (`traceparent`).

They are on when the OpenTelemetry SDK is installed (the extra `otel`) and the standard variables name a place to send them to;
everything else (endpoint, headers, service name, sampling) is read from these variables by OpenTelemetry itself. Spans are sent
in batches by a thread of their own and never hold up a request.
"""

import logging
import os
import time
from typing import TYPE_CHECKING, Any

import radixserve
from radixserve.server.middleware.request_log import RequestRecord

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

SWITCHES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

logger = logging.getLogger(__name__)


class Tracer:
    """Makes spans of what requests' records say."""

    def __init__(self, provider: "TracerProvider", model: str) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._model = model
        self._tracer = provider.get_tracer("radixserve", radixserve.__version__)
        self._context_of = TraceContextTextMapPropagator().extract

    def trace(self, record: RequestRecord, method: str, path: str, headers: list[tuple[bytes, bytes]]) -> None:
        """Ends a request's span now. Its queue, prefill and decode are the times between its events."""
        from opentelemetry.trace import SpanKind, Status, StatusCode

        zero = time.time() - time.monotonic()

        def unix_ns(seconds: float) -> int:
            return int((zero + seconds) * 1e9)

        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers if name.startswith(b"trace")}
        span = self._tracer.start_span(
            f"{method} {path}",
            self._context_of(carrier),
            SpanKind.SERVER,
            self._attributes(record, method, path),
            start_time=unix_ns(record.begin),
        )
        for name, seconds in (("admitted", record.admitted), ("first token", record.first_token)):
            if seconds is not None:
                span.add_event(name, timestamp=unix_ns(seconds))
        if record.error is not None:
            span.set_status(Status(StatusCode.ERROR, record.error))
        span.end()

    def close(self) -> None:
        """Sends what is left."""
        self._provider.shutdown()

    def _attributes(self, record: RequestRecord, method: str, path: str) -> dict[str, Any]:
        """Names of OpenTelemetry's conventions where there are some."""
        found: dict[str, Any] = {
            "http.request.method": method,
            "http.response.status_code": record.status,
            "url.path": path,
            "gen_ai.request.model": self._model,
            "radixserve.request_id": record.id,
        }
        if record.usage is not None:
            found["gen_ai.usage.input_tokens"] = record.usage.prompt_tokens
            found["gen_ai.usage.output_tokens"] = record.usage.completion_tokens
            found["radixserve.cached_tokens"] = record.usage.cached_tokens
        if record.finish is not None:
            found["gen_ai.response.finish_reasons"] = record.finish.split(",")
        if record.admitted is not None:
            found["radixserve.queue_s"] = record.admitted - record.begin
            if record.first_token is not None:
                found["radixserve.prefill_s"] = record.first_token - record.admitted
        if record.first_token is not None:
            found["radixserve.decode_s"] = time.monotonic() - record.first_token
        return found


def make_tracer(model: str) -> Tracer | None:
    """A tracer as the environment asks for one; None if it asks for none, or if the extra is missing, which is logged."""
    asked = next((name for name in SWITCHES if os.environ.get(name)), None)
    if asked is None or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        remedy = "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
        logger.warning("%s is set, but OpenTelemetry is not installed: no traces; %s", asked, remedy)
        return None
    provider = TracerProvider(resource=Resource({SERVICE_NAME: "radixserve"}).merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracer(provider, model)
