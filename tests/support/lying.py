"""A proxy before a platform that tells one lie: proof that whoever checks a platform notices.

It has the account's key, so that it can sign what it bends, and do more than it was asked.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from sandboxer.edges.http.server import Server, listen
from tests.support.http.signed import Credentials

# Of one connection, or made anew on the way.
NOT_PASSED_ON = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "content-encoding", "date", "server"}
)
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


@dataclass(frozen=True)
class Asked:
    method: str
    target: str
    headers: dict[str, str]
    content: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


@dataclass(frozen=True)
class Told:
    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    def saying(self, value: object, status: int | None = None) -> Told:
        return replace(self, content=json.dumps(value).encode(), status=status or self.status)


@dataclass
class Liar:
    """What a lie may use: the platform as it is, and a memory."""

    http: httpx.AsyncClient
    credentials: Credentials
    kept: dict[str, Any] = field(default_factory=dict)

    async def honest(self, asked: Asked) -> Told:
        answer = await self.http.request(
            asked.method, asked.target, headers=asked.headers, content=asked.content
        )
        headers = {name: value for name, value in answer.headers.items() if name not in NOT_PASSED_ON}
        return Told(answer.status_code, headers, answer.content)

    async def as_account(self, method: str, target: str, body: object = None) -> Told:
        """Asks with the account's own signature."""
        content = b"" if body is None else json.dumps(body).encode()
        return await self.signed(Asked(method, target, {"content-type": "application/json"}, content))

    async def signed(self, asked: Asked) -> Told:
        """Passes a request on under the account's signature, whoever sent it."""
        kept = ("content-type", "accept", "idempotency-key")
        headers = {name: value for name, value in asked.headers.items() if name in kept}
        digest = hashlib.sha256(asked.content).hexdigest()
        headers |= self.credentials.head(asked.method, asked.target, digest, timestamp=str(int(time.time())))
        return await self.honest(replace(asked, headers=headers))


Lie = Callable[[Liar, Asked], Awaitable[Told]]


def on(method: str, pattern: str, lie: Lie) -> Lie:
    """Lies where method and path are these, and nowhere else. The groups of the pattern are in `kept`."""

    async def told(liar: Liar, asked: Asked) -> Told:
        found = re.fullmatch(pattern, asked.path)
        if asked.method != method or found is None:
            return await liar.honest(asked)
        liar.kept |= found.groupdict()
        return await lie(liar, asked)

    return told


def changed(change: Callable[[Any], object]) -> Lie:
    """Changes what was answered."""

    async def told(liar: Liar, asked: Asked) -> Told:
        answer = await liar.honest(asked)
        if answer.status >= 400:
            return answer
        said = answer.json
        change(said)
        return answer.saying(said)

    return told


def instead(value: object, status: int = 200) -> Lie:
    """Does nothing, and says that it is done."""

    async def told(liar: Liar, asked: Asked) -> Told:
        return Told(status, {"content-type": "application/json"}, json.dumps(value).encode())

    return told


def only_said(change: Callable[[Any], object], path: str) -> Lie:
    """Does nothing, and answers with how the thing at `path` stands, changed as if it were done."""

    async def told(liar: Liar, asked: Asked) -> Told:
        answer = await liar.as_account("GET", path.format(**liar.kept))
        said = answer.json
        change(said)
        return answer.saying(said, 200)

    return told


def and_then(method: str, target: str, body: object = None) -> Lie:
    """Does what was asked, and then more. Names in the target are of `kept` and of the answer."""

    async def told(liar: Liar, asked: Asked) -> Told:
        answer = await liar.honest(asked)
        if answer.status < 400:
            said = answer.json if answer.content else {}
            await liar.as_account(method, target.format(**{**said, **liar.kept}), body)
        return answer

    return told


async def unchecked(liar: Liar, asked: Asked) -> Told:
    """Believes every request, whatever its signature says."""
    return await liar.signed(asked)


@asynccontextmanager
async def lying(url: str, credentials: Credentials, lie: Lie | None) -> AsyncIterator[str]:
    """The address of a proxy that tells this lie; without one it is honest."""
    listening, up = listen("127.0.0.1", 0), asyncio.Event()
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:
        liar = Liar(http, credentials)

        async def answer(request: Request) -> Response:
            asked = await _asked(request)
            if "text/event-stream" in asked.headers.get("accept", ""):
                return StreamingResponse(_streamed(http, asked), media_type="text/event-stream")
            told = await (liar.honest(asked) if lie is None else lie(liar, asked))
            return Response(told.content, told.status, told.headers)

        app = Starlette(routes=[Route("/{rest:path}", answer, methods=METHODS)])
        server = Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"), up.set)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(server.serve(sockets=[listening]))
            await up.wait()
            try:
                yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            finally:
                server.should_exit = server.force_exit = True
                await task


async def _asked(request: Request) -> Asked:
    target = request.scope["raw_path"].decode()
    if request.scope["query_string"]:
        target += "?" + request.scope["query_string"].decode()
    headers = {name: value for name, value in request.headers.items() if name not in NOT_PASSED_ON}
    return Asked(request.method, target, headers, await request.body())


async def _streamed(http: httpx.AsyncClient, asked: Asked) -> AsyncIterator[bytes]:
    async with http.stream(asked.method, asked.target, headers=asked.headers, content=asked.content) as there:
        async for piece in there.aiter_bytes():
            yield piece
