"""Taking, restoring and dropping kept disks, and counting the space that is left to nobody but them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

from sandboxer.backends.contract import Content, KeptDisk, KeptSizes, Order
from sandboxer.backends.namespaces import admission
from sandboxer.backends.namespaces.box import Box
from sandboxer.backends.namespaces.ending import Ending
from sandboxer.backends.namespaces.ground import Ground
from sandboxer.backends.namespaces.kept import renewal
from sandboxer.backends.namespaces.kept.records import Heritage
from sandboxer.backends.namespaces.kept.renewal import Renewal
from sandboxer.backends.namespaces.kept.spares import Spares
from sandboxer.backends.namespaces.pool import DiskBirths
from sandboxer.backends.namespaces.settled import in_thread
from sandboxer.kernel.errors import Conflict, InvalidRequest, NotFound
from sandboxer.kernel.ids import is_kept_id

# Plain folders are copied file by file, with the processes held still meanwhile.
_FREEZE_TIMEOUT_S = 5.0


class Keeping:
    def __init__(self, ground: Ground, ending: Ending) -> None:
        self._ground = ground
        self._ending = ending
        self._renewals: dict[str, Renewal] = {}
        self._spares = Spares(ground.pool, ground.copies)

    async def take(self, box: Box, disk_id: str) -> KeptDisk:
        if not is_kept_id(disk_id):
            raise InvalidRequest(field="disk_id", why="not an id of a kept disk")
        heritage = await in_thread(self._ground.threads, self._take_now, box, disk_id)
        return KeptDisk(disk_id=disk_id, content=Content.FILES, at_most_bytes=heritage.at_most_bytes)

    async def drop(self, disk_id: str) -> None:
        if not is_kept_id(disk_id):
            raise NotFound(what="kept disk", id=disk_id)
        kept_mb = await in_thread(self._ground.threads, self._drop_now, disk_id)
        self._ground.promised = self._ground.promised.with_kept(kept_mb)
        self._renewals.pop(disk_id, None)

    async def check(self, disk_id: str, *, suspected: bool = False) -> Heritage:
        """`suspected`: only that there is one."""
        heritage = self._ground.heritages.find_kept(disk_id) if self._spares.has(disk_id) else None
        if heritage is not None:
            # Who takes a copy made ahead needs no look of its own: it was checked before it was copied.
            return heritage
        return await in_thread(self._ground.threads, self._check_now, disk_id, suspected)

    async def sizes(self, disk_id: str) -> KeptSizes:
        return await in_thread(self._ground.threads, self._sizes_now, disk_id)

    async def kept(self) -> list[str]:
        heritages, copies = self._ground.heritages, self._ground.copies
        found = await in_thread(self._ground.threads, copies.ids)
        return sorted({*found, *(one.id for one in heritages.kept())})

    @asynccontextmanager
    async def ahead(self, disk_id: str, count: int) -> AsyncIterator[None]:
        """Within it, so many sandboxes may begin as copies of this one without a wait of their own."""
        ground = self._ground
        await self.check(disk_id)
        if not ground.copies.are_instant:
            yield
            return
        names = self._spares.names(disk_id, count)
        try:
            await in_thread(ground.threads, self._spares.make, disk_id, names)
            yield
        finally:
            await in_thread(ground.threads, self._spares.discard, disk_id, names)

    def births_now(self, order: Order, heritage: Heritage) -> DiskBirths:
        """What the launcher is to make for a sandbox that begins as a copy. Blocks."""
        ground = self._ground
        ground.heritages.write(Heritage(id=order.sandbox_id, owners=heritage.owners))
        if not ground.copies.are_instant:
            ground.copies.place(heritage.id, order.sandbox_id, image=heritage.image)
        disk, limit_mb = ground.pool.disk(order.sandbox_id), order.resources.disk_mb
        if self._spares.take(heritage.id, disk):
            acts = ground.pool.new_limit(order.sandbox_id, limit_mb)
        else:
            self._check_now(heritage.id)
            acts = ground.pool.copy_births(
                order.sandbox_id, ground.copies.path(heritage.id), limit_mb=limit_mb
            )
        return acts + renewal.births(disk, self._renewal_of(heritage), order.hostname)

    async def replace_disk(self, box: Box, disk_id: str) -> Box:
        """The sandbox, stopped, on a copy of the kept disk. Refused before anything of it is touched."""
        ground = self._ground
        heritage = await self.check(disk_id)
        ground.image_path(heritage.image)
        left_mb = await in_thread(ground.threads, ground.counting.left_behind_mb, box.sandbox_id)
        wanted = ground.promised.with_kept(ground.promised.kept_mb + left_mb)
        admission.admit(ground.host, ground.settings.overcommit, wanted)
        await in_thread(ground.threads, self._prepare_now, box, heritage)
        try:
            if ground.has_processes(box):
                await self._ending.stop(box.sandbox_id, discards_disk=True)
        except BaseException:
            await in_thread(ground.threads, ground.copies.discard, box.sandbox_id)
            raise
        stopped = replace(ground.known[box.sandbox_id], image=heritage.image)
        kept_mb = await in_thread(ground.threads, self._swap_now, stopped, heritage)
        ground.promised = ground.promised.with_kept(kept_mb)
        ground.known[box.sandbox_id] = stopped
        return stopped

    def _take_now(self, box: Box, disk_id: str) -> Heritage:
        ground = self._ground
        if not ground.pool.has_disk(box.sandbox_id):
            raise NotFound(what="disk of sandbox", id=box.sandbox_id)
        owners = ground.counting.inherited(box.sandbox_id)
        if ground.copies.are_instant:
            ground.copies.keep(box.sandbox_id, disk_id)
        else:
            self._copy_still(box, disk_id)
        seen = ground.copies.look(disk_id)
        heritage = Heritage(
            id=disk_id,
            owners=owners,
            image=ground.pool.image_of(box.sandbox_id) or box.image,
            uuid="" if seen is None else seen.uuid,
            changed=0 if seen is None else seen.changed,
            at_most_bytes=ground.counting.at_most(owners),
        )
        try:
            ground.heritages.write(heritage)
        except BaseException:
            ground.copies.drop(disk_id)
            raise
        return heritage

    def _copy_still(self, box: Box, disk_id: str) -> None:
        ground = self._ground
        moves = ground.has_processes(box) and not ground.cgroups.is_frozen(box.sandbox_id)
        if moves:
            ground.cgroups.set_frozen(box.sandbox_id, True, _FREEZE_TIMEOUT_S)
        try:
            ground.copies.keep(box.sandbox_id, disk_id)
        finally:
            if moves:
                ground.cgroups.set_frozen(box.sandbox_id, False, _FREEZE_TIMEOUT_S)

    def _drop_now(self, disk_id: str) -> int:
        self._ground.copies.drop(disk_id)
        # Last: as long as anything is left, the record is.
        self._ground.heritages.remove(disk_id)
        return self._ground.counting.kept_mb()

    def _check_now(self, disk_id: str, suspected: bool = False) -> Heritage:
        ground = self._ground
        heritage = ground.heritages.find_kept(disk_id)
        if heritage is None or not ground.copies.has(disk_id):
            raise NotFound(what="kept disk", id=disk_id)
        if suspected:
            return heritage
        with _gone_is_not_found(disk_id):
            seen = ground.copies.look(disk_id)
        if seen is not None:
            found = (seen.uuid, seen.changed, seen.is_read_only)
            if found != (heritage.uuid, heritage.changed, True):
                raise Conflict(
                    why=f"{disk_id} is not what was kept: someone changed it on the host",
                    reason="altered",
                    hint="Drop it; it cannot be trusted any more.",
                )
        return heritage

    def _renewal_of(self, heritage: Heritage) -> Renewal:
        found = self._renewals.get(heritage.id)
        if found is None:
            with _gone_is_not_found(heritage.id):
                found = self._renewals[heritage.id] = renewal.look_for(self._ground.copies.path(heritage.id))
        return found

    def _prepare_now(self, box: Box, heritage: Heritage) -> None:
        ground = self._ground
        ground.copies.prepare(heritage.id, box.sandbox_id, limit_mb=box.disk_mb, image=heritage.image)
        older = ground.heritages.known.get(box.sandbox_id)
        both = {*heritage.owners, *(() if older is None else older.owners)}
        # Either disk may be there after a crash.
        ground.heritages.write(Heritage(id=box.sandbox_id, owners=tuple(sorted(both))))

    def _swap_now(self, stopped: Box, heritage: Heritage) -> int:
        ground = self._ground
        ground.copies.swap(stopped.sandbox_id)
        ground.boxes.write(stopped)
        ground.heritages.write(Heritage(id=stopped.sandbox_id, owners=heritage.owners))
        ground.copies.discard(stopped.sandbox_id)
        return ground.counting.kept_mb()

    def _sizes_now(self, disk_id: str) -> KeptSizes:
        ground = self._ground
        heritage = ground.heritages.find_kept(disk_id)
        if heritage is None:
            raise NotFound(what="kept disk", id=disk_id)
        if heritage.bytes is None:
            heritage = replace(heritage, bytes=ground.copies.measure(disk_id))
            ground.heritages.amend(heritage)
        with _gone_is_not_found(disk_id):
            alone = ground.counting.alone(heritage)
        return KeptSizes(referenced_bytes=heritage.bytes or 0, exclusive_bytes=alone)


@contextmanager
def _gone_is_not_found(disk_id: str) -> Iterator[None]:
    """It may be dropped while it is looked at."""
    try:
        yield
    except FileNotFoundError:
        raise NotFound(what="kept disk", id=disk_id) from None
