"""Sends spans to a collector, by OTLP over HTTP. Imported only where `otlp_endpoint` is set (extra `otlp`).

Headers and certificates of the collector are taken from the standard `OTEL_EXPORTER_OTLP_*` variables.
"""

from __future__ import annotations

from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from sandboxer.observe.traces import Span

_TIMEOUT_S = 5
_SCOPE = InstrumentationScope("sandboxer")


class OtlpSpans:
    """Queues at most 2,048 spans; a thread delivers them every few seconds."""

    def __init__(self, endpoint: str, version: str) -> None:
        exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=_TIMEOUT_S)
        # Its methods have no types.
        self._queue: Any = BatchSpanProcessor(exporter)
        self._resource = Resource.create({"service.name": "sandboxer", "service.version": version})

    def record(self, span: Span) -> None:
        self._queue.on_end(
            ReadableSpan(
                name=span.name,
                context=_context(span.trace.trace_id, span.trace.span_id, span.trace.is_sampled),
                parent=_parent(span),
                resource=self._resource,
                attributes=dict(span.attributes),
                kind=SpanKind.SERVER if span.is_request else SpanKind.INTERNAL,
                status=Status(StatusCode.ERROR if span.is_failed else StatusCode.UNSET),
                start_time=span.began_ns,
                end_time=span.ended_ns,
                instrumentation_scope=_SCOPE,
            )
        )

    def close(self) -> None:
        self._queue.shutdown()


def _parent(span: Span) -> SpanContext | None:
    if span.trace.parent_id is None:
        return None
    return _context(
        span.trace.trace_id, span.trace.parent_id, span.trace.is_sampled, is_remote=span.is_request
    )


def _context(trace_id: str, span_id: str, is_sampled: bool, *, is_remote: bool = False) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT)
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=is_remote, trace_flags=flags)
