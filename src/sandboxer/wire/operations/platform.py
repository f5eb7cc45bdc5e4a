"""The operations on the platform itself: probes, what it can do, and its host."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.operations.declaration import (
    ANY_KEY,
    NEVER_DELEGATED,
    Access,
    Answered,
    AnyOperation,
    Bytes,
    Operation,
    Parameters,
    RateClass,
    Scope,
    needs,
)
from sandboxer.wire.platform import (
    Capabilities,
    Cluster,
    Collected,
    Garbage,
    Health,
    Host,
    Limits,
    Pools,
    Readiness,
    Stats,
)
from sandboxer.wire.sandboxes import Reaped, StaleList

INSPECT_HOST = Operation(
    id="inspectHost",
    method="GET",
    path="/v1/host",
    noun="host",
    summary="What this host can do and holds (owner)",
    answer=Answered(model=Host),
    access=Access.OWNER,
    needs=NEVER_DELEGATED,
)
LIST_STALE = Operation(
    id="listStale",
    method="GET",
    path="/v1/host/stale",
    noun="host",
    summary="What no record accounts for (owner)",
    answer=Answered(model=StaleList),
    needs=NEVER_DELEGATED,
)
REAP_STALE = Operation(
    id="reapStale",
    method="POST",
    path="/v1/host/reap-stale",
    noun="host",
    summary="Remove what no record accounts for (owner)",
    answer=Answered(model=Reaped),
    needs=NEVER_DELEGATED,
)
LIST_GARBAGE = Operation(
    id="listGarbage",
    method="GET",
    path="/v1/host/garbage",
    noun="host",
    summary="What nobody needs any more, and when it goes (owner)",
    answer=Answered(model=Garbage),
    needs=NEVER_DELEGATED,
)
HEALTH = Operation(
    id="health",
    method="GET",
    path="/health",
    noun="probes",
    summary="It runs; its database and disks take writes, its backends can make sandboxes",
    answer=Answered(model=Health, also=((503, "Something it needs fails."),)),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.UNCOUNTED,
)
READY = Operation(
    id="ready",
    method="GET",
    path="/readyz",
    noun="probes",
    summary="It takes requests",
    answer=Answered(model=Readiness, also=((503, "Not yet, or no more."),)),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.UNCOUNTED,
)
METRICS = Operation(
    id="metrics",
    method="GET",
    path="/metrics",
    noun="probes",
    summary="Figures, for callers on this host",
    answer=Bytes(media_type="text/plain", words="Figures for Prometheus.", is_text=True),
    access=Access.LOOPBACK,
    needs=NEVER_DELEGATED,
    rate=RateClass.UNCOUNTED,
    failures=(403,),
)
GET_CAPABILITIES = Operation(
    id="getCapabilities",
    method="GET",
    path="/v1/capabilities",
    noun="probes",
    summary="What this platform can do",
    answer=Answered(model=Capabilities),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
    failures=(503,),
)
GET_OPENAPI = Operation(
    id="getOpenapi",
    method="GET",
    path="/openapi.json",
    noun="probes",
    summary="This document",
    answer=Bytes(media_type="application/json", words="This document.", is_text=True),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
)
SHOW_CLUSTER = Operation(
    id="showCluster",
    method="GET",
    path="/v1/cluster",
    noun="introspection",
    summary="Hosts, what they can do, and how much is free",
    answer=Answered(model=Cluster),
    needs=ANY_KEY,
)
LIST_POOLS = Operation(
    id="listPools",
    method="GET",
    path="/v1/pools",
    noun="introspection",
    summary="Sandboxes that stand ready, and the disks' storage",
    answer=Answered(model=Pools),
    needs=ANY_KEY,
)
SHOW_STATS = Operation(
    id="showStats",
    method="GET",
    path="/v1/stats",
    noun="introspection",
    summary="How many sandboxes, jobs, sessions and services there are, by state",
    answer=Answered(model=Stats),
    needs=needs(Scope.SANDBOXES_READ),
)
SHOW_LIMITS = Operation(
    id="showLimits",
    method="GET",
    path="/v1/limits",
    noun="introspection",
    summary="What this key may still do: requests this minute, slots, caps, longest and largest sandbox",
    answer=Answered(model=Limits),
    needs=ANY_KEY,
)


class CollectGarbageQuery(Parameters):
    now: Annotated[bool, Field(description="Also what is still in its time of grace.")] = False


COLLECT_GARBAGE = Operation(
    id="collectGarbage",
    method="POST",
    path="/v1/host/collect-garbage",
    noun="host",
    summary="Remove what nobody needs any more; the platform does this by itself, too (owner)",
    query=CollectGarbageQuery,
    answer=Answered(model=Collected),
    needs=NEVER_DELEGATED,
)
OPERATIONS: tuple[AnyOperation, ...] = (
    INSPECT_HOST,
    LIST_STALE,
    REAP_STALE,
    LIST_GARBAGE,
    COLLECT_GARBAGE,
    GET_OPENAPI,
    HEALTH,
    READY,
    METRICS,
    GET_CAPABILITIES,
    SHOW_CLUSTER,
    LIST_POOLS,
    SHOW_STATS,
    SHOW_LIMITS,
)
