"""The platform as its callers may see it."""

from __future__ import annotations

from sandboxer.sdk.calls import Call
from sandboxer.sdk.routes.reading import model
from sandboxer.wire.host import Health
from sandboxer.wire.introspection import Cluster, Limits, Pools, Stats


def health() -> Call[Health]:
    """503 says that it is degraded, and of what."""
    return Call(method="GET", target="/health", read=model(Health), also_reads=frozenset({503}))


def cluster() -> Call[Cluster]:
    return Call(method="GET", target="/v1/cluster", read=model(Cluster))


def pools() -> Call[Pools]:
    return Call(method="GET", target="/v1/pools", read=model(Pools))


def stats() -> Call[Stats]:
    return Call(method="GET", target="/v1/stats", read=model(Stats))


def limits() -> Call[Limits]:
    return Call(method="GET", target="/v1/limits", read=model(Limits))
