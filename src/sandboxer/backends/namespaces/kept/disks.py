"""Makes, restores and drops kept disks, and counts the space that only they hold.

`Shaping` makes kept disks that no sandbox wrote: copies of others, changed or not, and ones filled from
nothing. Each is prepared as a writable disk beside the others, and what is kept is a read-only snapshot of
that: the same that is taken of a sandbox, with the same proof that nobody changed it since.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

from sandboxer.backends.contract import Content, KeptDisk, KeptLayers, KeptSizes, Order, Trust
from sandboxer.backends.launch import DiskBirths
from sandboxer.backends.namespaces.box import Box
from sandboxer.backends.namespaces.dependencies import SCRATCH, BackendDependencies
from sandboxer.backends.namespaces.kept import renewal
from sandboxer.backends.namespaces.kept.copies import Spares
from sandboxer.backends.namespaces.kept.records import Heritage, Owner, check_kept_id
from sandboxer.backends.namespaces.kept.renewal import Renewal
from sandboxer.backends.namespaces.pool import MB, NAMESERVER
from sandboxer.backends.namespaces.removal import Ending
from sandboxer.backends.shared import opened
from sandboxer.kernel.errors import Conflict, InvalidRequest, NotFound, or_not_found
from sandboxer.kernel.tasks import in_thread
from sandboxer.kernel.values import is_kept_id

# Plain folders are copied file by file, with the processes held still meanwhile.
_FREEZE_TIMEOUT_S = 5.0
# For what a change adds; it mostly removes.
_CHANGE_MB = 64


class Keeping:
    def __init__(self, dependencies: BackendDependencies, ending: Ending) -> None:
        self._dependencies = dependencies
        self._ending = ending
        self._renewals: dict[str, Renewal] = {}
        self._spares = Spares(dependencies.pool, dependencies.copies)

    async def take(self, box: Box, disk_id: str) -> KeptDisk:
        check_kept_id(disk_id)
        self._dependencies.check_not_tight()
        heritage = await in_thread(self._dependencies.threads, self._take_now, box, disk_id)
        return KeptDisk(disk_id=disk_id, content=Content.FILES, at_most_bytes=heritage.at_most_bytes)

    async def drop(self, disk_id: str) -> None:
        if not is_kept_id(disk_id):
            raise NotFound(what="kept disk", id=disk_id)
        kept_mb = await in_thread(self._dependencies.threads, self._drop_now, disk_id)
        self._dependencies.promised = self._dependencies.promised.with_kept(kept_mb)
        self._renewals.pop(disk_id, None)

    async def check(self, disk_id: str, *, suspected: bool = False) -> Heritage:
        """Checks that a kept disk is there and unchanged; with `suspected`, only that it is there."""
        heritage = self._dependencies.heritages.find_kept(disk_id) if self._spares.has(disk_id) else None
        if heritage is not None:
            # Who takes a copy made ahead needs no look of its own: it was checked before it was copied.
            return heritage
        return await in_thread(self._dependencies.threads, self._check_now, disk_id, suspected)

    async def check_room(self, heritage: Heritage, disk_mb: int, *, field: str = "disk_mb") -> None:
        """Refuses a copy onto a disk that is smaller than what it holds: a copy's limit counts only what it
        writes itself. By copies of copies a small disk would come to hold any amount, and over an imported
        image that is dropped afterwards it would keep all of it for the price of the small disk.
        """
        if (held := self._dependencies.counting.at_most(heritage.owners)) > disk_mb * MB:
            held = min(held, (await self.sizes(heritage.id)).referenced_bytes)
        if held > disk_mb * MB:
            raise InvalidRequest(
                field=field, why=f"{heritage.id} holds {-(-held // MB)} MB, and the disk has {disk_mb} MB"
            )

    async def sizes(self, disk_id: str) -> KeptSizes:
        return await in_thread(self._dependencies.threads, self._sizes_now, disk_id)

    async def kept(self) -> list[str]:
        heritages, copies = self._dependencies.heritages, self._dependencies.copies
        found = await in_thread(self._dependencies.threads, copies.ids)
        return sorted({*found, *(one.id for one in heritages.kept())})

    @asynccontextmanager
    async def ahead(self, disk_id: str, count: int) -> AsyncIterator[None]:
        """Prepares so many copies of this disk, so that sandboxes made while inside do not wait for
        theirs.
        """
        dependencies = self._dependencies
        await self.check(disk_id)
        if not dependencies.copies.are_instant:
            yield
            return
        names = self._spares.names(disk_id, count)
        try:
            await in_thread(dependencies.threads, self._spares.make, disk_id, names)
            yield
        finally:
            await in_thread(dependencies.threads, self._spares.discard, disk_id, names)

    def births_now(self, order: Order, heritage: Heritage) -> DiskBirths:
        """Returns what the launcher has to make for a sandbox that begins as a copy. Blocks."""
        dependencies = self._dependencies
        dependencies.heritages.write(Heritage(id=order.sandbox_id, owners=heritage.owners))
        if not dependencies.copies.are_instant:
            dependencies.copies.place(heritage.id, order.sandbox_id, image=heritage.image)
        disk, limit_mb = dependencies.pool.disk(order.sandbox_id), order.resources.disk_mb
        if self._spares.take(heritage.id, disk):
            acts = dependencies.pool.new_limit(order.sandbox_id, limit_mb)
        else:
            self._check_now(heritage.id)
            acts = dependencies.pool.copy_births(
                order.sandbox_id, dependencies.copies.path(heritage.id), limit_mb=limit_mb
            )
        acts += renewal.births(disk, self._renewal_of(heritage), order.hostname)
        if order.trust is Trust.SEMI:
            acts.append(("renew", f"{disk}/./upper/etc/resolv.conf", NAMESERVER))
        return acts

    async def replace_disk(self, box: Box, disk_id: str) -> Box:
        """Replaces the disk of a stopped sandbox by a copy of the kept one. Refuses before anything of it
        is touched.
        """
        dependencies = self._dependencies
        heritage = await self.check(disk_id)
        dependencies.image_path(heritage.image)
        await self.check_room(heritage, box.disk_mb)
        left_mb = await in_thread(dependencies.threads, dependencies.counting.left_behind_mb, box.sandbox_id)
        wanted = dependencies.promised.with_kept(dependencies.promised.kept_mb + left_mb)
        dependencies.check_fits(wanted)
        await in_thread(dependencies.threads, self._prepare_now, box, heritage)
        try:
            if dependencies.has_processes(box):
                await self._ending.stop(box.sandbox_id, discards_disk=True)
        except BaseException:
            await in_thread(dependencies.threads, dependencies.copies.discard, box.sandbox_id)
            raise
        stopped = replace(dependencies.known[box.sandbox_id], image=heritage.image)
        kept_mb = await in_thread(dependencies.threads, self._swap_now, stopped, heritage)
        dependencies.promised = dependencies.promised.with_kept(kept_mb)
        dependencies.known[box.sandbox_id] = stopped
        return stopped

    def _take_now(self, box: Box, disk_id: str) -> Heritage:
        dependencies = self._dependencies
        if not dependencies.pool.has_disk(box.sandbox_id):
            raise NotFound(what="disk of sandbox", id=box.sandbox_id)
        owners = dependencies.counting.inherited(box.sandbox_id)
        if dependencies.copies.are_instant:
            dependencies.copies.keep(box.sandbox_id, disk_id)
        else:
            self._copy_still(box, disk_id)
        image = dependencies.pool.image_of(box.sandbox_id) or box.image
        return dependencies.record_kept(Heritage(id=disk_id, owners=owners, image=image))

    def _copy_still(self, box: Box, disk_id: str) -> None:
        dependencies = self._dependencies
        moves = dependencies.has_processes(box) and not dependencies.cgroups.is_frozen(box.sandbox_id)
        if moves:
            dependencies.cgroups.set_frozen(box.sandbox_id, True, _FREEZE_TIMEOUT_S)
        try:
            dependencies.copies.keep(box.sandbox_id, disk_id)
        finally:
            if moves:
                dependencies.cgroups.set_frozen(box.sandbox_id, False, _FREEZE_TIMEOUT_S)

    def _drop_now(self, disk_id: str) -> int:
        self._dependencies.copies.drop(disk_id)
        # Last: as long as anything is left, the record is.
        self._dependencies.heritages.remove(disk_id)
        return self._dependencies.counting.kept_mb()

    def _check_now(self, disk_id: str, suspected: bool = False) -> Heritage:
        dependencies = self._dependencies
        heritage = dependencies.heritages.find_kept(disk_id)
        if heritage is None or not dependencies.copies.has(disk_id):
            raise NotFound(what="kept disk", id=disk_id)
        if suspected:
            return heritage
        with _gone_is_not_found(disk_id):
            seen = dependencies.copies.look(disk_id)
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
        if (found := self._renewals.get(heritage.id)) is None:
            with _gone_is_not_found(heritage.id):
                found = self._renewals[heritage.id] = renewal.look_for(
                    self._dependencies.copies.path(heritage.id)
                )
        return found

    def _prepare_now(self, box: Box, heritage: Heritage) -> None:
        dependencies = self._dependencies
        dependencies.copies.prepare(heritage.id, box.sandbox_id, limit_mb=box.disk_mb, image=heritage.image)
        dependencies.heritages.write_either(box.sandbox_id, heritage.owners)

    def _swap_now(self, stopped: Box, heritage: Heritage) -> int:
        dependencies = self._dependencies
        dependencies.copies.swap(stopped.sandbox_id)
        dependencies.boxes.write(stopped)
        dependencies.heritages.write(Heritage(id=stopped.sandbox_id, owners=heritage.owners))
        dependencies.copies.discard(stopped.sandbox_id)
        return dependencies.counting.kept_mb()

    def _sizes_now(self, disk_id: str) -> KeptSizes:
        dependencies = self._dependencies
        heritage = or_not_found(dependencies.heritages.find_kept(disk_id), what="kept disk", id=disk_id)
        if heritage.bytes is None:
            heritage = replace(heritage, bytes=dependencies.copies.measure(disk_id))
            dependencies.heritages.amend(heritage)
        with _gone_is_not_found(disk_id):
            alone = dependencies.counting.alone(heritage)
        return KeptSizes(referenced_bytes=heritage.bytes or 0, exclusive_bytes=alone)


@contextmanager
def _gone_is_not_found(disk_id: str) -> Iterator[None]:
    """Raises NotFound for a disk that is dropped while it is read."""
    try:
        yield
    except FileNotFoundError:
        raise NotFound(what="kept disk", id=disk_id) from None


class Shaping:
    def __init__(self, dependencies: BackendDependencies, keeping: Keeping) -> None:
        self._dependencies = dependencies
        self._keeping = keeping

    async def layers(self, disk_id: str, *, suspected: bool) -> KeptLayers:
        heritage = await self._keeping.check(disk_id, suspected=suspected)
        tree = self._dependencies.image_path(heritage.image)
        return KeptLayers(
            base=heritage.image, tree=tree, layer=self._dependencies.copies.path(disk_id) / "upper"
        )

    async def copy(self, disk_id: str, new_id: str, change: Callable[[int], None] | None) -> KeptDisk:
        check_kept_id(new_id)
        source = await self._keeping.check(disk_id)
        limit_mb = source.at_most_bytes // MB + _CHANGE_MB
        copies = self._dependencies.copies

        def prepare() -> None:
            copies.prepare(disk_id, new_id, limit_mb=limit_mb, image=source.image)

        return await self._shape(new_id, prepare, change, source, promise_mb=_CHANGE_MB)

    async def fill(self, new_id: str, fill: Callable[[int], None], *, limit_mb: int) -> KeptDisk:
        check_kept_id(new_id)
        copies = self._dependencies.copies

        def prepare() -> None:
            copies.prepare_empty(new_id, limit_mb=limit_mb, image=SCRATCH)

        empty = Heritage(id=new_id, image=SCRATCH)
        return await self._shape(new_id, prepare, fill, empty, promise_mb=limit_mb)

    async def _shape(
        self,
        new_id: str,
        prepare: Callable[[], None],
        change: Callable[[int], None] | None,
        source: Heritage,
        *,
        promise_mb: int,
    ) -> KeptDisk:
        """Makes a kept disk. The space it may take is promised meanwhile; afterwards what it took."""
        dependencies = self._dependencies
        dependencies.take_promise(dependencies.promised.with_disk(promise_mb))
        try:
            heritage = await in_thread(dependencies.threads, self._shape_now, new_id, prepare, change, source)
        finally:
            kept_mb = await in_thread(dependencies.threads, dependencies.counting.kept_mb)
            dependencies.promised = dependencies.promised.with_kept(kept_mb).with_disk(-promise_mb)
        return KeptDisk(disk_id=new_id, content=Content.FILES, at_most_bytes=heritage.at_most_bytes)

    def _shape_now(
        self,
        new_id: str,
        prepare: Callable[[], None],
        change: Callable[[int], None] | None,
        source: Heritage,
    ) -> Heritage:
        copies = self._dependencies.copies
        prepare()
        try:
            if change is not None:
                with opened(copies.prepared(new_id) / "upper") as fd:
                    change(fd)
            owners = source.owners
            if copies.are_instant:
                owners = (*owners, Owner(copies.prepared_number(new_id), new_id))
            copies.keep_prepared(new_id)
        finally:
            copies.discard(new_id)
        return self._dependencies.record_kept(Heritage(id=new_id, owners=owners, image=source.image))
