"""The operations on host."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.host import Collected, Garbage, Host
from sandboxer.wire.operations.declaration import (
    Answered,
    AnyOperation,
    Empty,
    NoParameters,
    Operation,
    Parameters,
)
from sandboxer.wire.operations.terms import NEVER_DELEGATED, Access, RateClass
from sandboxer.wire.sandboxes import Reaped, StaleList


class CollectGarbageQuery(Parameters):
    now: Annotated[bool, Field(description="Also what is still in its time of grace.")] = False


INSPECT_HOST = Operation(
    id="inspectHost",
    method="GET",
    path="/v1/host",
    noun="host",
    summary="What this host can do and holds (owner)",
    parameters=NoParameters,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=Host),
    access=Access.OWNER,
    needs=NEVER_DELEGATED,
    rate=RateClass.API,
)
LIST_STALE = Operation(
    id="listStale",
    method="GET",
    path="/v1/host/stale",
    noun="host",
    summary="What no record accounts for (owner)",
    parameters=NoParameters,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=StaleList),
    access=Access.SIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.API,
)
REAP_STALE = Operation(
    id="reapStale",
    method="POST",
    path="/v1/host/reap-stale",
    noun="host",
    summary="Remove what no record accounts for (owner)",
    parameters=NoParameters,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=Reaped),
    access=Access.SIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.API,
)
LIST_GARBAGE = Operation(
    id="listGarbage",
    method="GET",
    path="/v1/host/garbage",
    noun="host",
    summary="What nobody needs any more, and when it goes (owner)",
    parameters=NoParameters,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=Garbage),
    access=Access.SIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.API,
)
COLLECT_GARBAGE = Operation(
    id="collectGarbage",
    method="POST",
    path="/v1/host/collect-garbage",
    noun="host",
    summary="Remove what nobody needs any more; the platform does this by itself, too (owner)",
    parameters=NoParameters,
    query=CollectGarbageQuery,
    body=Empty(),
    answer=Answered(model=Collected),
    access=Access.SIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.API,
)

OPERATIONS: tuple[AnyOperation, ...] = (
    INSPECT_HOST,
    LIST_STALE,
    REAP_STALE,
    LIST_GARBAGE,
    COLLECT_GARBAGE,
)
