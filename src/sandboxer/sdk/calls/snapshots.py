# Written by scripts/generate-calls from wire/operations. Do not edit.
"""The calls on snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sandboxer.sdk.call import Call, headers_of, json_body, target_of

if TYPE_CHECKING:
    from sandboxer.wire.sandboxes import Sandbox
    from sandboxer.wire.snapshots import Clones, Snapshot, SnapshotPage, SnapshotTree


def take_snapshot(
    sandbox_id: str,
    *,
    name: str | None = None,
    ttl: str | None = None,
    labels: Mapping[str, str] | None = None,
    memory: bool | None = None,
    idempotency_key: str | None = None,
) -> Call[Snapshot]:
    """Take a snapshot of a sandbox's disk, or of what runs too; whatever runs goes on."""
    return Call(
        operation="takeSnapshot",
        method="POST",
        target=target_of("/v1/sandboxes/{}/snapshots", sandbox_id),
        answer="sandboxer.wire.snapshots:Snapshot",
        body=json_body({}, name=name, ttl=ttl, labels=labels, memory=memory),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
        timeout_s=180.0,
    )


def list_snapshots(
    *,
    sandbox_id: str | None = None,
    volume_id: str | None = None,
    state: str | None = None,
    label: Sequence[str] | None = None,
    cursor: str | None = None,
    limit: int | None = None,
) -> Call[SnapshotPage]:
    """List snapshots, newest first."""
    return Call(
        operation="listSnapshots",
        method="GET",
        target=target_of(
            "/v1/snapshots",
            sandbox_id=sandbox_id,
            volume_id=volume_id,
            state=state,
            label=label,
            cursor=cursor,
            limit=limit,
        ),
        answer="sandboxer.wire.snapshots:SnapshotPage",
    )


def get_snapshot_tree() -> Call[SnapshotTree]:
    """Show what came from what: snapshots, and the sandboxes and volumes made from them."""
    return Call(
        operation="getSnapshotTree",
        method="GET",
        target="/v1/snapshots/tree",
        answer="sandboxer.wire.snapshots:SnapshotTree",
    )


def get_snapshot(snapshot_id: str) -> Call[Snapshot]:
    """Show a snapshot."""
    return Call(
        operation="getSnapshot",
        method="GET",
        target=target_of("/v1/snapshots/{}", snapshot_id),
        answer="sandboxer.wire.snapshots:Snapshot",
    )


def change_snapshot(
    snapshot_id: str,
    *,
    name: str | None = None,
    labels: Mapping[str, str] | None = None,
    ttl: str | None = None,
) -> Call[Snapshot]:
    """Change a snapshot's name, labels, or how long it is kept."""
    return Call(
        operation="changeSnapshot",
        method="PATCH",
        target=target_of("/v1/snapshots/{}", snapshot_id),
        answer="sandboxer.wire.snapshots:Snapshot",
        body=json_body({}, name=name, labels=labels, ttl=ttl),
        headers=headers_of(content_type="application/json"),
    )


def drop_snapshot(snapshot_id: str) -> Call[Snapshot]:
    """Delete a snapshot; deleted already is success, what was made from it stays."""
    return Call(
        operation="dropSnapshot",
        method="DELETE",
        target=target_of("/v1/snapshots/{}", snapshot_id),
        answer="sandboxer.wire.snapshots:Snapshot",
        is_repeatable=True,
    )


def restore_snapshot(snapshot_id: str) -> Call[Sandbox]:
    """Put the sandbox back to a snapshot; processes end, and it starts again or goes on as it was kept."""
    return Call(
        operation="restoreSnapshot",
        method="POST",
        target=target_of("/v1/snapshots/{}/restore", snapshot_id),
        answer="sandboxer.wire.sandboxes:Sandbox",
        timeout_s=180.0,
    )


def clone_snapshot(
    snapshot_id: str,
    *,
    count: int | None = None,
    name: str | None = None,
    profile: str | None = None,
    trust: str | None = None,
    network: str | None = None,
    ttl: str | None = None,
    idle_timeout: str | None = None,
    resources: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    volumes: Sequence[Mapping[str, Any]] | None = None,
    idempotency_key: str | None = None,
) -> Call[Clones]:
    """Create sandboxes from a snapshot."""
    return Call(
        operation="cloneSnapshot",
        method="POST",
        target=target_of("/v1/snapshots/{}/clone", snapshot_id),
        answer="sandboxer.wire.snapshots:Clones",
        body=json_body(
            {},
            count=count,
            name=name,
            profile=profile,
            trust=trust,
            network=network,
            ttl=ttl,
            idle_timeout=idle_timeout,
            resources=resources,
            env=env,
            labels=labels,
            volumes=volumes,
        ),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
        timeout_s=180.0,
    )


def lock_snapshot(snapshot_id: str) -> Call[Snapshot]:
    """Lock a snapshot: deleting and unlocking it then need a second proof."""
    return Call(
        operation="lockSnapshot",
        method="POST",
        target=target_of("/v1/snapshots/{}/lock", snapshot_id),
        answer="sandboxer.wire.snapshots:Snapshot",
    )


def unlock_snapshot(snapshot_id: str) -> Call[Snapshot]:
    """Unlock a snapshot."""
    return Call(
        operation="unlockSnapshot",
        method="POST",
        target=target_of("/v1/snapshots/{}/unlock", snapshot_id),
        answer="sandboxer.wire.snapshots:Snapshot",
    )
