"""The volume repository is the only writer of volume records. Which sandbox gets which volume is decided in
the transaction that writes the sandbox's record.

A volume is attached from the creation of its sandbox until the sandbox is destroyed, whether it runs or not:
read-write by one, or read-only by any number. The volume's row is locked meanwhile, so that two cannot decide
at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from urllib.parse import quote

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from sandboxer.artifacts.records import VOLUMES, Signal, State
from sandboxer.artifacts.repository import KeptRepository
from sandboxer.artifacts.volumes import records
from sandboxer.artifacts.volumes.records import Attachment, Volume
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, IllegalTransition, InvalidRequest, NotFound
from sandboxer.observe import events
from sandboxer.sandboxes.lifecycle import State as SandboxState
from sandboxer.sandboxes.records import Sandbox
from sandboxer.store import steps
from sandboxer.store.repository import Also

Step = steps.Step[Volume, Signal]


class VolumeRepository(KeptRepository[Volume]):
    noun = "volume"
    rows = records.rows
    states = VOLUMES

    async def create(
        self,
        wanted: Volume,
        *steps: Step,
        check: Callable[[Connection], None] | None = None,
        also: Also | None = None,
    ) -> Volume:
        try:
            return await super().create(wanted, *steps, check=check, also=also)
        except IntegrityError:
            # A database that several servers share may let two of them read at once.
            raise _taken(wanted.name) from None

    async def move(self, id: str, *steps: Step) -> Volume:
        try:
            return await super().move(id, *steps)
        except IntegrityError:
            # Only its name can be in use already.
            raise _taken(str(steps[-1].changes.get("name"))) from None

    def _admit(self, conn: Connection, wanted: Volume, now: datetime) -> Volume:
        refuse_name(conn, wanted.account, wanted.name)
        return super()._admit(conn, wanted, now)

    def _facts(self, change: steps.Change[Volume, Step]) -> Mapping[str, object]:
        return {"name": change.after.name}


def refuse_name(conn: Connection, account: str, name: str) -> None:
    """Raises Conflict if another volume of the account has this name."""
    if records.load_named(conn, account, name) is not None:
        raise _taken(name)


def _taken(name: str) -> Conflict:
    return Conflict(
        why=f"there is a volume {name} already",
        reason="name_taken",
        hint=f"Give it another name, use that one (GET /v1/volumes/{quote(name)}), or remove it first"
        f" (DELETE /v1/volumes/{quote(name)}).",
    )


# Sandboxes that have it attached but have no process.
AT_REST = (SandboxState.STOPPED, SandboxState.REAPED)


def attach(conn: Connection, sandbox: Sandbox, *, clock: Clock) -> None:
    """Attaches the volumes that a sandbox's record names. Raises NotFound, Conflict (attached otherwise),
    InvalidRequest (another backend's).
    """
    # Always in the same order, or two creates could wait for each other.
    for mount in sorted(sandbox.volumes, key=lambda one: one.volume_id):
        now, volume = clock.now(), records.rows.load(conn, mount.volume_id, lock=True)
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
        events.record(
            conn,
            subject=volume.id,
            kind="volume.attached",
            actor=sandbox.created_by,
            reason="attached_at_creation",
            at=now,
            data={
                "name": volume.name,
                "sandbox_id": sandbox.id,
                "path": mount.path,
                "mode": mode_of(mount.is_read_only),
            },
        )


def refuse_taken(volume: Volume, attachments: Sequence[Attachment], is_read_only: bool) -> None:
    """Refuses a second writer, or readers beside a writer. Pure."""
    for one in attachments:
        if not (one.is_read_only and is_read_only):
            raise Conflict(
                why=f"{volume.name} is attached to {one.sandbox_id}, {mode_of(one.is_read_only)}",
                reason="attached",
                sandbox_id=one.sandbox_id,
                hint=f"Delete that sandbox first (DELETE /v1/sandboxes/{one.sandbox_id}); or let all of them"
                " have it read-only (mode ro).",
            )


def refuse_attached(conn: Connection, volume: Volume) -> None:
    """Raises Conflict if any sandbox has it attached."""
    for one in records.attachments_of(conn, [volume.id])[volume.id]:
        raise Conflict(
            why=f"{volume.name} is attached to {one.sandbox_id}",
            reason="attached",
            sandbox_id=one.sandbox_id,
            hint=f"Delete that sandbox first: DELETE /v1/sandboxes/{one.sandbox_id}.",
        )


def refuse_in_use(conn: Connection, volume: Volume) -> None:
    """Raises Conflict unless every sandbox that has it attached is stopped."""
    for one in records.attachments_of(conn, [volume.id], without=AT_REST)[volume.id]:
        raise Conflict(
            why=f"{volume.name} is in use by {one.sandbox_id}, {mode_of(one.is_read_only)}",
            reason="attached",
            sandbox_id=one.sandbox_id,
            hint=f"Stop that sandbox first (POST /v1/sandboxes/{one.sandbox_id}/stop); it finds the volume as"
            " restored when it is resumed.",
        )


def mode_of(is_read_only: bool) -> str:
    return "ro" if is_read_only else "rw"
