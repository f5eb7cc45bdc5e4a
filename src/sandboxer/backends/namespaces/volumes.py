"""Volumes: disks in the pool that belong to no sandbox, made, sized, copied and dropped here.

Each lies in the pool as a sandbox's disk does, with a limit of its own; the launcher lays it over a path
(`guest/launcher/volumes.c`). What is taken of one is a kept disk like any other, over no image.
"""

from __future__ import annotations

import os

from sandboxer.backends.contract import Content, KeptDisk, Order, VolumeMount, VolumeUsage
from sandboxer.backends.namespaces import btrfs
from sandboxer.backends.namespaces.dependencies import VOLUME, BackendDependencies
from sandboxer.backends.namespaces.kept.disks import Keeping
from sandboxer.backends.namespaces.kept.records import Heritage, check_kept_id
from sandboxer.backends.namespaces.pool import BIRTH, MB
from sandboxer.backends.shared import check_folder_paths, check_volume_paths, opened
from sandboxer.kernel.errors import Conflict, InvalidRequest, NotFound
from sandboxer.kernel.tasks import in_thread
from sandboxer.kernel.values import is_volume_id

LEAST_MB = 16


class VolumeKeeping:
    def __init__(self, dependencies: BackendDependencies, keeping: Keeping) -> None:
        self._dependencies = dependencies
        self._keeping = keeping

    async def make(self, volume_id: str, *, size_mb: int, origin: str | None) -> None:
        dependencies = self._dependencies
        if not is_volume_id(volume_id):
            raise InvalidRequest(field="volume_id", why="not an id of a volume")
        _check_size(size_mb)
        if dependencies.pool.has_disk(volume_id):
            raise Conflict(why=f"{volume_id} exists already")
        source = None if origin is None else await self._origin(origin, size_mb)
        self._promise(size_mb)
        try:
            await in_thread(dependencies.threads, self._make_now, volume_id, size_mb, source)
        except BaseException:
            self._take_back(size_mb)
            raise

    async def resize(self, volume_id: str, *, size_mb: int) -> None:
        dependencies = self._dependencies
        _check_size(size_mb)
        usage = await self.usage(volume_id)
        if size_mb * MB < usage.limit_bytes:
            await in_thread(dependencies.threads, self._flush_now, volume_id)
            usage = await self.usage(volume_id)
        if usage.used_bytes > size_mb * MB:
            raise Conflict(
                why=f"{volume_id} holds {-(-usage.used_bytes // MB)} MB",
                reason="too_small",
                hint="Remove something from it first, or ask for more.",
            )
        before_mb = usage.limit_bytes // MB
        if size_mb > before_mb:
            self._promise(size_mb - before_mb)
        try:
            await in_thread(dependencies.threads, dependencies.pool.set_limit, volume_id, size_mb)
        except BaseException:
            if size_mb > before_mb:
                self._take_back(size_mb - before_mb)
            raise
        if size_mb < before_mb:
            self._take_back(before_mb - size_mb)

    async def take(self, volume_id: str, disk_id: str) -> KeptDisk:
        _check_there(self._dependencies, volume_id)
        check_kept_id(disk_id)
        dependencies = self._dependencies
        dependencies.check_not_tight()
        if volume_id in dependencies.exchanged:
            raise _being_restored(volume_id)
        dependencies.being_copied[volume_id] += 1
        try:
            heritage = await in_thread(dependencies.threads, self._take_now, volume_id, disk_id)
        finally:
            dependencies.being_copied[volume_id] -= 1
            if not dependencies.being_copied[volume_id]:
                del dependencies.being_copied[volume_id]
        return KeptDisk(disk_id=disk_id, content=Content.FILES, at_most_bytes=heritage.at_most_bytes)

    async def restore(self, volume_id: str, disk_id: str) -> None:
        dependencies = self._dependencies
        usage = await self.usage(volume_id)
        size_mb = usage.limit_bytes // MB
        source = await self._origin(disk_id, size_mb or None, field="snapshot")
        left_mb = await in_thread(dependencies.threads, dependencies.counting.left_behind_mb, volume_id)
        wanted = dependencies.promised.with_kept(dependencies.promised.kept_mb + left_mb)
        dependencies.check_fits(wanted)
        self._refuse_attached(volume_id)
        if volume_id in dependencies.being_copied:
            raise Conflict(
                why=f"a snapshot of {volume_id} is being taken",
                reason="snapshotting",
                hint="Try again in a moment.",
            )
        dependencies.exchanged.add(volume_id)
        try:
            kept_mb = await in_thread(dependencies.threads, self._exchange_now, volume_id, size_mb, source)
        finally:
            dependencies.exchanged.discard(volume_id)
        dependencies.promised = dependencies.promised.with_kept(kept_mb)

    async def drop(self, volume_id: str) -> None:
        if not is_volume_id(volume_id):
            raise NotFound(what="volume", id=volume_id)
        dependencies = self._dependencies
        self._refuse_attached(volume_id)
        size_mb = (
            dependencies.pool.usage(volume_id).limit_bytes // MB
            if dependencies.pool.has_disk(volume_id)
            else 0
        )
        kept_mb = await in_thread(dependencies.threads, self._drop_now, volume_id)
        self._take_back(size_mb)
        dependencies.promised = dependencies.promised.with_kept(kept_mb)

    async def usage(self, volume_id: str) -> VolumeUsage:
        _check_there(self._dependencies, volume_id)
        return await in_thread(self._dependencies.threads, self._usage_now, volume_id)

    async def all(self) -> list[str]:
        return await in_thread(self._dependencies.threads, self._dependencies.pool.volume_ids)

    async def _origin(self, disk_id: str, size_mb: int | None, *, field: str = "from_snapshot") -> Heritage:
        """`size_mb` None: nothing limits it."""
        heritage = await self._keeping.check(disk_id)
        if heritage.image != VOLUME:
            raise InvalidRequest(field=field, why=f"{disk_id} was not taken of a volume")
        if size_mb is not None:
            await self._keeping.check_room(heritage, size_mb, field="size_mb")
        return heritage

    def _make_now(self, volume_id: str, size_mb: int, source: Heritage | None) -> None:
        copies, heritages, pool = (
            self._dependencies.copies,
            self._dependencies.heritages,
            self._dependencies.pool,
        )
        if source is None:
            copies.prepare_empty(volume_id, limit_mb=size_mb, image=VOLUME)
        else:
            copies.prepare(source.id, volume_id, limit_mb=size_mb, image=VOLUME)
        try:
            if source is not None:
                heritages.write(Heritage(id=volume_id, owners=source.owners))
            os.chmod(copies.prepared(volume_id), 0o755)
            os.rename(pool.path / f"{BIRTH}{volume_id}" / "disk", pool.disk(volume_id))
        except BaseException:
            heritages.remove(volume_id)
            raise
        finally:
            copies.discard(volume_id)

    def _exchange_now(self, volume_id: str, size_mb: int, source: Heritage) -> int:
        dependencies = self._dependencies
        dependencies.copies.prepare(source.id, volume_id, limit_mb=size_mb, image=VOLUME)
        try:
            os.chmod(dependencies.copies.prepared(volume_id), 0o755)
            dependencies.heritages.write_either(volume_id, source.owners)
            dependencies.copies.swap(volume_id)
            dependencies.heritages.write(Heritage(id=volume_id, owners=source.owners))
        finally:
            dependencies.copies.discard(volume_id)
        return dependencies.counting.kept_mb()

    def _take_now(self, volume_id: str, disk_id: str) -> Heritage:
        dependencies = self._dependencies
        owners = dependencies.counting.inherited(volume_id)
        dependencies.copies.keep(volume_id, disk_id)
        return dependencies.record_kept(Heritage(id=disk_id, owners=owners, image=VOLUME))

    def _drop_now(self, volume_id: str) -> int:
        dependencies = self._dependencies
        dependencies.pool.remove_disk(volume_id)
        # Last: as long as anything is left, the record is.
        dependencies.heritages.remove(volume_id)
        return dependencies.counting.kept_mb()

    def _flush_now(self, volume_id: str) -> None:
        with opened(self._dependencies.pool.disk(volume_id)) as fd:
            btrfs.flush(fd)

    def _usage_now(self, volume_id: str) -> VolumeUsage:
        dependencies = self._dependencies
        own = dependencies.pool.usage(volume_id)
        older = dependencies.heritages.known.get(volume_id)
        inherited = 0 if older is None else dependencies.counting.at_most(older.owners)
        return VolumeUsage(used_bytes=own.used_bytes + inherited, limit_bytes=own.limit_bytes)

    def _refuse_attached(self, volume_id: str) -> None:
        if holder := next(iter(self._dependencies.attached(volume_id)), None):
            raise Conflict(
                why=f"{volume_id} is attached to {holder}",
                reason="attached",
                sandbox_id=holder,
                hint=f"Remove that sandbox first: DELETE /v1/sandboxes/{holder}.",
            )
        if volume_id in self._dependencies.exchanged:
            raise _being_restored(volume_id)

    def _promise(self, size_mb: int) -> None:
        self._dependencies.take_promise(self._dependencies.promised.with_disk(size_mb))

    def _take_back(self, size_mb: int) -> None:
        self._dependencies.promised = self._dependencies.promised.with_disk(-size_mb)


