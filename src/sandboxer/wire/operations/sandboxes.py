"""The operations on sandboxes and on what happens to them."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from sandboxer.wire.operations.declaration import (
    Access,
    Events,
    Group,
    Idempotency,
    InHeader,
    Offer,
    Parameters,
    Scope,
    Tool,
    created,
    needs,
)
from sandboxer.wire.sandboxes import (
    Boost,
    ChangeSandbox,
    ChangeTtl,
    CreateSandbox,
    DestroyedSandbox,
    Expired,
    Reachability,
    Sandbox,
    SandboxPage,
    SandboxTree,
    StateName,
    Usage,
)
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, Cursor, LabelFilter, PageLimit, SandboxRef


class SandboxPath(Parameters):
    sandbox_id: SandboxRef


MAX_EVENT_ID = 2**63 - 1


class CreateSandboxQuery(Parameters):
    wait: Annotated[bool, Field(description="Answer only when it is ready.")] = True


class ListSandboxesQuery(Parameters):
    state: Annotated[StateName | None, Field(description="Default: all but destroyed.")] = None
    label: Annotated[list[LabelFilter], Field(max_length=16, description="`key=value`; all must match.")] = (
        Field(default_factory=list)
    )
    cursor: Cursor | None = None
    limit: PageLimit = PAGE_LIMIT_DEFAULT


class ExpireSandboxesQuery(Parameters):
    apply: Annotated[bool, Field(description="False: only say what would end.")] = False


class StopSandboxQuery(Parameters):
    memory: Annotated[
        bool,
        Field(
            description="Keep what runs too: it goes on when it is resumed. Refused where its backend keeps"
            " files alone. Without it, what was kept of one that is stopped ends."
        ),
    ] = False


class FollowEventsQuery(Parameters):
    after: Annotated[int, Field(ge=0, le=MAX_EVENT_ID, description="Only events after this id.")] = 0
    follow: Annotated[bool, Field(description="False: end after what is already known.")] = True
    last_event_id: Annotated[
        int | None,
        Field(ge=0, le=MAX_EVENT_ID, description="As `after`, sent by browsers that reconnect."),
        InHeader("last-event-id"),
    ] = None


EVENTS = Events(words="Events named by their kind; `data` is an Event, `id` its id.")
_SANDBOXES = Group(noun="sandboxes", needs=needs(Scope.SANDBOXES_CREATE), reads=needs(Scope.SANDBOXES_READ))
SANDBOX = replace(_SANDBOXES, needs=needs(Scope.SANDBOXES_MANAGE)).below(
    "/v1/sandboxes/{sandbox_id}", SandboxPath, audited="sandbox"
)
_LIFECYCLE = replace(SANDBOX, patience_s=180.0, failures=(404, 409))
CREATE_SANDBOX = replace(_SANDBOXES, access=Access.PAYABLE).operation(
    "createSandbox",
    "POST /v1/sandboxes",
    "Create a sandbox",
    created(Sandbox),
    query=CreateSandboxQuery,
    body=CreateSandbox,
    idempotency=Idempotency.BOUND,
    patience_s=180.0,
    failures=(402, 404, 409),
    tools=(Tool(offer=Offer.CORE, leaves_out=("consumer", "inputs", "setup_metadata")),),
)
LIST_SANDBOXES = _SANDBOXES.operation(
    "listSandboxes",
    "GET /v1/sandboxes",
    "List sandboxes, newest first",
    SandboxPage,
    query=ListSandboxesQuery,
    tools=(Tool(offer=Offer.CORE),),
)
GET_SANDBOX_TREE = _SANDBOXES.operation(
    "getSandboxTree",
    "GET /v1/tree",
    "Show the sandboxes of this account, those that they made from inside, and what was spent",
    SandboxTree,
    tools=(Tool(),),
)
EXPIRE_SANDBOXES = _SANDBOXES.operation(
    "expireSandboxes",
    "POST /v1/sandboxes/expire",
    "End sandboxes that are past their time (owner)",
    Expired,
    query=ExpireSandboxesQuery,
    needs=needs(Scope.SANDBOXES_DESTROY),
    is_lossy=True,
)
GET_SANDBOX = SANDBOX.operation(
    "getSandbox",
    "GET",
    "Show a sandbox",
    Sandbox,
    tools=(Tool(),),
)
CHANGE_SANDBOX = SANDBOX.operation(
    "changeSandbox",
    "PATCH",
    "Change the name and the labels of a sandbox",
    Sandbox,
    body=ChangeSandbox,
    is_repeatable=True,
    failures=(409,),
)
DESTROY_SANDBOX = SANDBOX.operation(
    "destroySandbox",
    "DELETE",
    "Delete a sandbox; deleted already is success",
    DestroyedSandbox,
    needs=needs(Scope.SANDBOXES_DESTROY),
    is_repeatable=True,
    failures=(409, 428, 502),
    tools=(Tool(offer=Offer.CORE),),
)
RECREATE_SANDBOX = _LIFECYCLE.operation(
    "recreateSandbox",
    "POST /recreate",
    "Give a sandbox a new disk from its image; the id stays",
    Sandbox,
    failures=(402, 428, 502),
    is_lossy=True,
)
LOCK_SANDBOX = _LIFECYCLE.operation(
    "lockSandbox",
    "POST /lock",
    "Lock a sandbox: deleting, recreating and unlocking it then need a second proof",
    Sandbox,
)
UNLOCK_SANDBOX = _LIFECYCLE.operation(
    "unlockSandbox", "POST /unlock", "Unlock a sandbox", Sandbox, failures=(428,)
)
STOP_SANDBOX = _LIFECYCLE.operation(
    "stopSandbox",
    "POST /stop",
    "Stop a sandbox: its processes end or are kept with its memory, its disk is kept",
    Sandbox,
    query=StopSandboxQuery,
    failures=(502,),
    tools=(Tool(),),
)
RESUME_SANDBOX = _LIFECYCLE.operation(
    "resumeSandbox",
    "POST /resume",
    "Start a stopped sandbox again, on its own disk; what was kept of its memory goes on",
    Sandbox,
    failures=(402, 502),
    tools=(Tool(),),
)
FREEZE_SANDBOX = _LIFECYCLE.operation(
    "freezeSandbox",
    "POST /freeze",
    "Freeze a sandbox: every process is paused in memory",
    Sandbox,
    failures=(502,),
    tools=(Tool(),),
)
THAW_SANDBOX = _LIFECYCLE.operation(
    "thawSandbox",
    "POST /thaw",
    "Let a frozen sandbox go on",
    Sandbox,
    failures=(402, 502),
    tools=(Tool(),),
)
EXTEND_TTL = replace(SANDBOX, access=Access.PAYABLE).operation(
    "extendTtl",
    "PATCH /ttl",
    "Give a sandbox more time",
    Sandbox,
    body=ChangeTtl,
    idempotency=Idempotency.BOUND,
    failures=(402, 409),
    tools=(Tool(),),
)
GET_REACHABILITY = SANDBOX.operation(
    "getReachability", "GET /reachability", "Show whether a sandbox answers, and by which ways", Reachability
)
GET_USAGE = SANDBOX.operation(
    "getUsage",
    "GET /usage",
    "Show what a sandbox uses now",
    Usage,
    failures=(409, 502),
    tools=(Tool(),),
)
BOOST_SANDBOX = SANDBOX.operation(
    "boostSandbox",
    "POST /boost",
    "Give a sandbox more CPUs, and 2 GB of memory with each, at once and without a restart",
    Sandbox,
    body=Boost,
    failures=(402, 409, 502),
)
UNBOOST_SANDBOX = SANDBOX.operation(
    "unboostSandbox",
    "POST /unboost",
    "Take back what a boost gave a sandbox; not boosted is success",
    Sandbox,
    failures=(409, 502),
)
FOLLOW_EVENTS = replace(SANDBOX, noun="events").operation(
    "followEvents",
    "GET /events",
    "Follow what happens to a sandbox: what is known from an id on, then what comes",
    EVENTS,
    query=FollowEventsQuery,
)
