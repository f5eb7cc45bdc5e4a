"""Nobody passes unsigned. Raw ASGI, in front of every route: the head is judged before the body is read.

A body takes effect only if it is the one that was signed. Ordinary bodies are read and checked whole before
the route runs; uploads stream through a check that never delivers the last piece of a wrong body, and the
routes that take them act only at a clean end.
"""

from __future__ import annotations

import asyncio
import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandboxer.edges.http import problems
from sandboxer.edges.http.disconnect import ClientGone
from sandboxer.identity.authenticate import MAX_V1_BODY, Authenticator, BodyCheck, Verdict
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import SandboxerError
from sandboxer.observe.metrics import Metrics

CALLER = "sandboxer.caller"
# The whole list. `/metrics` has a rule of its own (loopback only, by default).
UNSIGNED_PATHS = frozenset({"/health", "/readyz", "/metrics", "/openapi.json", "/v1/capabilities"})
# Bodies that are streamed into a sandbox and never held in memory.
_UPLOAD = re.compile(r"/v1/sandboxes/[^/]+/files/(content|tar)")
# Room for the largest stdin a command may be given, as base 64 in JSON.
MAX_BODY = 12 * 1024 * 1024
BODY_TIMEOUT_S = 60.0
UPLOAD_PAUSE_S = 60.0


class TooSlow(Exception):
    """The body did not arrive in time."""


class Authentication:
    def __init__(self, app: ASGIApp, authenticator: Authenticator, clock: Clock, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics
        self._authenticator = authenticator
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or is_unsigned(scope):
            await self._app(scope, receive, send)
            return
        try:
            verdict = await self._authenticator.check_head(
                scope["headers"], scope.get("method", "GET"), target_of(scope), self._clock.now()
            )
            if scope["type"] == "websocket":
                _check_nothing(verdict)
            else:
                receive = await _checked(scope, receive, verdict)
        except SandboxerError as error:
            self._metrics.refused_signatures.labels(str(error.facts.get("reason", error.code))).inc()
            await _refuse(error, scope, receive, send)
            return
        except TooSlow:
            await _send_too_slow(scope, receive, send)
            return
        scope[CALLER] = verdict.caller
        await self._app(scope, receive, send)


def caller_of(scope: Scope) -> Caller:
    caller = scope[CALLER]
    assert isinstance(caller, Caller)
    return caller


def is_unsigned(scope: Scope) -> bool:
    return scope["path"] in UNSIGNED_PATHS and scope.get("method") in ("GET", "HEAD")


def target_of(scope: Scope) -> str:
    """Path with query exactly as sent: decoding and encoding again would not give back the same bytes."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    # latin-1 maps every byte to one character; the authenticator refuses what is not ASCII.
    return (raw + b"?" + query if query else raw).decode("latin-1")


async def _checked(scope: Scope, receive: Receive, verdict: Verdict) -> Receive:
    is_upload = scope["method"] == "PUT" and _UPLOAD.fullmatch(scope["path"]) is not None
    if is_upload and not verdict.needs_body:
        return _streamed(receive, verdict.body_check())
    body = await _whole(receive, MAX_V1_BODY if verdict.needs_body else MAX_BODY)
    if verdict.needs_body:
        verdict.verify_v1(body)
    else:
        check = verdict.body_check()
        check.update(body)
        check.finish()
    return _replayed(body, receive)


def _check_nothing(verdict: Verdict) -> None:
    """A WebSocket upgrade has no body; its signature must say so."""
    if verdict.needs_body:
        verdict.verify_v1(b"")
    else:
        verdict.body_check().finish()


async def _whole(receive: Receive, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                chunk = message.get("body", b"")
                size += len(chunk)
                if size > limit:
                    raise problems.too_large(limit)
                chunks.append(chunk)
                if not message.get("more_body", False):
                    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
    except TimeoutError:
        raise TooSlow from None


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body in one piece, then whatever the connection says next (that the client went away)."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay


def _streamed(receive: Receive, check: BodyCheck) -> Receive:
    is_done = False

    async def stream() -> Message:
        nonlocal is_done
        if is_done:
            return await receive()
        try:
            async with asyncio.timeout(UPLOAD_PAUSE_S):
                message = await receive()
        except TimeoutError:
            raise TooSlow from None
        if message["type"] != "http.request":
            return message
        check.update(message.get("body", b""))
        if not message.get("more_body", False):
            check.finish()
            is_done = True
        return message

    return stream


async def _refuse(error: SandboxerError, scope: Scope, receive: Receive, send: Send) -> None:
    answer = problems.response(error, problems.request_id_of(scope))
    if scope["type"] == "http":
        # What was not read of the body is not wanted any more.
        answer.headers["connection"] = "close"
        await answer(scope, receive, send)
    elif "websocket.http.response" in scope.get("extensions", {}):
        head = {
            "type": "websocket.http.response.start",
            "status": answer.status_code,
            "headers": answer.raw_headers,
        }
        await send(head)
        await send({"type": "websocket.http.response.body", "body": answer.body})
    else:
        await send({"type": "websocket.close", "code": 1008, "reason": error.code})


async def _send_too_slow(scope: Scope, receive: Receive, send: Send) -> None:
    answer = problems.framework_response(408, "The body came too slowly.", problems.request_id_of(scope))
    answer.headers["connection"] = "close"
    await answer(scope, receive, send)
