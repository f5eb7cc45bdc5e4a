"""The door of unsandbox's clients: it reads their addresses as ours, before anything else looks at a request,
and says refusals in their words.

Their API is at `/unsandbox`, or at the root of the two names that are written into every client. What they
sign is the path as they know it, so that stays the target of the request. Their two ways of signing are our
version 1, and the paper's (`identity/authenticate.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandboxer.access.ports.ports import without_port
from sandboxer.edges.http.problems import PROBLEM_JSON
from sandboxer.wire.unsandbox import API_HOST, PORTAL_HOST, ROOT

_HOSTS = frozenset({API_HOST, PORTAL_HOST})
_NAME = PORTAL_HOST.encode()


class UnsandboxDoor:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (target := _meant(scope)) is not None:
            path, raw_path = target
            # Ours answer in other forms when asked for them; theirs know one.
            headers = [(name, value) for name, value in scope["headers"] if name != b"accept"]
            scope.update(path=path, raw_path=raw_path, headers=headers)
            send = Refusals(send).send
        await self._app(scope, receive, send)


def _meant(scope: Scope) -> tuple[str, bytes] | None:
    """Returns the path of our table, and the one that the client signed; None if it is not for this door."""
    path: str = scope["path"]
    raw: bytes = scope.get("raw_path") or path.encode()
    if path.startswith(ROOT + "/"):
        return path, raw.removeprefix(ROOT.encode())
    host = next((value for name, value in scope["headers"] if name == b"host"), b"").lower()
    if _NAME in host and without_port(host.decode("latin-1")) in _HOSTS:
        return ROOT + path, raw
    return None


class Refusals:
    """Passes an answer on; a problem of ours is held back until it is whole, and said in their words."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._head: Message | None = None
        self._body = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_problem(message):
            self._head = message
            return
        if self._head is None:
            await self._send(message)
            return
        # A problem is small, and comes in one piece.
        self._body += message.get("body", b"")
        if message.get("more_body", False):
            return
        body = json.dumps(said_as_theirs(json.loads(self._body))).encode()
        kept = [
            (name, value)
            for name, value in self._head["headers"]
            if name not in (b"content-type", b"content-length")
        ]
        headers = [
            *kept,
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        await self._send({**self._head, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


def said_as_theirs(problem: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a problem of ours as clients of unsandbox read one."""
    words = f"{str(problem['detail']).rstrip('.')}. {problem['next_step']}"
    said: dict[str, Any] = {"error": words, "message": words, "error_code": problem["code"]}
    if problem["status"] in (401, 403):
        # Of a key that was asked about.
        said["valid"] = False
    if "challenge" in problem:
        said["challenge_id"] = problem["challenge"]
    return {**said, **{name: problem[name] for name in _MORE if name in problem}}


# What else of a problem programs may act on.
_MORE = ("reason", "server_time", "skew_s", "retry_after_s", "factor", "expires_at")


def _is_problem(message: Message) -> bool:
    return any(
        name == b"content-type" and value.startswith(PROBLEM_JSON.encode())
        for name, value in message["headers"]
    )
