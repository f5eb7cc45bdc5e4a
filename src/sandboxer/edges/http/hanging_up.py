"""A stream or terminal lives no longer than the credentials that opened it: it is ended within a second of
their being revoked, suspended or expired.

Asked twice a second while it is open; the answer comes from memory. Ordinary requests are over before that
could matter, and are not asked.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandboxer.accounts.authority import demand_active
from sandboxer.edges.http import problems
from sandboxer.edges.http.disconnect import single
from sandboxer.identity.keys import Caller, is_public_key
from sandboxer.kernel.errors import SandboxerError, Unauthenticated
from sandboxer.wiring import Platform

LOOK_EVERY = timedelta(milliseconds=500)
CLOSE_REFUSED = 1008
_STREAMS = re.compile(
    r"/v1/(sandboxes/[^/]+/|accounts/me/)(events|processes/[^/]+/output|files/watch|exec)|/v1/execute"
    r"|/v1/services/[^/]+/logs|/v1/sessions/[^/]+/cells(/[^/]+)?"
)
_EVENT_STREAM = b"text/event-stream"

Standing = Callable[[], Awaitable[None]]


def may_last(scope: Scope) -> bool:
    """Can this request stay open for long?"""
    if scope["type"] == "websocket":
        return True
    if _STREAMS.fullmatch(scope["path"]) is None:
        return False
    is_either = scope["path"].endswith(("/exec", "/execute")) or "/cells" in scope["path"]
    return not is_either or any(k == b"accept" and _EVENT_STREAM in v for k, v in scope["headers"])


def standing_of(platform: Platform, caller: Caller, token: str | None) -> Standing:
    """Raises what would refuse this caller now."""

    async def check() -> None:
        if token is not None:
            await platform.wallets.sessions.authenticate(token)
        elif is_public_key(caller.public_key):
            if await platform.keys.find(caller.public_key) is None:
                raise _ended()
        else:
            known = await platform.wallets.wallets.find(caller.public_key)
            if known is None or known.revoked_at is not None:
                raise _ended()
        if not caller.is_owner:
            demand_active(await platform.authorities.of(caller), now=platform.clock.now())

    return check


async def serve_while_standing(
    app: ASGIApp, scope: Scope, receive: Receive, send: Send, standing: Standing
) -> None:
    why: SandboxerError | None = None
    answer = _Answer(send)

    async def watch(life: asyncio.Timeout) -> None:
        nonlocal why
        while why is None:
            await asyncio.sleep(LOOK_EVERY.total_seconds())
            try:
                await standing()
            except SandboxerError as error:
                why = error
        life.reschedule(asyncio.get_running_loop().time())

    try:
        async with asyncio.timeout(None) as life:
            try:
                async with asyncio.TaskGroup() as group:
                    watching = group.create_task(watch(life))
                    answer.before_last = watching.cancel
                    await app(scope, receive, answer.send)
                    watching.cancel()
            except BaseExceptionGroup as found:
                raise single(found) from None
    except TimeoutError:
        if why is None:
            raise
        await answer.end(scope, receive, why)


class _Answer:
    """How far the answer got, to end it properly."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._has_begun = False
        self._is_over = False
        # The watch ends before the last piece is sent: whoever saw that finds nothing still under way.
        self.before_last: Callable[[], object] = lambda: None

    async def send(self, message: Message) -> None:
        kind = message["type"]
        self._has_begun = self._has_begun or kind in ("http.response.start", "websocket.accept")
        is_last = kind == "http.response.body" and not message.get("more_body", False)
        self._is_over = self._is_over or is_last or kind == "websocket.close"
        if self._is_over:
            self.before_last()
        await self._send(message)

    async def end(self, scope: Scope, receive: Receive, why: SandboxerError) -> None:
        if self._is_over:
            return
        if scope["type"] == "websocket":
            await self._send({"type": "websocket.close", "code": CLOSE_REFUSED, "reason": why.code})
        elif self._has_begun:
            told = json.dumps(problems.document(why, problems.request_id_of(scope)))
            body = f"event: error\ndata: {told}\n\n".encode()
            await self._send({"type": "http.response.body", "body": body, "more_body": False})
        else:
            await problems.response(why, problems.request_id_of(scope))(scope, receive, self._send)


def _ended() -> Unauthenticated:
    return Unauthenticated(
        why="the credentials that opened this ended",
        reason="unknown_key",
        hint="Open it again with credentials that stand.",
    )
