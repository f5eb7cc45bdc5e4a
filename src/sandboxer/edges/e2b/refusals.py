"""Says our refusals in E2B's words. Its clients know three forms, by who would refuse:

- the API: `{code, message}`, where the code is the HTTP status;
- the proxy in front of a sandbox: the same; a sandbox that does not run is a 502;
- the daemon inside: an error of Connect, whose code is a word, or for files the API's form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.types import Message, Send

from sandboxer.edges.e2b.connect import (
    END,
    NOT_RUNNING,
    STREAM,
    envelope,
    error_of,
    is_of_sandbox,
    message_of,
    status_of,
)
from sandboxer.edges.http.problems import PROBLEM_JSON

# Said by what stands in front of the daemon, and so never as an error of Connect.
_PLAIN = frozenset({401, 402, 403, 429, 502})
# E2B's own words, and nothing beside them.
_OVER = "signature is already expired"


class Refusals:
    """Passes an answer on; a problem of ours is held back until it is whole, and said in E2B's words."""

    def __init__(self, send: Send, *, is_envd: bool, content_type: str, is_over: bool = False) -> None:
        """`is_over`: the address was signed, and its time is over."""
        self._send = send
        self._is_envd = is_envd
        self._asked = content_type
        self._is_over = is_over
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
        status, kind, body = self._translated(json.loads(self._body))
        kept = [
            (name, value)
            for name, value in self._head["headers"]
            if name not in (b"content-type", b"content-length", b"www-authenticate")
        ]
        headers = [*kept, (b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        await self._send({**self._head, "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    def _translated(self, problem: Mapping[str, Any]) -> tuple[int, str, bytes]:
        status, message = status_of(problem), message_of(problem)
        if self._is_over and status == 401:
            return 401, "application/json", json.dumps({"code": 401, "message": _OVER}).encode()
        if self._is_envd and is_of_sandbox(problem):
            status, message = 502, f"{NOT_RUNNING}: {message}"
        kind = self._asked.partition(";")[0]
        if not self._is_envd or kind not in ("application/json", STREAM) or status in _PLAIN:
            shown = {"code": status, "message": message, "error_code": problem["code"]}
            return status, "application/json", json.dumps(shown).encode()
        error = error_of(problem)
        if kind == STREAM:
            return 200, STREAM, envelope(json.dumps({"error": error}).encode(), END)
        return status, "application/json", json.dumps(error).encode()


def _is_problem(message: Message) -> bool:
    return any(
        name == b"content-type" and value.startswith(PROBLEM_JSON.encode())
        for name, value in message["headers"]
    )
