"""Routes of what happened to a sandbox or to the caller's account, as a stream with replay."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from starlette.responses import Response

from sandboxer.edges.http import answers
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.matcher import Binding
from sandboxer.edges.http.sse import EventStream, ServerEvent
from sandboxer.observe.events import Event, Events
from sandboxer.sandboxes.lifecycle import State
from sandboxer.wire.operations import accounts as accounts_operations
from sandboxer.wire.operations import sandboxes as events_operations
from sandboxer.wire.operations.accounts import FollowAccountEventsQuery
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import SandboxPath
from sandboxer.wire.operations.sandboxes import FollowEventsQuery

# The last event of a sandbox.
LAST_KIND = "sandbox.destroyed"
PAGE = 500


async def follow_events(asked: Asked[SandboxPath, FollowEventsQuery, None]) -> Response:
    platform = asked.platform
    sandbox = await platform.sandboxes.get(asked.path.sandbox_id, asked.caller)
    start = (
        asked.query.after
        if asked.query.last_event_id is None
        else max(asked.query.after, asked.query.last_event_id)
    )
    events = platform.events
    # Nothing more will happen to a sandbox that is gone, so its stream ends, even after its last event.
    is_open = asked.query.follow and sandbox.state is not State.DESTROYED
    source = (
        _followed(events, asked.path.sandbox_id, start)
        if is_open
        else _known(events, asked.path.sandbox_id, start)
    )
    return EventStream(source, begin_at_once=True)


async def follow_account(asked: Asked[NoParameters, FollowAccountEventsQuery, None]) -> Response:
    events, account = asked.platform.events, asked.caller.account
    start = (
        asked.query.after
        if asked.query.last_event_id is None
        else max(asked.query.after, asked.query.last_event_id)
    )
    source = _followed(events, account, start) if asked.query.follow else _known(events, account, start)
    return EventStream(source, begin_at_once=True)


async def _followed(events: Events, subject: str, after: int) -> AsyncIterator[ServerEvent]:
    async with aclosing(events.follow(subject, after)) as happening:  # type: ignore[type-var]
        async for event in happening:
            yield _shown(event)
            if event.kind == LAST_KIND:
                return


async def _known(events: Events, subject: str, after: int) -> AsyncIterator[ServerEvent]:
    while page := await events.page(subject, after, PAGE):
        for event in page:
            yield _shown(event)
        after = page[-1].id


def _shown(event: Event) -> ServerEvent:
    return ServerEvent(event.kind, answers.event(event), str(event.id))


BINDINGS: tuple[Binding, ...] = (
    bind(events_operations.FOLLOW_EVENTS, follow_events),
    bind(accounts_operations.FOLLOW_ACCOUNT_EVENTS, follow_account),
)
