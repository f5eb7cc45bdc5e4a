"""Carries calls from the platform to itself: what a tool asks for is asked for as any client would, in the
name of who called the tool, and nothing travels.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Scope

from sandboxer.edges.front.http import SLOT
from sandboxer.edges.http.authentication import CALLER, KNOWN
from sandboxer.identity.keys import PREFIX
from sandboxer.identity.sessions.tokens import HEADER
from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.call import Answer, Call, problem_of
from sandboxer.sdk.credentials import Credentials
from sandboxer.sdk.errors import Unreachable
from sandboxer.sdk.exchange import Signer, required_by

T = TypeVar("T")
HERE = "http://localhost"
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


class InsideLine(AsyncLine):
    """Hands calls to the app that runs it. Nothing is tried again: what is lost here is lost."""

    def __init__(self, credentials: Credentials) -> None:
        self.signer = Signer(credentials)
        self.url = HERE

    async def close(self) -> None:
        """There is no connection."""

    @asynccontextmanager
    async def open(self, call: Call[T]) -> AsyncIterator[Any]:
        """Yields what is used of an answer by HTTP: `status_code`, `headers`, `aiter_bytes()`."""
        outer = _outer.get()
        head = self.signer.headers(call)
        exchange = _Exchange(outer["app"], _scope(call, head, outer), b"".join(call.body.open()))
        try:
            await exchange.begin()
            if exchange.status_code >= 400 and exchange.status_code not in call.also_reads:
                content = b"".join([piece async for piece in exchange.aiter_bytes()])
                error = problem_of(Answer(exchange.status_code, exchange.headers, content))
                error.payment = required_by(exchange.status_code, exchange.headers)
                raise error
            yield exchange
        finally:
            await exchange.aclose()

    async def send(self, call: Call[T]) -> T:
        async with self.open(call) as answer:
            content = b"".join([piece async for piece in answer.aiter_bytes()])
        return call.read(Answer(answer.status_code, answer.headers, content))


def _scope(call: Call[T], head: Mapping[str, str], outer: Scope) -> Scope:
    path, _, query = call.target.encode("ascii").partition(b"?")
    headers = [
        (name.encode(), value.encode("latin-1")) for name, value in {"host": "localhost", **head}.items()
    ]
    headers += [(name, value) for name, value in outer["headers"] if _is_passed_on(name, value)]
    scope: Scope = {
        "type": "http",
        "asgi": outer["asgi"],
        "http_version": "1.1",
        "method": call.method,
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


class _Exchange:
    """One request to the app, which runs beside its reader and ends with it."""

    def __init__(self, app: ASGIApp, scope: Scope, body: bytes) -> None:
        self.status_code = 0
        self.headers: Mapping[str, str] = {}
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

    async def begin(self) -> None:
        """Waits for the head of the answer. Raises Unreachable if there is none."""
        if (message := await self._said.get()) is None:
            raise Unreachable("The request ended without an answer.", next_step="Try again.")
        self.status_code = message["status"]
        self.headers = {name.decode().lower(): value.decode("latin-1") for name, value in message["headers"]}

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
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
