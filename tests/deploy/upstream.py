"""A stand-in for the platform behind the proxy: it tells exactly what reached it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

first_chunk_seen = asyncio.Event()
released = asyncio.Event()


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await _echo(receive, send)
    elif scope["type"] == "http":
        routes = {"/drip": _drip, "/upload": _upload}
        await routes.get(scope["path"], _mirror)(scope, receive, send)


async def _mirror(scope: Scope, receive: Receive, send: Send) -> None:
    """The request as it came off the wire."""
    digest, size, more = hashlib.sha256(), 0, True
    while more:
        message = await receive()
        digest.update(message.get("body", b""))
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    target = scope["raw_path"].decode() + (
        "?" + scope["query_string"].decode() if scope["query_string"] else ""
    )
    facts = {
        "method": scope["method"],
        "target": target,
        "headers": {k.decode(): v.decode() for k, v in scope["headers"]},
        "sha256": digest.hexdigest(),
        "size": size,
    }
    await _answer(send, json.dumps(facts).encode())


async def _drip(scope: Scope, receive: Receive, send: Send) -> None:
    """An event stream whose second event waits until the client has shown that it got the first."""
    released.clear()
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"data: one\n\n", "more_body": True})
    await asyncio.wait_for(released.wait(), 10)
    await send({"type": "http.response.body", "body": b"data: two\n\n"})


async def _upload(scope: Scope, receive: Receive, send: Send) -> None:
    """POST streams a body in; GET waits until its first chunk is here."""
    if scope["method"] == "GET":
        await asyncio.wait_for(first_chunk_seen.wait(), 10)
        await _answer(send, b"seen")
        return
    if scope["method"] == "DELETE":
        released.set()
        await _answer(send, b"released")
        return
    first_chunk_seen.clear()
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
        if size:
            first_chunk_seen.set()
    await _answer(send, str(size).encode())


async def _echo(receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message.get("text"), "bytes": message.get("bytes")})


async def _answer(send: Send, body: bytes) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-upstream", b"yes")]})
    await send({"type": "http.response.body", "body": body})
