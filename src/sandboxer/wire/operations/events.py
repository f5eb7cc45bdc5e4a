"""The operations on events."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.operations.declaration import AnyOperation, Empty, Events, InHeader, Operation, Parameters
from sandboxer.wire.operations.paths import SandboxPath
from sandboxer.wire.operations.terms import Access, RateClass, Scope, Visit, needs

MAX_EVENT_ID = 2**63 - 1


class FollowEventsQuery(Parameters):
    after: Annotated[int, Field(ge=0, le=MAX_EVENT_ID, description="Only events after this id.")] = 0
    follow: Annotated[bool, Field(description="False: end after what is already known.")] = True
    last_event_id: Annotated[
        int | None,
        Field(ge=0, le=MAX_EVENT_ID, description="As `after`, sent by browsers that reconnect."),
        InHeader("last-event-id"),
    ] = None


FOLLOW_EVENTS = Operation(
    id="followEvents",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/events",
    noun="events",
    summary="What happened, from an id on, and what happens",
    parameters=SandboxPath,
    query=FollowEventsQuery,
    body=Empty(),
    answer=Events(words="Events named by their kind; `data` is an Event, `id` its id."),
    access=Access.SIGNED,
    needs=needs(Scope.SANDBOXES_READ),
    rate=RateClass.API,
    failures=(404,),
    visit=Visit(thing="sandbox", action="sandbox.events"),
)

OPERATIONS: tuple[AnyOperation, ...] = (FOLLOW_EVENTS,)
