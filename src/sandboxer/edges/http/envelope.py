"""What every answer carries, and what happens when nobody else caught an error. Outermost, raw ASGI.

A request id (the caller's own if it is sane), headers that keep browsers from guessing, one count and one
duration per route template.
"""

from __future__ import annotations

import logging
import re
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandboxer.edges.http import problems
from sandboxer.edges.http.disconnect import ClientGone
from sandboxer.kernel.errors import Broken
from sandboxer.kernel.exhaustion import host_exhausted
from sandboxer.kernel.ids import new_id
from sandboxer.observe.metrics import Metrics

log = logging.getLogger(__name__)
_SANE_ID = re.compile(rb"[A-Za-z0-9._-]{8,128}")
_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)


class Envelope:
    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope[problems.REQUEST_ID] = request_id
        head = (b"x-request-id", request_id.encode())
        began = time.perf_counter()
        status = 0

        async def enveloped(message: Message) -> None:
            nonlocal status
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), head, *_HEADERS]
            elif message["type"] == "websocket.accept":
                status = 101
                message["headers"] = [*message.get("headers", ()), head]
            await send(message)

        try:
            await self._app(scope, receive, enveloped)
        except ClientGone:
            status = status or 499
        except Exception as error:
            log.error("unexpected (%s %r)", request_id, scope["path"], exc_info=error)
            told = host_exhausted(error) or Broken(why=str(error))
            if status == 0 and scope["type"] == "http":
                await problems.response(told, request_id)(scope, receive, enveloped)
            # Otherwise the answer has begun: leaving it unfinished tells the client that it is not whole.
        finally:
            self._count(_template(scope), _method(scope), status, time.perf_counter() - began)

    def _count(self, route: str, method: str, status: int, seconds: float) -> None:
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.request_seconds.labels(route).observe(seconds)


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SANE_ID.fullmatch(value):
            return bytes(value).decode()
    return new_id("req")


def _template(scope: Scope) -> str:
    """The route, not the path: ids in labels would grow without end."""
    return str(getattr(scope.get("route"), "path", "unmatched"))


def _method(scope: Scope) -> str:
    method = str(scope.get("method", "WEBSOCKET"))
    return method if method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "WEBSOCKET") else "OTHER"
