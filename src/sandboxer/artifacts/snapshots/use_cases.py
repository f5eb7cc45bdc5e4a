"""The use cases of snapshots: take, list, change, restore, drop. Slow operations go on without
their caller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection

from sandboxer.artifacts.records import USABLE, Signal, State
from sandboxer.artifacts.snapshots import records
from sandboxer.artifacts.snapshots import records as lineage
from sandboxer.artifacts.snapshots.records import Branch, Snapshot
from sandboxer.artifacts.use_cases import ITSELF, KeptUseCases
from sandboxer.backends.contract import Content, KeptDisk, KeptSizes, Resources, Snapshots
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import parse_duration
from sandboxer.kernel.errors import Conflict, IllegalTransition, NotFound
from sandboxer.kernel.values import is_volume_id, new_id, value_class
from sandboxer.sandboxes.dependencies import actor_of
from sandboxer.sandboxes.lifecycle import State as SandboxState
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.use_cases import disks
from sandboxer.sandboxes.use_cases.disks import reconciler_of
from sandboxer.store.repository import Also
from sandboxer.store.rows import Page
from sandboxer.store.steps import Step

# The most snapshots in a tree of descent; the oldest are cut off.
MAX_TREE = 5000
# Makes the backend keep a disk under this id, and returns how long that took.
Take = Callable[[str], Awaitable[tuple[KeptDisk, float]]]


@value_class
class Wanted:
    """What a caller may say about a snapshot. Durations are as written: `4h`, `7d`."""

    name: str | None = None
    ttl: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    # What runs is kept too.
    memory: bool = False


@value_class
class SnapshotUseCases(KeptUseCases[Snapshot]):
    async def take(
        self, sandbox_id: str, wanted: Wanted, caller: Caller, *, also: Also | None = None
    ) -> Snapshot:
        """Keeps the sandbox's disk as it is now, and what runs in it if that is wanted; its processes go on.

        `also` is written in the transaction of the record, so that a repeated request finds it.
        """
        sandbox = await self.sandboxes.visible(sandbox_id, caller)
        reconciler_of(self.sandboxes.backend_of(sandbox), sandbox.backend)
        disks.check_keepable(self.sandboxes, sandbox, memory=wanted.memory)
        planned = self._planned(
            wanted,
            caller,
            # The owner of the sandbox owns the snapshot, also when the operator takes it.
            account=sandbox.account,
            sandbox_id=sandbox.id,
            parent_id=sandbox.origin,
            backend=sandbox.backend,
            image=sandbox.image,
            profile=sandbox.profile,
            resources=sandbox.resources,
            size_bytes=await self._used(sandbox, memory=wanted.memory),
            content=Content.FILES_AND_MEMORY if wanted.memory else Content.FILES,
        )

        async def act(disk_id: str) -> tuple[KeptDisk, float]:
            kept = await disks.keep(self.sandboxes, sandbox_id, caller, disk_id, memory=wanted.memory)
            return kept.disk, kept.took_ms

        return await self._keep(planned, caller, act, also)

    async def keep_volume(
        self,
        *,
        volume_id: str,
        account: str,
        backend: str,
        parent_id: str | None,
        resources: Resources,
        used_bytes: int,
        wanted: Wanted,
        caller: Caller,
        take: Take,
        also: Also | None,
    ) -> Snapshot:
        """Does the same for a volume, which takes the place of the sandbox; `take` makes the
        backend do it.
        """
        planned = self._planned(
            wanted,
            caller,
            account=account,
            sandbox_id=volume_id,
            parent_id=parent_id,
            backend=backend,
            image="",
            profile="",
            resources=resources,
            size_bytes=used_bytes,
        )
        return await self._keep(planned, caller, take, also)

    async def _keep(self, planned: Snapshot, caller: Caller, take: Take, also: Also | None) -> Snapshot:
        def check(conn: Connection) -> None:
            self.check_room(conn, planned, more_bytes=planned.size_bytes)

        opened = await self.repository.create(planned, check=check, also=also)
        return await self.operations.perform(opened.id, "take", lambda: self._take(opened, caller, take))

    async def get(self, snapshot_id: str, caller: Caller) -> Snapshot:
        """Returns the snapshot. Raises NotFound, also for a snapshot of somebody else."""
        snapshot = await self.repository.find(snapshot_id)
        if snapshot is None or not (caller.is_owner or snapshot.account == caller.account):
            raise NotFound(what="snapshot", id=snapshot_id)
        return snapshot

    async def sizes(self, snapshot: Snapshot) -> KeptSizes | None:
        """Returns how much it holds now and how much it alone holds; None if there is nothing to measure."""
        if snapshot.state not in USABLE:
            return None
        try:
            return await self._reconciler(snapshot).sizes(snapshot.id)
        except NotFound:
            return None

    async def list(
        self,
        caller: Caller,
        *,
        sandbox_id: str | None = None,
        name: str | None = None,
        state: State | None = None,
        labels: Mapping[str, str] | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Snapshot]:
        """Returns snapshots, newest first. Without `state`, dropped ones are left out. The owner sees
        everyone's; a name is always the caller's own, since anybody may call anything by it.
        """
        return await self.repository.store.read(
            lambda conn: records.load_page(
                conn,
                account=None if caller.is_owner and name is None else caller.account,
                sandbox_id=sandbox_id,
                name=name,
                state=state,
                labels=labels or {},
                cursor=cursor,
                limit=limit,
            )
        )

    async def tree(
        self, caller: Caller, *, volumes: Sequence[tuple[str, str | None]] = ()
    ) -> Sequence[Branch]:
        """Returns the caller's snapshots by descent, with the sandboxes and volumes that descend from each.

        `volumes` are the caller's, each with the snapshot it began as a copy of.
        """
        account = caller.account

        def read(conn: Connection) -> tuple[list[Snapshot], dict[str, str]]:
            found = records.load_tree(conn, account, limit=MAX_TREE)
            return found, {id_: h for id_, _ in mine if (h := records.head_of(conn, id_)) is not None}

        living = self.sandboxes.repository.living(account)
        mine = [*((one.id, one.origin) for one in living), *volumes]
        found, heads = await self.repository.store.read(read)
        descent = [(id_, head) for id_, origin in mine if (head := heads.get(id_) or origin) is not None]
        return lineage.grow(found, descent)

    async def change(
        self,
        snapshot_id: str,
        caller: Caller,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        ttl: str | None = None,
    ) -> Snapshot:
        """Changes settings; a field that is None stays as it is. `ttl` counts from now."""
        await self.get(snapshot_id, caller)
        changes: dict[str, object] = {}
        if name is not None:
            changes["name"] = name
        if labels is not None:
            changes["labels"] = dict(labels)
        if ttl is not None:
            changes["expires_at"] = self.clock.now() + parse_duration(ttl, field="ttl")
        check = self.refuse_over if ttl is None else _refuse_unkept
        return await self.amend(snapshot_id, caller, "changed", changes, check=check)

    def unlocked(self, record: Snapshot) -> Mapping[str, object]:
        soon = self.clock.now() + timedelta(seconds=1)
        if record.expires_at is None or record.expires_at > soon:
            return {"locked_at": None}
        # Unlocking alone must not cause its removal.
        return {"locked_at": None, "expires_at": self.clock.now() + self.policy.retention}

    async def restore(self, snapshot_id: str, caller: Caller, *, despite_lock: bool = False) -> Sandbox:
        """Restores the sandbox's disk to this snapshot; its present content is lost. Raises Conflict if the
        sandbox is gone.

        `despite_lock` says that a second proof allowed it although the sandbox is locked.
        """
        snapshot = await self.usable(snapshot_id, caller)
        sandbox = await self.source(snapshot, caller)

        async def act() -> Sandbox:
            restored = await disks.restore(
                self.sandboxes, sandbox.id, caller, snapshot.id, despite_lock=despite_lock
            )
            await self.repository.store.write(lambda conn: records.set_head(conn, sandbox.id, snapshot.id))
            return restored

        return await self.operations.perform(snapshot_id, "restore", act)

    async def source(self, snapshot: Snapshot, caller: Caller) -> Sandbox:
        """Returns the sandbox it was taken of. Raises Conflict if that is gone."""
        refuse_other_kind(snapshot, of_volume=False)
        try:
            sandbox = await self.sandboxes.visible(snapshot.sandbox_id, caller)
        except NotFound:
            sandbox = None
        if sandbox is None or sandbox.state in (SandboxState.DESTROYING, SandboxState.DESTROYED):
            raise Conflict(
                why=f"{snapshot.sandbox_id}, of which it was taken, is gone",
                reason="source_gone",
                hint="Make a new sandbox from it (POST /v1/snapshots/{id}/clone).",
            )
        return sandbox

    async def usable(self, snapshot_id: str, caller: Caller, *, of_volume: bool = False) -> Snapshot:
        """Returns a snapshot that can be restored or copied. Raises NotFound, IllegalTransition, and Conflict
        for one that was altered or was taken of the other kind of disk.
        """
        snapshot = await self.get(snapshot_id, caller)
        refuse_other_kind(snapshot, of_volume=of_volume)
        if snapshot.state not in USABLE:
            raise IllegalTransition(
                signal="use",
                state=snapshot.state.value,
                hint=f"Look at its state: GET /v1/snapshots/{snapshot.id}.",
            )
        await self._reconciler(snapshot).check_kept(snapshot_id)
        return snapshot

    async def _take(self, opened: Snapshot, caller: Caller, take: Take) -> Snapshot:
        try:
            disk, took_ms = await take(opened.id)
            return await self._record_kept(opened, disk, took_ms, actor_of(caller))
        except BaseException as error:
            await self.give_up(opened, error, caller)
            raise

    async def _record_kept(self, opened: Snapshot, disk: KeptDisk, took_ms: float, actor: str) -> Snapshot:
        size = disk.at_most_bytes
        if more := max(0, size - opened.size_bytes):
            await self.repository.store.read(
                lambda conn: self.check_room(conn, opened, more_bytes=more, counted=ITSELF)
            )
        changes: dict[str, object] = {
            "size_bytes": size,
            "content": disk.content,
            "rate_msats": self.repository.rate(opened.account, opened.profile, size),
            "took_ms": {"take": took_ms},
        }
        step: Step[Snapshot, Signal] = Step(
            signal=Signal.TAKEN,
            actor=actor,
            reason="taken",
            changes=changes,
            data={"size_bytes": size},
            also=lambda conn: records.set_head(conn, opened.sandbox_id, opened.id),
        )
        return await self.repository.move(opened.id, step)

    def _planned(self, wanted: Wanted, caller: Caller, **of_source: Any) -> Snapshot:
        now = self.clock.now()
        ttl = None if wanted.ttl is None else parse_duration(wanted.ttl, field="ttl")
        return Snapshot(
            id=new_id("snp"),
            version=0,
            created_by=caller.public_key,
            name=wanted.name,
            state=State.TAKING,
            reason="requested",
            labels=dict(wanted.labels),
            created_at=now,
            state_since=now,
            expires_at=None if ttl is None else now + ttl,
            **of_source,
        )

    async def _used(self, sandbox: Sandbox, *, memory: bool) -> int:
        """Estimates the size, so that what cannot be kept is refused before it is taken. A disk that cannot
        be measured counts with its largest possible size.
        """
        if sandbox.handle is None:
            return sandbox.resources.disk_mb * 2**20
        used = await self.sandboxes.backend_of(sandbox).usage(sandbox.handle)
        # Of one that is stopped, what was kept when it stopped.
        of_memory = max(used.memory_bytes, sandbox.terms.memory_mb * 2**20)
        return used.disk_bytes + (of_memory if memory else 0)

    def _reconciler(self, snapshot: Snapshot) -> Snapshots:
        return reconciler_of(self.sandboxes.backends.get(snapshot.backend), snapshot.backend)


def refuse_other_kind(snapshot: Snapshot, *, of_volume: bool) -> None:
    """Refuses to use a volume's snapshot as a sandbox's or the reverse: a volume has no system to start, and
    a sandbox's disk is a layer over one.
    """
    if is_volume_id(snapshot.sandbox_id) is not of_volume:
        raise Conflict(
            why=f"{snapshot.id} was taken of a {'sandbox' if of_volume else 'volume'}",
            reason="other_kind",
            hint="A volume's becomes a volume (POST /v1/volumes, or POST /v1/volumes/{id}/restore), a"
            " sandbox's a sandbox.",
        )


def _refuse_unkept(snapshot: Snapshot) -> None:
    if snapshot.state is not State.KEPT:
        raise IllegalTransition(
            signal="change its time", state=snapshot.state.value, hint="Pay for it first, if it is unpaid."
        )
