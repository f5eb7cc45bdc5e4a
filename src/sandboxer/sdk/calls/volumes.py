# Written by scripts/generate-calls from wire/operations. Do not edit.
"""The calls on volumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sandboxer.sdk.call import Call, headers_of, json_body, target_of

if TYPE_CHECKING:
    from sandboxer.wire.snapshots import Snapshot
    from sandboxer.wire.volumes import Volume, VolumePage


def create_volume(
    *,
    name: str,
    size_mb: int | None = None,
    from_snapshot: str | None = None,
    labels: Mapping[str, str] | None = None,
    idempotency_key: str | None = None,
) -> Call[Volume]:
    """Create a volume, empty or as a copy."""
    return Call(
        operation="createVolume",
        method="POST",
        target="/v1/volumes",
        answer="sandboxer.wire.volumes:Volume",
        body=json_body({"name": name}, size_mb=size_mb, from_snapshot=from_snapshot, labels=labels),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
        timeout_s=180.0,
    )


def list_volumes(
    *, state: str | None = None, cursor: str | None = None, limit: int | None = None
) -> Call[VolumePage]:
    """List volumes, newest first."""
    return Call(
        operation="listVolumes",
        method="GET",
        target=target_of("/v1/volumes", state=state, cursor=cursor, limit=limit),
        answer="sandboxer.wire.volumes:VolumePage",
    )


def get_volume(volume: str) -> Call[Volume]:
    """Show a volume, by id or name."""
    return Call(
        operation="getVolume",
        method="GET",
        target=target_of("/v1/volumes/{}", volume),
        answer="sandboxer.wire.volumes:Volume",
    )


def change_volume(
    volume: str,
    *,
    name: str | None = None,
    size_mb: int | None = None,
    labels: Mapping[str, str] | None = None,
) -> Call[Volume]:
    """Change a volume's size, name or labels."""
    return Call(
        operation="changeVolume",
        method="PATCH",
        target=target_of("/v1/volumes/{}", volume),
        answer="sandboxer.wire.volumes:Volume",
        body=json_body({}, name=name, size_mb=size_mb, labels=labels),
        headers=headers_of(content_type="application/json"),
    )


def drop_volume(volume: str) -> Call[Volume]:
    """Delete a volume and all that is on it; deleted already is success."""
    return Call(
        operation="dropVolume",
        method="DELETE",
        target=target_of("/v1/volumes/{}", volume),
        answer="sandboxer.wire.volumes:Volume",
        is_repeatable=True,
        timeout_s=180.0,
    )


def take_volume_snapshot(
    volume: str,
    *,
    name: str | None = None,
    ttl: str | None = None,
    labels: Mapping[str, str] | None = None,
    idempotency_key: str | None = None,
) -> Call[Snapshot]:
    """Take a snapshot of a volume; whoever writes to it goes on."""
    return Call(
        operation="takeVolumeSnapshot",
        method="POST",
        target=target_of("/v1/volumes/{}/snapshots", volume),
        answer="sandboxer.wire.snapshots:Snapshot",
        body=json_body({}, name=name, ttl=ttl, labels=labels),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
        timeout_s=180.0,
    )


def restore_volume(volume: str, *, snapshot: str) -> Call[Volume]:
    """Put a volume back to a snapshot; what is on it now is lost."""
    return Call(
        operation="restoreVolume",
        method="POST",
        target=target_of("/v1/volumes/{}/restore", volume),
        answer="sandboxer.wire.volumes:Volume",
        body=json_body({"snapshot": snapshot}),
        headers=headers_of(content_type="application/json"),
        timeout_s=180.0,
    )


def lock_volume(volume: str) -> Call[Volume]:
    """Lock a volume: deleting and unlocking it then need a second proof."""
    return Call(
        operation="lockVolume",
        method="POST",
        target=target_of("/v1/volumes/{}/lock", volume),
        answer="sandboxer.wire.volumes:Volume",
    )


def unlock_volume(volume: str) -> Call[Volume]:
    """Unlock a volume."""
    return Call(
        operation="unlockVolume",
        method="POST",
        target=target_of("/v1/volumes/{}/unlock", volume),
        answer="sandboxer.wire.volumes:Volume",
    )
