"""The use cases of volumes: create, list, change, copy, drop. Slow operations go on without their caller."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field, replace
from weakref import WeakValueDictionary

from sqlalchemy import Connection

from sandboxer.accounts.authority import AuthorityRepository
from sandboxer.artifacts.records import MB, USABLE, Holding, Signal, State
from sandboxer.artifacts.snapshots.records import Snapshot, set_head
from sandboxer.artifacts.snapshots.use_cases import SnapshotUseCases
from sandboxer.artifacts.snapshots.use_cases import Wanted as WantedSnapshot
from sandboxer.artifacts.use_cases import KeptUseCases
from sandboxer.artifacts.volumes import records
from sandboxer.artifacts.volumes.records import Attachment, Volume
from sandboxer.artifacts.volumes.repository import refuse_attached, refuse_in_use, refuse_name
from sandboxer.backends.contract import Backend, KeptDisk, Resources, VolumeMount, Volumes, VolumeUsage
from sandboxer.backends.shared import check_volume_paths
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import IllegalTransition, InvalidRequest, NotAvailable, NotFound
from sandboxer.kernel.values import new_id, value_class
from sandboxer.sandboxes.dependencies import actor_of
from sandboxer.sandboxes.lifecycle import LIVE
from sandboxer.sandboxes.passing import Claim, Endings
from sandboxer.sandboxes.requests import CreateRequest, WantedVolume
from sandboxer.sandboxes.use_cases import creation
from sandboxer.sandboxes.use_cases.admission import Slots
from sandboxer.sandboxes.use_cases.locks import refuse_locked
from sandboxer.sandboxes.use_cases.routes import home_of
from sandboxer.store.repository import Also
from sandboxer.store.rows import Page
from sandboxer.store.steps import Step


@value_class
class Wanted:
    name: str
    # None: as large as what it is copied from.
    size_mb: int | None = None
    from_snapshot: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


# Where a volume is in a sandbox that was made to reach its files, and how long such a one lives at most.
_PLACE, _LIFE = "/volume", "1h"


@value_class
class VolumeUseCases(KeptUseCases[Volume]):
    snapshots: SnapshotUseCases

    async def create(self, wanted: Wanted, caller: Caller, *, also: Also | None = None) -> Volume:
        """Creates an empty volume, or a copy of a snapshot that was taken of a volume."""
        planned = await self._planned(wanted, caller)
        self.reconciler(planned)

        def check(conn: Connection) -> None:
            self.check_room(conn, planned, more_bytes=planned.size_mb * MB)

        opened = await self.repository.create(planned, check=check, also=also)
        return await self.operations.perform(opened.id, "make", lambda: self._make(opened, caller))

    async def get(self, ref: str, caller: Caller) -> Volume:
        """Returns the volume. Raises NotFound, also for somebody else's."""
        volume = await self.repository.find(ref)
        if volume is None or not (caller.is_owner or volume.account == caller.account):
            raise NotFound(what="volume", id=ref)
        return volume

    async def list(
        self, caller: Caller, *, state: State | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[Volume]:
        return await self.repository.store.read(
            lambda conn: records.load_page(
                conn,
                account=None if caller.is_owner else caller.account,
                state=state,
                cursor=cursor,
                limit=limit,
            )
        )

    async def attachments(self, volumes: Sequence[Volume]) -> Mapping[str, Sequence[Attachment]]:
        ids = [one.id for one in volumes]
        return await self.repository.store.read(lambda conn: records.attachments_of(conn, ids))

    async def usage(self, volume: Volume) -> VolumeUsage | None:
        """Returns how much is used; None if there is nothing to measure."""
        if volume.state not in USABLE:
            return None
        try:
            return await self.reconciler(volume).volume_usage(volume.id)
        except NotFound:
            return None

    async def complete(self, request: CreateRequest, caller: Caller) -> CreateRequest:
        """See `sandboxes.admission.Source`."""
        if not request.wanted_volumes:
            return request
        volumes = await self.mounts(request.wanted_volumes, caller)
        first = await self.get(volumes[0].volume_id, caller)
        return replace(request, volumes=volumes, wanted_volumes=(), lies_in=first.backend)

    async def mounts(self, wanted: Sequence[WantedVolume], caller: Caller) -> tuple[VolumeMount, ...]:
        """Returns the mounts for a sandbox of this caller. Whether the volumes are free is decided with its
        record (`attach`).
        """
        found = []
        for one in wanted:
            volume = await self.get(one.volume, caller)
            if volume.account != caller.account:
                raise NotFound(what="volume", id=one.volume)
            found.append(VolumeMount(volume_id=volume.id, path=one.path, is_read_only=one.is_read_only))
        check_volume_paths(found)
        return tuple(found)

    async def change(
        self,
        ref: str,
        caller: Caller,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        size_mb: int | None = None,
    ) -> Volume:
        """Changes settings all at once, whatever has it attached; a field that is None stays as it is. Raises
        Conflict for a name in use.
        """
        volume = await self.get(ref, caller)

        async def act() -> Volume:
            current = await self.get(volume.id, caller)
            self.refuse_over(current)
            changes: dict[str, object] = {}
            if name is not None and name != current.name:
                # Checked before the size changes; decided when the record does.
                await self.repository.store.read(lambda conn: refuse_name(conn, current.account, name))
                changes["name"] = name
            if labels is not None:
                changes["labels"] = dict(labels)
            data: dict[str, object] = {} if size_mb is None else {"size_mb": size_mb}
            if "name" in changes:
                data["former_name"] = current.name
            if size_mb is None or size_mb == current.size_mb:
                return await self.amend(current.id, caller, "changed", changes, data)
            changes |= {"size_mb": size_mb, "rate_msats": self._rate(current.account, size_mb)}
            return await self._resize(current, size_mb, caller, changes, data)

        return await self.operations.perform(volume.id, "change", act)

    async def snapshot(
        self, ref: str, wanted: WantedSnapshot, caller: Caller, *, also: Also | None = None
    ) -> Snapshot:
        """Keeps the volume as it is now; whoever writes to it goes on."""
        volume = await self.get(ref, caller)
        self.refuse_over(volume)
        usage = await self.usage(volume)

        async def take(disk_id: str) -> tuple[KeptDisk, float]:
            began = time.perf_counter()
            kept = await self.reconciler(volume).take_volume(volume.id, disk_id)
            return kept, round((time.perf_counter() - began) * 1e3, 3)

        return await self.snapshots.keep_volume(
            volume_id=volume.id,
            account=volume.account,
            backend=volume.backend,
            parent_id=volume.origin,
            resources=Resources(vcpus=0.0, memory_mb=0, disk_mb=volume.size_mb, pids=0),
            used_bytes=0 if usage is None else usage.used_bytes,
            wanted=wanted,
            caller=caller,
            take=take,
            also=also,
        )

    async def restore(
        self, ref: str, snapshot_id: str, caller: Caller, *, despite_lock: bool = False
    ) -> Volume:
        """Restores it to a snapshot of a volume of this account; its present content is lost, its size stays.

        Raises Conflict while a sandbox that is not stopped has it. `despite_lock` says that a second proof
        allowed it.
        """
        volume = await self.get(ref, caller)
        source = await self.snapshots.usable(snapshot_id, caller, of_volume=True)
        if source.account != volume.account:
            raise NotFound(what="snapshot", id=snapshot_id)

        async def act() -> Volume:
            current = await self.get(volume.id, caller)
            self.refuse_over(current)
            if not despite_lock:
                refuse_locked(current)
            await self.repository.store.read(lambda conn: refuse_in_use(conn, current))
            # The backend checks the same again, and lets nobody attach it meanwhile.
            await self.reconciler(current).restore_volume(current.id, source.id)
            return await self.amend(
                current.id,
                caller,
                "restored",
                {},
                {"snapshot_id": source.id},
                check=None,
                also=lambda conn: set_head(conn, current.id, source.id),
            )

        return await self.operations.perform(volume.id, "restore", act)

    async def descent(self, caller: Caller) -> Sequence[tuple[str, str | None]]:
        """Returns the caller's volumes, each with the snapshot it was copied from."""
        return [(one.id, one.origin) for one in await self.repository.living(caller.account)]

    async def erase(self, record: Volume) -> None:
        await self.reconciler(record).drop_volume(record.id)

    def refuse_drop_stored(self, conn: Connection, record: Volume) -> None:
        refuse_attached(conn, record)

    def refuse_over(self, record: Volume) -> None:
        if record.state not in USABLE:
            raise IllegalTransition(
                signal="change",
                state=record.state.value,
                hint=f"Look at its state: GET /v1/volumes/{record.id}.",
            )

    def reconciler(self, volume: Volume) -> Volumes:
        backend: Backend | None = self.sandboxes.backends.get(volume.backend)
        if not isinstance(backend, Volumes):
            raise NotAvailable(what="volumes", why=f"{volume.backend} has none")
        return backend

    async def _planned(self, wanted: Wanted, caller: Caller) -> Volume:
        dependencies, now = self.sandboxes, self.clock.now()
        backend, size_mb = await home_of(dependencies, caller), wanted.size_mb
        if wanted.from_snapshot is not None:
            source = await self.snapshots.usable(wanted.from_snapshot, caller, of_volume=True)
            backend, size_mb = source.backend, size_mb or source.resources.disk_mb
        if size_mb is None:
            raise InvalidRequest(field="size_mb", why="say how large it shall be")
        return Volume(
            id=new_id("vol"),
            version=0,
            account=caller.account,
            created_by=caller.public_key,
            name=wanted.name,
            state=State.MAKING,
            reason="requested",
            backend=backend,
            size_mb=size_mb,
            origin=wanted.from_snapshot,
            labels=dict(wanted.labels),
            rate_msats=self._rate(caller.account, size_mb),
            created_at=now,
            state_since=now,
        )

    async def _make(self, opened: Volume, caller: Caller) -> Volume:
        try:
            await self.reconciler(opened).make_volume(opened.id, size_mb=opened.size_mb, origin=opened.origin)
            made: Step[Volume, Signal] = Step(signal=Signal.MADE, actor=actor_of(caller), reason="made")
            return await self.repository.move(opened.id, made)
        except BaseException as error:
            await self.give_up(opened, error, caller)
            raise

    async def _resize(
        self,
        volume: Volume,
        size_mb: int,
        caller: Caller,
        changes: Mapping[str, object],
        data: Mapping[str, object],
    ) -> Volume:
        """Resizes so that the disk is never larger than what is paid for and allowed: growth is recorded
        first, shrinking happens on the disk first.
        """
        if (more_mb := size_mb - volume.size_mb) < 0:
            await self.reconciler(volume).resize_volume(volume.id, size_mb=size_mb)
            return await self.amend(volume.id, caller, "changed", changes, data)

        def check(conn: Connection, grown: Volume) -> None:
            self.repository.admit(conn, grown, now=self.clock.now())
            more, counted = more_mb * MB, Holding(count=0, size_bytes=more_mb * MB)
            self.check_room(conn, grown, more=0, more_bytes=more, counted=counted)

        changed = await self.amend(volume.id, caller, "changed", changes, data, check_stored=check)
        try:
            await self.reconciler(volume).resize_volume(volume.id, size_mb=size_mb)
        except BaseException:
            before = {name: getattr(volume, name) for name in changes}
            await self.amend(volume.id, caller, "changed", before, {"size_mb": volume.size_mb})
            raise
        return changed

    def _rate(self, account: str, size_mb: int) -> int:
        return self.repository.rate(account, "", size_mb * MB)


@value_class
class VolumeContent:
    """Reaches the files of a volume, which only sandboxes see: in the one that may write to it, or in one
    that is made for it and is gone afterwards.
    """

    use_cases: VolumeUseCases
    authorities: AuthorityRepository
    slots: Slots
    endings: Endings
    # By id: somebody reaches the files of this volume, and others wait.
    turns: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    @asynccontextmanager
    async def open(self, volume_id: str, caller: Caller, profile: str) -> AsyncIterator[tuple[str, str]]:
        """Yields a sandbox, and where in it the volume is. Raises NotFound, Conflict, and what refuses a
        sandbox.
        """
        volume = await self.use_cases.get(volume_id, caller)
        async with self.turns.setdefault(volume.id, asyncio.Lock()):
            attached = await self.use_cases.attachments([volume])
            for one in attached[volume.id]:
                sandbox = await self.use_cases.sandboxes.visible(one.sandbox_id, caller)
                if sandbox.state in LIVE and not one.is_read_only:
                    yield sandbox.id, one.path
                    return
            async with self._made(volume, caller, profile) as sandbox_id:
                yield sandbox_id, _PLACE

    @asynccontextmanager
    async def _made(self, volume: Volume, caller: Caller, profile: str) -> AsyncIterator[str]:
        mount = WantedVolume(volume=volume.id, path=_PLACE)
        wanted = CreateRequest(profile=profile, network="none", ttl=_LIFE, wanted_volumes=(mount,))
        claim = Claim(self.use_cases.clock.now())
        try:
            async with self.slots.taken(await self.authorities.of(caller)):
                completed = await self.use_cases.complete(wanted, caller)
                made = await creation.create(self.use_cases.sandboxes, completed, caller, also=claim.write)
            self.endings.own(made.id)
            yield made.id
        finally:
            if (left := claim.give_up()) is not None:
                self.endings.soon(left)
                await self.endings.gone(left)
