"""A trace goes from a request to its command and its log lines, and to a collector if there is one."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.observe.traces import JsonLines
from sandboxer.settings import Settings
from tests.support.http.served import Served, serving

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
SHOW = {"command": "echo $TRACEPARENT"}


async def test_a_command_finds_the_trace_of_its_caller_in_its_environment(served: Served) -> None:
    path = await served.sandbox()
    answer = await served.client.post(f"{path}/exec", SHOW, headers=GIVEN)
    version, trace, span, flags = answer.json()["stdout"].strip().split("-")
    assert (version, trace, flags) == ("00", TRACE, "01")
    reported = answer.headers["traceparent"].split("-")
    assert reported[1] == TRACE
    assert len({span, reported[2], SPAN}) == 3, "caller, request and command are a span each"


async def test_a_caller_may_ask_for_a_trace(served: Served) -> None:
    path = await served.sandbox()
    answer = await served.client.post(f"{path}/exec", {**SHOW, "trace": True})
    assert answer.json()["stdout"].split("-")[1] == answer.headers["traceparent"].split("-")[1]


@pytest.mark.parametrize("headers", [{}, {"traceparent": "00-nonsense"}])
async def test_who_sends_no_valid_trace_is_told_of_none(served: Served, headers: dict[str, str]) -> None:
    path = await served.sandbox()
    answer = await served.client.post(f"{path}/exec", SHOW, headers=headers)
    assert answer.json()["stdout"] == "\n"
    assert "traceparent" not in answer.headers


async def test_a_refusal_belongs_to_its_trace_too(served: Served) -> None:
    answer = await served.client.http.get("/v1/sandboxes", headers=GIVEN)
    assert answer.status_code == 401
    assert answer.headers["traceparent"].split("-")[1] == TRACE


async def test_a_background_process_is_given_the_trace(served: Served) -> None:
    path = await served.sandbox()
    started = await served.client.post(f"{path}/processes", {**SHOW, "trace": True})
    assert started.status_code == 201
    assert "traceparent" in started.headers


@pytest.fixture
async def logged(settings: Settings) -> AsyncIterator[Served]:
    asked = settings.model_copy(update={"log_requests": True})
    async with serving(asked, {"ext.namespaces": Scripted(name="ext.namespaces")}) as running:
        yield running


async def test_the_line_of_a_request_has_its_id_and_its_trace(
    logged: Served, caplog: pytest.LogCaptureFixture
) -> None:
    lines: list[dict[str, Any]] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(json.loads(JsonLines().format(record)))  # type: ignore[method-assign]
    log = logging.getLogger("sandboxer.edges.http.envelope")
    log.addHandler(handler)
    with caplog.at_level("INFO", logger=log.name):
        answer = await logged.client.get("/v1/sandboxes", headers={**GIVEN, "x-request-id": "req-of-mine"})
    log.removeHandler(handler)
    (line,) = lines
    assert (line["request_id"], line["trace_id"]) == ("req-of-mine", TRACE)
    assert (line["method"], line["route"], line["status"]) == ("GET", "/v1/sandboxes", 200)
    assert line["span_id"] == answer.headers["traceparent"].split("-")[2]


# -- a collector --------------------------------------------------


class Collector(ThreadingHTTPServer):
    """Takes spans as a real one does: protobuf over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.services: set[str] = set()
        super().__init__(("127.0.0.1", 0), _Receiver)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            reported = {one.key: one.value.string_value for one in resource.resource.attributes}
            self.services.add(reported["service.name"])
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]


class _Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        assert self.path == "/v1/traces"
        assert self.headers["content-type"] == "application/x-protobuf"
        self.server.take(body)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing: the test says what is wrong."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


async def test_spans_of_a_request_and_its_command_reach_a_collector(
    settings: Settings, collector: Collector
) -> None:
    asked = settings.model_copy(update={"otlp_endpoint": collector.url})
    async with serving(asked, {"ext.namespaces": Scripted(name="ext.namespaces")}) as running:
        path = await running.sandbox()
        await running.client.post(f"{path}/exec", {"command": "exit 3"}, headers=GIVEN)
        unsampled = {"traceparent": f"00-{'a' * 32}-{SPAN}-00"}
        await running.client.get("/v1/sandboxes", headers=unsampled)
    # Whatever is left is delivered when the platform closes.
    assert collector.services == {"sandboxer"}
    by_name = {span.name: span for span in collector.spans if span.trace_id.hex() == TRACE}
    request, command = by_name["POST /v1/sandboxes/{sandbox_id}/exec"], by_name["exec"]
    assert request.parent_span_id.hex() == SPAN
    assert command.parent_span_id == request.span_id
    assert request.start_time_unix_nano <= command.start_time_unix_nano
    assert command.end_time_unix_nano <= request.end_time_unix_nano
    reported = {one.key: one.value for one in command.attributes}
    assert reported["process.exit.code"].int_value == 3
    assert any(span.name == "POST /v1/sandboxes" for span in collector.spans)
    assert not any(span.trace_id.hex() == "a" * 32 for span in collector.spans)


async def test_a_collector_that_is_not_there_costs_callers_nothing(settings: Settings) -> None:
    with Collector() as gone:
        url = gone.url
    asked = settings.model_copy(update={"otlp_endpoint": url})
    async with serving(asked, {"ext.namespaces": Scripted(name="ext.namespaces")}) as running:
        answer = await running.client.get("/v1/sandboxes")
    assert answer.status_code == 200
