"""The outermost layer, raw ASGI: it adds what every answer carries, and handles errors that nobody else
caught.

It adds a request id (the caller's own if it is sane), headers that keep browsers from guessing, deprecation,
and the trace, and records one count and one duration per route template.
"""

from __future__ import annotations

import logging
import re
import time
from datetime import UTC, datetime
from datetime import time as time_of_day
from email.utils import format_datetime
from functools import cache

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandboxer.edges.http import problems
from sandboxer.edges.http.disconnection import ClientGone
from sandboxer.edges.http.matcher import operation_of
from sandboxer.kernel.errors import Broken, host_exhausted
from sandboxer.kernel.values import new_id
from sandboxer.observe.metrics import Metrics
from sandboxer.observe.traces import CURRENT, FACTS, Attribute, RequestTrace, Span, SpanSink
from sandboxer.wire.operations.declaration import Deprecation

log = logging.getLogger(__name__)
_SANE_ID = re.compile(rb"[A-Za-z0-9._-]{8,128}")
_POLICY = b"content-security-policy"
# The scope key of the policy of a page of our own.
PAGE_POLICY = "sandboxer.page_policy"
_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (_POLICY, b"default-src 'none'; frame-ancestors 'none'"),
)
_NOT_KEPT = (b"cache-control", b"no-store")


def _usual(scope: Scope, status: int) -> list[tuple[bytes, bytes]]:
    """Returns the headers of every answer. A page of our own may have a policy of its own; what a program
    inside answers cannot, because it would run here.
    """
    policy = scope.get(PAGE_POLICY)
    usual = [(name, policy if policy and name == _POLICY else value) for name, value in _HEADERS]
    operation = operation_of(scope)
    return [*usual, _kept_for(operation.cache_s if operation is not None and status == 200 else 0)]


@cache
def _kept_for(seconds: int) -> tuple[bytes, bytes]:
    return (b"cache-control", f"public, max-age={seconds}".encode()) if seconds else _NOT_KEPT


class Envelope:
    def __init__(
        self, app: ASGIApp, metrics: Metrics, spans: SpanSink | None = None, *, is_logged: bool = False
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._spans = spans
        self._is_logged = is_logged

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        tracked = _tracked(scope)
        request_id = tracked.request_id
        scope[problems.REQUEST_ID] = request_id
        head = ((b"x-request-id", request_id.encode()), *_deprecation(scope))
        began = time.perf_counter()
        status = 0

        async def enveloped(message: Message) -> None:
            nonlocal status
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                status = message["status"]
                message["headers"] = [
                    *message.get("headers", ()),
                    *head,
                    *_trace(tracked),
                    *_usual(scope, status),
                ]
            elif message["type"] == "websocket.accept":
                status = 101
                message["headers"] = [*message.get("headers", ()), *head]
            await send(message)

        outer = CURRENT.set(tracked)
        try:
            await self._app(scope, receive, enveloped)
        except ClientGone:
            status = status or 499
        except Exception as error:
            log.error("unexpected (%s %r)", request_id, scope["path"], exc_info=error)
            problem = host_exhausted(error) or Broken(why=str(error))
            if status == 0 and scope["type"] == "http":
                await problems.response(problem, request_id)(scope, receive, enveloped)
            # Otherwise the answer has begun; leaving it unfinished tells the client that it is not complete.
        finally:
            self._count(_template(scope), _method(scope), status, time.perf_counter() - began)
            if self._is_logged or self._spans is not None:
                self._tell(scope, tracked, status, time.perf_counter() - began)
            CURRENT.reset(outer)

    def _count(self, route: str, method: str, status: int, seconds: float) -> None:
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.request_seconds.labels(route).observe(seconds)

    def _tell(self, scope: Scope, tracked: RequestTrace, status: int, seconds: float) -> None:
        route, method = _template(scope), _method(scope)
        if self._is_logged:
            facts = {"method": method, "route": route, "status": status, "ms": round(seconds * 1000, 3)}
            log.info("%s %s %d, %.1f ms", method, route, status, seconds * 1000, extra={FACTS: facts})
        if self._spans is not None:
            attributes: dict[str, Attribute] = {
                "http.request.method": method,
                "http.route": route,
                "http.response.status_code": status,
                "sandboxer.request_id": tracked.request_id,
            }
            ended = time.time_ns()
            self._spans.record(
                Span(
                    name=f"{method} {route}",
                    trace=tracked.trace,
                    began_ns=ended - int(seconds * 1e9),
                    ended_ns=ended,
                    attributes=attributes,
                    is_failed=status >= 500,
                    is_request=True,
                )
            )


def _tracked(scope: Scope) -> RequestTrace:
    request_id, given, traces = None, None, 0
    for name, value in scope["headers"]:
        if name == b"x-request-id" and request_id is None and _SANE_ID.fullmatch(value):
            request_id = bytes(value).decode()
        elif name == b"traceparent":
            given, traces = value, traces + 1
    # Two traces count as none.
    return RequestTrace(request_id or new_id("req"), given if traces == 1 else None)


def _trace(tracked: RequestTrace) -> tuple[tuple[bytes, bytes], ...]:
    """Adds the trace to the answer for a caller that takes part in tracing."""
    return ((b"traceparent", tracked.trace.traceparent.encode()),) if tracked.is_propagated else ()


def _deprecation(scope: Scope) -> tuple[tuple[bytes, bytes], ...]:
    """Adds the headers of RFC 9745 and RFC 8594 if the operation will be removed."""
    operation = operation_of(scope)
    deprecated = None if operation is None else operation.deprecated
    return () if deprecated is None else _deprecation_headers(deprecated)


@cache
def _deprecation_headers(deprecated: Deprecation) -> tuple[tuple[bytes, bytes], ...]:
    since, sunset = (
        datetime.combine(day, time_of_day(), UTC) for day in (deprecated.since, deprecated.sunset)
    )
    return (
        (b"deprecation", f"@{int(since.timestamp())}".encode()),
        (b"sunset", format_datetime(sunset, usegmt=True).encode()),
    )


def _template(scope: Scope) -> str:
    """Returns the route's template and not the path, because ids in labels would grow without end."""
    return str(getattr(scope.get("route"), "path", "unmatched"))


def _method(scope: Scope) -> str:
    method = str(scope.get("method", "WEBSOCKET"))
    return method if method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "WEBSOCKET") else "OTHER"
