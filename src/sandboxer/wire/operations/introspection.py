"""The operations on introspection."""

from __future__ import annotations

from sandboxer.wire.introspection import Cluster, Limits, Pools, Stats
from sandboxer.wire.operations.declaration import Answered, AnyOperation, Empty, NoParameters, Operation
from sandboxer.wire.operations.terms import ANY_KEY, Access, RateClass, Scope, needs

SHOW_CLUSTER = Operation(
    id="showCluster",
    method="GET",
    path="/v1/cluster",
    noun="introspection",
    summary="Hosts, what they can do, and how much is free",
    parameters=NoParameters,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=Cluster),
    access=Access.SIGNED,
    needs=ANY_KEY,
    rate=RateClass.API,
)
LIST_POOLS = Operation(
    id="listPools",
    method="GET",
    path="/v1/pools",
    noun="introspection",
    summary="Sandboxes that stand ready, and the disks' storage",
    parameters=NoParameters,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=Pools),
    access=Access.SIGNED,
    needs=ANY_KEY,
    rate=RateClass.API,
)
SHOW_STATS = Operation(
    id="showStats",
    method="GET",
    path="/v1/stats",
    noun="introspection",
    summary="How many sandboxes, jobs, sessions and services there are, by state",
    parameters=NoParameters,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=Stats),
    access=Access.SIGNED,
    needs=needs(Scope.SANDBOXES_READ),
    rate=RateClass.API,
)
SHOW_LIMITS = Operation(
    id="showLimits",
    method="GET",
    path="/v1/limits",
    noun="introspection",
    summary="What this key may still do: requests this minute, slots, caps, longest and largest sandbox",
    parameters=NoParameters,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=Limits),
    access=Access.SIGNED,
    needs=ANY_KEY,
    rate=RateClass.API,
)

OPERATIONS: tuple[AnyOperation, ...] = (
    SHOW_CLUSTER,
    LIST_POOLS,
    SHOW_STATS,
    SHOW_LIMITS,
)
