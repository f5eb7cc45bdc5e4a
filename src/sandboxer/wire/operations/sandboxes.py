"""The operations on sandboxes and on what happens to them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.operations.declaration import (
    Access,
    Answered,
    AnyOperation,
    Events,
    Idempotency,
    InHeader,
    Json,
    Operation,
    OperatorAudit,
    Parameters,
    Scope,
    needs,
)
from sandboxer.wire.operations.paths import SandboxPath
from sandboxer.wire.sandboxes import (
    Boost,
    ChangeTtl,
    CreateSandbox,
    Expired,
    Reachability,
    Sandbox,
    SandboxPage,
    StateName,
    Usage,
)
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX, Cursor, LabelFilter

GET_SANDBOX = Operation(
    id="getSandbox",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}",
    noun="sandboxes",
    summary="Look at a sandbox",
    parameters=SandboxPath,
    answer=Answered(model=Sandbox),
    needs=needs(Scope.SANDBOXES_READ),
    failures=(404,),
)
DESTROY_SANDBOX = Operation(
    id="destroySandbox",
    method="DELETE",
    path="/v1/sandboxes/{sandbox_id}",
    noun="sandboxes",
    summary="Remove a sandbox; removed already is success",
    parameters=SandboxPath,
    answer=Answered(model=Sandbox),
    needs=needs(Scope.SANDBOXES_DESTROY),
    is_repeatable=True,
    failures=(404, 409, 428, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.destroy"),
)
RECREATE_SANDBOX = Operation(
    id="recreateSandbox",
    method="POST",
    path="/v1/sandboxes/{sandbox_id}/recreate",
    noun="sandboxes",
    summary="New disk from the image, same id",
    parameters=SandboxPath,
    answer=Answered(model=Sandbox),
    needs=needs(Scope.SANDBOXES_MANAGE),
    patience_s=180.0,
    failures=(402, 404, 409, 428, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.recreate"),
)
LOCK_SANDBOX = Operation(
    id="lockSandbox",
    method="POST",
    path="/v1/sandboxes/{sandbox_id}/lock",
    noun="sandboxes",
    summary="From now on destroying, recreating and unlocking it need a second proof",
    parameters=SandboxPath,
    answer=Answered(model=Sandbox),
    needs=needs(Scope.SANDBOXES_MANAGE),
    patience_s=180.0,
    failures=(404, 409),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.lock"),
)
UNLOCK_SANDBOX = Operation(
    id="unlockSandbox",
    method="POST",
    path="/v1/sandboxes/{sandbox_id}/unlock",
    noun="sandboxes",
    summary="Let it be destroyed by a request alone again",
    parameters=SandboxPath,
    answer=Answered(model=Sandbox),
    needs=needs(Scope.SANDBOXES_MANAGE),
    patience_s=180.0,
    failures=(404, 409, 428),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.unlock"),
)
STOP_SANDBOX = Operation(
    id="stopSandbox",
    method="POST",
    path="/v1/sandboxes/{sandbox_id}/stop",
    noun="sandboxes",
    summary="End its processes, keep its disk",
    parameters=SandboxPath,
    answer=Answered(model=Sandbox),
    needs=needs(Scope.SANDBOXES_MANAGE),
    patience_s=180.0,
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.stop"),
)
RESUME_SANDBOX = Operation(
    id="resumeSandbox",
    method="POST",
    path="/v1/sandboxes/{sandbox_id}/resume",
    noun="sandboxes",
    summary="Start a stopped one again on its disk",
    parameters=SandboxPath,
    answer=Answered(model=Sandbox),
    needs=needs(Scope.SANDBOXES_MANAGE),
    patience_s=180.0,
    failures=(402, 404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.resume"),
)
FREEZE_SANDBOX = Operation(
    id="freezeSandbox",
    method="POST",
    path="/v1/sandboxes/{sandbox_id}/freeze",
    noun="sandboxes",
    summary="Pause every process in memory",
    parameters=SandboxPath,
    answer=Answered(model=Sandbox),
    needs=needs(Scope.SANDBOXES_MANAGE),
    patience_s=180.0,
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.freeze"),
)
THAW_SANDBOX = Operation(
    id="thawSandbox",
    method="POST",
    path="/v1/sandboxes/{sandbox_id}/thaw",
    noun="sandboxes",
    summary="Let a frozen one go on",
    parameters=SandboxPath,
    answer=Answered(model=Sandbox),
    needs=needs(Scope.SANDBOXES_MANAGE),
    patience_s=180.0,
    failures=(402, 404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.thaw"),
)
EXTEND_TTL = Operation(
    id="extendTtl",
    method="PATCH",
    path="/v1/sandboxes/{sandbox_id}/ttl",
    noun="sandboxes",
    summary="Give it more time",
    parameters=SandboxPath,
    body=Json(ChangeTtl),
    answer=Answered(model=Sandbox),
    access=Access.PAYABLE,
    needs=needs(Scope.SANDBOXES_MANAGE),
    idempotency=Idempotency.BOUND,
    failures=(402, 404, 409),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.ttl"),
)
GET_REACHABILITY = Operation(
    id="getReachability",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/reachability",
    noun="sandboxes",
    summary="Does it answer, and where",
    parameters=SandboxPath,
    answer=Answered(model=Reachability),
    needs=needs(Scope.SANDBOXES_READ),
    failures=(404,),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.reachability"),
)
GET_USAGE = Operation(
    id="getUsage",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/usage",
    noun="sandboxes",
    summary="What it uses now",
    parameters=SandboxPath,
    answer=Answered(model=Usage),
    needs=needs(Scope.SANDBOXES_READ),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.usage"),
)
BOOST_SANDBOX = Operation(
    id="boostSandbox",
    method="POST",
    path="/v1/sandboxes/{sandbox_id}/boost",
    noun="sandboxes",
    summary="More CPUs, and 2 GB of memory with each, at once and without a restart",
    parameters=SandboxPath,
    body=Json(Boost),
    answer=Answered(model=Sandbox),
    needs=needs(Scope.SANDBOXES_MANAGE),
    failures=(402, 404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.boost"),
)
UNBOOST_SANDBOX = Operation(
    id="unboostSandbox",
    method="POST",
    path="/v1/sandboxes/{sandbox_id}/unboost",
    noun="sandboxes",
    summary="Back to what it had; not boosted is success",
    parameters=SandboxPath,
    answer=Answered(model=Sandbox),
    needs=needs(Scope.SANDBOXES_MANAGE),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.unboost"),
)
MAX_EVENT_ID = 2**63 - 1


class CreateSandboxQuery(Parameters):
    wait: Annotated[bool, Field(description="Answer only when it is ready.")] = True


class ListSandboxesQuery(Parameters):
    state: Annotated[StateName | None, Field(description="Default: all but destroyed.")] = None
    label: Annotated[list[LabelFilter], Field(max_length=16, description="`key=value`; all must match.")] = (
        Field(default_factory=list)
    )
    cursor: Cursor | None = None
    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT


class ExpireSandboxesQuery(Parameters):
    apply: Annotated[bool, Field(description="False: only say what would end.")] = False


CREATE_SANDBOX = Operation(
    id="createSandbox",
    method="POST",
    path="/v1/sandboxes",
    noun="sandboxes",
    summary="Make a sandbox",
    query=CreateSandboxQuery,
    body=Json(CreateSandbox),
    answer=Answered(model=Sandbox, status=201),
    access=Access.PAYABLE,
    needs=needs(Scope.SANDBOXES_CREATE),
    idempotency=Idempotency.BOUND,
    patience_s=180.0,
    failures=(402, 404, 409),
)
LIST_SANDBOXES = Operation(
    id="listSandboxes",
    method="GET",
    path="/v1/sandboxes",
    noun="sandboxes",
    summary="List sandboxes, newest first",
    query=ListSandboxesQuery,
    answer=Answered(model=SandboxPage),
    needs=needs(Scope.SANDBOXES_READ),
)
EXPIRE_SANDBOXES = Operation(
    id="expireSandboxes",
    method="POST",
    path="/v1/sandboxes/expire",
    noun="sandboxes",
    summary="End what is past its time (owner)",
    query=ExpireSandboxesQuery,
    answer=Answered(model=Expired),
    needs=needs(Scope.SANDBOXES_DESTROY),
)


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
    answer=Events(words="Events named by their kind; `data` is an Event, `id` its id."),
    needs=needs(Scope.SANDBOXES_READ),
    failures=(404,),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.events"),
)
OPERATIONS: tuple[AnyOperation, ...] = (
    CREATE_SANDBOX,
    LIST_SANDBOXES,
    EXPIRE_SANDBOXES,
    GET_SANDBOX,
    DESTROY_SANDBOX,
    RECREATE_SANDBOX,
    LOCK_SANDBOX,
    UNLOCK_SANDBOX,
    STOP_SANDBOX,
    RESUME_SANDBOX,
    FREEZE_SANDBOX,
    THAW_SANDBOX,
    EXTEND_TTL,
    GET_REACHABILITY,
    GET_USAGE,
    BOOST_SANDBOX,
    UNBOOST_SANDBOX,
    FOLLOW_EVENTS,
)
