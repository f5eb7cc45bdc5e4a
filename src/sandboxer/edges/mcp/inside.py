"""Carries calls from the platform to itself: what a tool asks for is asked for as any client would, in the
name of who called the tool, and nothing travels.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from urllib.parse import unquote

import httpx
from starlette.types import ASGIApp, Message, Scope

from sandboxer.edges.front.http import SLOT
from sandboxer.edges.http.authentication import CALLER, KNOWN
from sandboxer.identity.keys import PREFIX
from sandboxer.identity.sessions.tokens import HEADER

# Where it came from, so that limits hold for the same address; what it is part of.
_PASSED_ON = frozenset({b"x-forwarded-for", b"x-forwarded-proto", b"traceparent"})
_TOKENS = (b"bearer " + PREFIX.encode(), b"bearer " + HEADER.encode())
_outer: ContextVar[Scope] = ContextVar("request that a tool was called by")


@contextmanager
def called_by(outer: Scope) -> Iterator[None]:
    """Calls that are carried within are those of this request's caller."""
    token = _outer.set(outer)
    try:
        yield
    finally:
        _outer.reset(token)


class Inside(httpx.AsyncBaseTransport):
    """Hands requests to the app that runs it."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        outer = _outer.get()
        exchange = _Exchange(outer["app"], _scope(request, outer), await request.aread())
        head = await exchange.head()
        return httpx.Response(head["status"], headers=head["headers"], stream=exchange)


def _scope(request: httpx.Request, outer: Scope) -> Scope:
    path, _, query = request.extensions["target"].partition(b"?")
    headers = [(name.lower(), value) for name, value in request.headers.raw]
    headers += [(name, value) for name, value in outer["headers"] if _is_passed_on(name, value)]
    scope: Scope = {
        "type": "http",
        "asgi": outer["asgi"],
        "http_version": "1.1",
        "method": request.method,
        "scheme": outer["scheme"],
        "path": unquote(path.decode("ascii")),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": headers,
        "client": outer.get("client"),
        "server": outer.get("server"),
        "state": dict(outer.get("state", {})),
        "extensions": {},
    }
    if CALLER in outer:
        scope[KNOWN] = outer[CALLER]
    elif SLOT in outer:
        scope[SLOT] = outer[SLOT]
    return scope


def _is_passed_on(name: bytes, value: bytes) -> bool:
    """A token goes with the call, so that the call ends with what the token stands for."""
    return name in _PASSED_ON or (name == b"authorization" and value.lower().startswith(_TOKENS))


class _Exchange(httpx.AsyncByteStream):
    """One request to the app, which runs beside its reader and ends with it."""

    def __init__(self, app: ASGIApp, scope: Scope, body: bytes) -> None:
        self._said: asyncio.Queue[Message | None] = asyncio.Queue()
        self._asked: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        self._task = asyncio.create_task(self._run(app, scope), name="tool call")

    async def _run(self, app: ASGIApp, scope: Scope) -> None:
        try:
            await app(scope, self._receive, self._send)
        finally:
            self._said.put_nowait(None)

    async def _receive(self) -> Message:
        if self._asked:
            return self._asked.pop()
        # Its reader goes away by ending the task.
        return await asyncio.Future()

    async def _send(self, message: Message) -> None:
        self._said.put_nowait(message)

    async def head(self) -> Message:
        """Returns how the answer begins. Raises httpx.ReadError if there is none."""
        try:
            message = await self._said.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if message is None:
            await self.aclose()
            raise httpx.ReadError("the request ended without an answer")
        return message

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (message := await self._said.get()) is not None:
            if body := message.get("body"):
                yield bytes(body)
            if not message.get("more_body", False):
                return

    async def aclose(self) -> None:
        self._task.cancel()
        # What it raised was told to whoever logs requests.
        with suppress(asyncio.CancelledError, Exception):
            await self._task
