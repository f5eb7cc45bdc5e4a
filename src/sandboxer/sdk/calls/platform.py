# Written by scripts/generate-calls from wire/operations. Do not edit.
"""The calls on platform."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxer.sdk.call import BYTES, STREAM_TIMEOUT_S, Call, target_of

if TYPE_CHECKING:
    from sandboxer.wire.platform import (
        Capabilities,
        Cluster,
        Collected,
        Discovery,
        Garbage,
        Health,
        Host,
        Limits,
        Pools,
        Readiness,
        Reaped,
        StaleList,
        Stats,
    )


def inspect_host() -> Call[Host]:
    """Show what this host can do and holds (owner)."""
    return Call(
        operation="inspectHost",
        method="GET",
        target="/v1/host",
        answer="sandboxer.wire.platform:Host",
    )


def list_stale() -> Call[StaleList]:
    """List disks and processes that no record accounts for (owner)."""
    return Call(
        operation="listStale",
        method="GET",
        target="/v1/host/stale",
        answer="sandboxer.wire.platform:StaleList",
    )


def reap_stale() -> Call[Reaped]:
    """Remove disks and processes that no record accounts for (owner)."""
    return Call(
        operation="reapStale",
        method="POST",
        target="/v1/host/reap-stale",
        answer="sandboxer.wire.platform:Reaped",
    )


def list_garbage() -> Call[Garbage]:
    """List what nobody needs any more, and when it is removed (owner)."""
    return Call(
        operation="listGarbage",
        method="GET",
        target="/v1/host/garbage",
        answer="sandboxer.wire.platform:Garbage",
    )


def collect_garbage(*, now: bool | None = None) -> Call[Collected]:
    """Remove what nobody needs any more; the platform does this by itself, too (owner)."""
    return Call(
        operation="collectGarbage",
        method="POST",
        target=target_of("/v1/host/collect-garbage", now=now),
        answer="sandboxer.wire.platform:Collected",
    )


def get_openapi() -> Call[bytes]:
    """Get this document."""
    return Call(
        operation="getOpenapi",
        method="GET",
        target="/openapi.json",
        answer=BYTES,
        timeout_s=STREAM_TIMEOUT_S,
    )


def show_front_page() -> Call[bytes]:
    """Show what this is and how to begin: a page for people, a text for agents."""
    return Call(
        operation="showFrontPage",
        method="GET",
        target="/",
        answer=BYTES,
        timeout_s=STREAM_TIMEOUT_S,
    )


def get_llms_text() -> Call[bytes]:
    """Get a text for agents: what this is, how to authenticate and pay, every operation in one line."""
    return Call(
        operation="getLlmsText",
        method="GET",
        target="/llms.txt",
        answer=BYTES,
        timeout_s=STREAM_TIMEOUT_S,
    )


def discover() -> Call[Discovery]:
    """Show what this is, where its documents and prices are, and how requests are signed."""
    return Call(
        operation="discover",
        method="GET",
        target="/.well-known/sandboxer.json",
        answer="sandboxer.wire.platform:Discovery",
    )


def health() -> Call[Health]:
    """Say whether database and disks take writes, and backends can make sandboxes."""
    return Call(
        operation="health",
        method="GET",
        target="/health",
        answer="sandboxer.wire.platform:Health",
        also_reads=frozenset({503}),
    )


def ready() -> Call[Readiness]:
    """Say whether it takes requests."""
    return Call(
        operation="ready",
        method="GET",
        target="/readyz",
        answer="sandboxer.wire.platform:Readiness",
        also_reads=frozenset({503}),
    )


def metrics() -> Call[bytes]:
    """Get metrics, for callers on this host."""
    return Call(
        operation="metrics",
        method="GET",
        target="/metrics",
        answer=BYTES,
        timeout_s=STREAM_TIMEOUT_S,
    )


def get_capabilities() -> Call[Capabilities]:
    """Show what this platform can do."""
    return Call(
        operation="getCapabilities",
        method="GET",
        target="/v1/capabilities",
        answer="sandboxer.wire.platform:Capabilities",
    )


def show_cluster() -> Call[Cluster]:
    """Show the hosts, what they can do, and how much is free."""
    return Call(
        operation="showCluster",
        method="GET",
        target="/v1/cluster",
        answer="sandboxer.wire.platform:Cluster",
    )


def list_pools() -> Call[Pools]:
    """Show how many sandboxes are kept ready, and the storage of disks."""
    return Call(
        operation="listPools",
        method="GET",
        target="/v1/pools",
        answer="sandboxer.wire.platform:Pools",
    )


def show_stats() -> Call[Stats]:
    """Count sandboxes, jobs, sessions and services, by state."""
    return Call(
        operation="showStats",
        method="GET",
        target="/v1/stats",
        answer="sandboxer.wire.platform:Stats",
    )


def show_limits() -> Call[Limits]:
    """Show what this key may still do: requests this minute, slots, caps, longest and largest sandbox."""
    return Call(
        operation="showLimits",
        method="GET",
        target="/v1/limits",
        answer="sandboxer.wire.platform:Limits",
    )
