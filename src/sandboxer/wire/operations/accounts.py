"""The operations on accounts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sandboxer.wire.accounts import (
    AccountId,
    Me,
    Moved,
    SendSats,
    TransferPage,
    UsageReport,
    UsageSegmentPage,
)
from sandboxer.wire.operations.declaration import (
    Answered,
    AnyOperation,
    Events,
    InHeader,
    Json,
    Operation,
    Parameters,
    Scope,
    needs,
)
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX, When

MAX_EVENT_ID = 2**63 - 1
MAX_SEQ = 2**53


class FollowAccountEventsQuery(Parameters):
    after: Annotated[int, Field(ge=0, le=MAX_EVENT_ID, description="Only events after this id.")] = 0
    follow: Annotated[bool, Field(description="False: end after what is already known.")] = True
    last_event_id: Annotated[
        int | None,
        Field(ge=0, le=MAX_EVENT_ID, description="As `after`, sent by browsers that reconnect."),
        InHeader("last-event-id"),
    ] = None


class ListTransfersQuery(Parameters):
    of: Annotated[AccountId | None, Field(description="Another account (owner).")] = None
    cursor: Annotated[str | None, Field(pattern="^[0-9]{1,18}$", max_length=18)] = None
    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT
    format: Literal["json", "csv"] = "json"


class ShowUsageQuery(Parameters):
    of: Annotated[AccountId | None, Field(description="Another account (owner).")] = None
    since: Annotated[When | None, Field(description="Default: 30 days ago.")] = None
    until: Annotated[When | None, Field(description="Default: now.")] = None
    format: Literal["json", "csv"] = "json"


class ListUsageSegmentsQuery(Parameters):
    of: Annotated[AccountId | None, Field(description="Another account (owner).")] = None
    all_accounts: Annotated[bool, Field(description="Of every account (owner).")] = False
    after: Annotated[int, Field(ge=0, le=MAX_SEQ, description="The last page's next_after.")] = 0
    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_MAX
    since: Annotated[When | None, Field(description="Ended at or after.")] = None
    until: Annotated[When | None, Field(description="Ended before.")] = None
    format: Literal["json", "csv"] = "json"


FOLLOW_ACCOUNT_EVENTS = Operation(
    id="followAccountEvents",
    method="GET",
    path="/v1/accounts/me/events",
    noun="accounts",
    summary="What happened to this account: low, dry, reaped, funded, and changes of what it may do",
    query=FollowAccountEventsQuery,
    answer=Events(words="Events named by their kind; `data` is an Event, `id` its id."),
    needs=needs(Scope.ACCOUNT_READ),
)
SHOW_ME = Operation(
    id="showMe",
    method="GET",
    path="/v1/accounts/me",
    noun="accounts",
    summary="This account: money, tier, scopes, limits",
    answer=Answered(model=Me),
    needs=needs(Scope.ACCOUNT_READ),
)
LIST_TRANSFERS = Operation(
    id="listTransfers",
    method="GET",
    path="/v1/transfers",
    noun="accounts",
    summary="What moved, newest first; format=csv exports everything, oldest first",
    query=ListTransfersQuery,
    answer=Answered(model=TransferPage, other_form=("text/csv", "Transfers.")),
    needs=needs(Scope.ACCOUNT_READ),
    failures=(404,),
)
SEND_SATS = Operation(
    id="sendSats",
    method="POST",
    path="/v1/transfers",
    noun="accounts",
    summary="Give sats to another account by its public id; the same id gives once",
    body=Json(SendSats),
    answer=Answered(model=Moved, status=201),
    needs=needs(Scope.ACCOUNT_MANAGE),
    is_repeatable=True,
    failures=(402, 404, 409),
)
SHOW_USAGE = Operation(
    id="showUsage",
    method="GET",
    path="/v1/usage",
    noun="accounts",
    summary="What was used between two moments, for outside billing",
    query=ShowUsageQuery,
    answer=Answered(model=UsageReport, other_form=("text/csv", "Usage.")),
    needs=needs(Scope.ACCOUNT_READ),
    failures=(404,),
)
LIST_USAGE_SEGMENTS = Operation(
    id="listUsageSegments",
    method="GET",
    path="/v1/usage/segments",
    noun="accounts",
    summary="What was used, segment by segment, after a cursor; for outside billing",
    query=ListUsageSegmentsQuery,
    answer=Answered(
        model=UsageSegmentPage,
        other_form=("text/csv", "Segments; of CSV the header x-next-after says where to read on."),
    ),
    needs=needs(Scope.ACCOUNT_READ),
    failures=(404,),
)

OPERATIONS: tuple[AnyOperation, ...] = (
    FOLLOW_ACCOUNT_EVENTS,
    SHOW_ME,
    LIST_TRANSFERS,
    SEND_SATS,
    SHOW_USAGE,
    LIST_USAGE_SEGMENTS,
)
