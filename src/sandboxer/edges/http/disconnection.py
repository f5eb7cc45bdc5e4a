"""Long-lasting requests end with the credentials that opened them: a stream, a terminal, a command, an upload
or a download is ended within a second after they are revoked, suspended, replaced or expired.

They are checked twice a second, from memory. An answer in pieces is watched from its first piece on; ordinary
requests are over before that could matter, and are not watched.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandboxer.accounts.authority import demand_active, is_local
from sandboxer.edges.http import problems
from sandboxer.edges.http.matcher import operation_of
from sandboxer.identity.keys import Caller, is_public_key
from sandboxer.kernel.errors import SandboxerError, Unauthenticated
from sandboxer.wire.operations.declaration import AnsweredOrEvents, Events, Upgrade
from sandboxer.wiring import Platform

log = logging.getLogger(__name__)
LOOK_EVERY = timedelta(milliseconds=500)
CLOSE_REFUSED = 1008
_EVENT_STREAM = b"text/event-stream"
# Time for the last message to a client that may not read.
LAST_WORDS_S = 2.0

Standing = Callable[[], Awaitable[None]]


def may_last(scope: Scope) -> bool:
    """Tells whether this request can stay open for long before its answer begins."""
    if (operation := operation_of(scope)) is None:
        return False
    # Some reads wait for something to happen; none of them leaves anything half done.
    return operation.method == "GET" or isinstance(operation.answer, AnsweredOrEvents | Events | Upgrade)


def standing_of(
    platform: Platform, caller: Caller, token: str | None, *, since: datetime | None = None
) -> Standing:
    """Returns a check that raises what would refuse this caller now. It also refuses if the key's secret was
    replaced: the secret that signed, or, with `since`, any secret that was in use then.
    """

    async def check() -> None:
        if token is not None:
            await platform.wallets.sessions.authenticate(token)
        elif is_public_key(caller.public_key):
            key = await platform.keys.find(caller.public_key)
            if key is None or _is_replaced(key.caller.rotated_at, caller, since):
                raise _ended()
            if caller.came_by_bearer and key.caller.bearer_hash != caller.bearer_hash:
                raise _ended()
        elif not is_local(caller):
            known = await platform.wallets.wallets.find(caller.public_key)
            if known is None or known.revoked_at is not None:
                raise _ended()
        if not caller.is_owner:
            demand_active(await platform.authorities.of(caller), now=platform.clock.now())

    return check


def _is_replaced(rotated_at: datetime | None, caller: Caller, since: datetime | None) -> bool:
    if since is None:
        return rotated_at != caller.rotated_at
    return rotated_at is not None and rotated_at >= since


async def serve_while_standing(
    app: ASGIApp, scope: Scope, receive: Receive, send: Send, standing: Standing, *, from_start: bool
) -> None:
    """Serves a request while its credentials are valid. `from_start` means that it may last before its answer
    begins; otherwise it is watched once the answer comes in pieces.
    """
    task = asyncio.current_task()
    assert task is not None
    watch = _Watch(standing, task)
    answer = _Answer(send, watch)
    if from_start:
        watch.begin()
    try:
        await app(scope, receive, answer.send)
    except BaseException:
        if watch.why is None:
            raise
        task.uncancel()
    finally:
        await watch.end()
    if watch.why is not None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await answer.end(scope, receive, watch.why)


class _Watch:
    """Cancels the task that serves a request when its credentials end. A short request costs one timer."""

    def __init__(self, standing: Standing, serving: asyncio.Task[Any]) -> None:
        self._standing = standing
        self._serving = serving
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self.why: SandboxerError | None = None

    def begin(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LOOK_EVERY.total_seconds(), self._start)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._looking is not None and self.why is None:
            self._looking.cancel()

    async def end(self) -> None:
        self.stop()
        if self._looking is not None:
            await asyncio.wait([self._looking])

    def _start(self) -> None:
        self._looking = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        while True:
            try:
                await self._standing()
            except SandboxerError as error:
                self.why = error
                self._serving.cancel()
                return
            await asyncio.sleep(LOOK_EVERY.total_seconds())


class _Answer:
    """Knows how far the answer got, to end it properly."""

    def __init__(self, send: Send, watch: _Watch) -> None:
        self._send = send
        self._watch = watch
        self._has_begun = False
        self._is_over = False
        self._tells_events = False

    async def send(self, message: Message) -> None:
        if (kind := message["type"]) == "http.response.start":
            self._has_begun = True
            headers = message.get("headers", ())
            self._tells_events = any(k == b"content-type" and _EVENT_STREAM in v for k, v in headers)
        elif kind == "http.response.body":
            if message.get("more_body", False):
                self._watch.begin()
            else:
                self._is_over = True
        elif kind == "websocket.accept":
            self._has_begun = True
        elif kind == "websocket.close":
            self._is_over = True
        if self._is_over:
            # Before the last piece is sent, so that a client that received it finds nothing still running.
            self._watch.stop()
        await self._send(message)

    async def end(self, scope: Scope, receive: Receive, why: SandboxerError) -> None:
        if self._is_over:
            return
        if scope["type"] == "websocket":
            await self._send({"type": "websocket.close", "code": CLOSE_REFUSED, "reason": why.code})
        elif not self._has_begun:
            answer = problems.response(why, problems.request_id_of(scope))
            # The rest of an upload is not needed any more.
            answer.headers["connection"] = "close"
            await answer(scope, receive, self._send)
        elif self._tells_events:
            document = json.dumps(problems.document(why, problems.request_id_of(scope)))
            body = f"event: error\ndata: {document}\n\n".encode()
            await self._send({"type": "http.response.body", "body": body, "more_body": False})
        else:
            # The answer stays unfinished, so that the client notices; the connection ends with it.
            log.info("an answer was cut short (%s): %s", problems.request_id_of(scope), why)


def _ended() -> Unauthenticated:
    return Unauthenticated(
        why="the credentials that opened this ended",
        reason="unknown_key",
        hint="Open it again with credentials that stand.",
    )


class ClientGone(Exception):
    """The client closed its connection; there is nobody to answer."""


@asynccontextmanager
async def until_client_goes(receive: Receive) -> AsyncIterator[None]:
    """Runs the body. If the client goes away meanwhile, cancels it and raises ClientGone.

    Use it only after the request's body was read to its end.
    """
    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(_watch(receive))
            yield
            watching.cancel()
    except BaseExceptionGroup as found:
        raise single(found) from None


async def _watch(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientGone


def single(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Unwraps the one error of a body: the group around it would hide its type."""
    first = group.exceptions[0]
    return single(first) if isinstance(first, BaseExceptionGroup) else first