def check_attachable(dependencies: BackendDependencies, order: Order) -> None:
    """Whether its volumes are there, and free for it. No await may come before the order's box is known."""
    check_volume_paths(order.volumes)
    check_folder_paths(order.folders)
    for mount in order.volumes:
        _check_there(dependencies, mount.volume_id)
        if mount.volume_id in dependencies.exchanged:
            raise _being_restored(mount.volume_id)
        _refuse_attached(dependencies, order.sandbox_id, mount)


def _check_there(dependencies: BackendDependencies, volume_id: str) -> None:
    if not is_volume_id(volume_id) or not dependencies.pool.has_disk(volume_id):
        raise NotFound(what="volume", id=volume_id)


def _check_size(size_mb: int) -> None:
    if size_mb < LEAST_MB:
        raise InvalidRequest(field="size_mb", why=f"at least {LEAST_MB}")


def _refuse_attached(dependencies: BackendDependencies, sandbox_id: str, mount: VolumeMount) -> None:
    for holder, is_read_only in dependencies.attached(mount.volume_id).items():
        if holder != sandbox_id and not (is_read_only and mount.is_read_only):
            how = "read-only" if is_read_only else "read-write"
            raise Conflict(
                why=f"{mount.volume_id} is attached to {holder}, {how}",
                reason="attached",
                hint=f"Remove that sandbox first (DELETE /v1/sandboxes/{holder}), or let all of them read it"
                " only (ro).",
            )


def _being_restored(volume_id: str) -> Conflict:
    return Conflict(why=f"{volume_id} is being restored", reason="restoring", hint="Try again in a moment.")
