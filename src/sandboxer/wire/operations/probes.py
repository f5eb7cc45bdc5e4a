"""The operations on probes."""

from __future__ import annotations

from sandboxer.wire.capabilities import Capabilities
from sandboxer.wire.host import Health, Readiness
from sandboxer.wire.operations.declaration import (
    Answered,
    AnyOperation,
    Bytes,
    Empty,
    NoParameters,
    Operation,
)
from sandboxer.wire.operations.terms import NEVER_DELEGATED, Access, RateClass

HEALTH = Operation(
    id="health",
    method="GET",
    path="/health",
    noun="probes",
    summary="It runs; its database and disks take writes, its backends can make sandboxes",
    parameters=NoParameters,
    query=NoParameters,
    body=Empty(),
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
    parameters=NoParameters,
    query=NoParameters,
    body=Empty(),
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
    parameters=NoParameters,
    query=NoParameters,
    body=Empty(),
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
    parameters=NoParameters,
    query=NoParameters,
    body=Empty(),
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
    parameters=NoParameters,
    query=NoParameters,
    body=Empty(),
    answer=Bytes(media_type="application/json", words="This document.", is_text=True),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
)

OPERATIONS: tuple[AnyOperation, ...] = (
    GET_OPENAPI,
    HEALTH,
    READY,
    METRICS,
    GET_CAPABILITIES,
)
