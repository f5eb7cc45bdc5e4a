"""Which sandbox has which volume: decided in the transaction that writes the sandbox's record.

A volume is attached from its sandbox's creation until that is destroyed, whether it runs or not: read-write
by one, or read-only by any number. The volume's row is held meanwhile, so that two cannot decide at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from sandboxer.artifacts.volumes import records
from sandboxer.artifacts.volumes.book import tell
from sandboxer.artifacts.volumes.lifecycle import State
from sandboxer.artifacts.volumes.records import Attachment, Volume
from sandboxer.kernel.errors import Conflict, IllegalTransition, InvalidRequest, NotFound
from sandboxer.sandboxes.lifecycle import State as SandboxState
from sandboxer.sandboxes.records import Sandbox

# Sandboxes that have it, and no process.
AT_REST = (SandboxState.STOPPED, SandboxState.REAPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedVolume:
    """As a caller says it."""

    # Its id, or its name.
    volume: str
    path: str
    is_read_only: bool = False


def attach(conn: Connection, sandbox: Sandbox, *, now: datetime) -> None:
    """What its record names. Raises NotFound, Conflict (attached otherwise), InvalidRequest (another
    backend's)."""
    # In one order, or two creates could wait for each other.
    for mount in sorted(sandbox.volumes, key=lambda one: one.volume_id):
        volume = records.load(conn, mount.volume_id, lock=True)
        if volume is None or volume.account != sandbox.account:
            raise NotFound(what="volume", id=mount.volume_id)
        if volume.state is not State.READY:
            raise IllegalTransition(signal="attach", state=volume.state.value, reason=volume.reason)
        if volume.backend != sandbox.backend:
            raise InvalidRequest(
                field="volumes",
                why=f"{volume.name} lies in {volume.backend}, the sandbox in {sandbox.backend}",
            )
        refuse_taken(volume, records.attachments_of(conn, [volume.id])[volume.id], mount.is_read_only)
        records.insert_attachment(
            conn,
            Attachment(
                volume_id=volume.id,
                sandbox_id=sandbox.id,
                path=mount.path,
                is_read_only=mount.is_read_only,
                attached_at=now,
            ),
        )
        data = {"sandbox_id": sandbox.id, "path": mount.path, "mode": mode_of(mount.is_read_only)}
        tell(conn, volume, "volume.attached", sandbox.created_by, "attached_at_creation", now, data)


def refuse_taken(volume: Volume, attachments: Sequence[Attachment], is_read_only: bool) -> None:
    """One writes or many read. Pure."""
    for one in attachments:
        if not (one.is_read_only and is_read_only):
            raise Conflict(
                why=f"{volume.name} is attached to {one.sandbox_id}, {mode_of(one.is_read_only)}",
                reason="attached",
                sandbox_id=one.sandbox_id,
                hint="Destroy that sandbox first; or let all of them have it read-only (mode ro).",
            )


def refuse_attached(conn: Connection, volume: Volume) -> None:
    """For what must not happen under anybody's feet."""
    for one in records.attachments_of(conn, [volume.id])[volume.id]:
        raise Conflict(
            why=f"{volume.name} is attached to {one.sandbox_id}",
            reason="attached",
            sandbox_id=one.sandbox_id,
            hint="Destroy that sandbox first.",
        )


def refuse_in_use(conn: Connection, volume: Volume) -> None:
    """For what may happen while every sandbox that has it is stopped."""
    for one in records.attachments_of(conn, [volume.id], without=AT_REST)[volume.id]:
        raise Conflict(
            why=f"{volume.name} is in use by {one.sandbox_id}, {mode_of(one.is_read_only)}",
            reason="attached",
            sandbox_id=one.sandbox_id,
            hint="Stop or destroy that sandbox first; a stopped one finds it as restored when it is resumed.",
        )


def mode_of(is_read_only: bool) -> str:
    return "ro" if is_read_only else "rw"
