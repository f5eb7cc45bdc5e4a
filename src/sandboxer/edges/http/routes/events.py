"""What happened to a sandbox or to one's own account, as a stream with replay."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.edges.http import answers
from sandboxer.edges.http.failures import failures, stream
from sandboxer.edges.http.sse import EventStream, ServerEvent
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.observe.events import Event, Events
from sandboxer.sandboxes.lifecycle import State
from sandboxer.wire.words import SandboxId

router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}", tags=["events"])
account_router = APIRouter(prefix="/v1/accounts/me", tags=["accounts"])
MAX_EVENT_ID = 2**63 - 1
# The last thing that is ever told of a sandbox.
LAST_KIND = "sandbox.destroyed"
PAGE = 500


@router.get(
    "/events",
    operation_id="followEvents",
    status_code=200,
    response_class=EventStream,
    responses={**failures(404), 200: stream("Events named by their kind; `data` is an Event, `id` its id.")},
    summary="What happened, from an id on, and what happens",
)
async def follow_events(
    request: Request,
    sandbox_id: SandboxId,
    after: Annotated[int, Query(ge=0, le=MAX_EVENT_ID, description="Only events after this id.")] = 0,
    follow: Annotated[bool, Query(description="False: end after what is already known.")] = True,
    last_event_id: Annotated[
        int | None, Header(ge=0, le=MAX_EVENT_ID, description="As `after`, sent by browsers that reconnect.")
    ] = None,
) -> Response:
    platform = platform_of(request)
    sandbox = await platform.sandboxes.get(sandbox_id, caller(request))
    start = after if last_event_id is None else max(after, last_event_id)
    told = platform.events
    # Nothing more will happen to one that is gone: its stream ends, even after its last event.
    is_open = follow and sandbox.state is not State.DESTROYED
    source = _followed(told, sandbox_id, start) if is_open else _known(told, sandbox_id, start)
    return EventStream(source, begin_at_once=True)


@account_router.get(
    "/events",
    operation_id="followAccountEvents",
    status_code=200,
    response_class=EventStream,
    responses={**failures(), 200: stream("Events named by their kind; `data` is an Event, `id` its id.")},
    summary="What happened to this account: low, dry, reaped, funded, and changes of what it may do",
)
async def follow_account(
    request: Request,
    after: Annotated[int, Query(ge=0, le=MAX_EVENT_ID, description="Only events after this id.")] = 0,
    follow: Annotated[bool, Query(description="False: end after what is already known.")] = True,
    last_event_id: Annotated[
        int | None, Header(ge=0, le=MAX_EVENT_ID, description="As `after`, sent by browsers that reconnect.")
    ] = None,
) -> Response:
    told, account = platform_of(request).events, caller(request).account
    start = after if last_event_id is None else max(after, last_event_id)
    source = _followed(told, account, start) if follow else _known(told, account, start)
    return EventStream(source, begin_at_once=True)


async def _followed(told: Events, subject: str, after: int) -> AsyncIterator[ServerEvent]:
    async with aclosing(told.follow(subject, after)) as happening:  # type: ignore[type-var]
        async for event in happening:
            yield _shown(event)
            if event.kind == LAST_KIND:
                return


async def _known(told: Events, subject: str, after: int) -> AsyncIterator[ServerEvent]:
    while page := await told.page(subject, after, PAGE):
        for event in page:
            yield _shown(event)
        after = page[-1].id


def _shown(event: Event) -> ServerEvent:
    return ServerEvent(event.kind, answers.event(event), str(event.id))
