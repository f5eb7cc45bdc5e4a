"""Kept disks that no sandbox wrote: copies of others, changed or not, and ones filled from nothing.

Each is prepared as a writable disk beside the others, and what is kept is a read-only snapshot of that: the
same that is taken of a sandbox, with the same proof that nobody changed it since.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from sandboxer.backends.contract import Content, KeptDisk, KeptLayers, Resources
from sandboxer.backends.namespaces import admission
from sandboxer.backends.namespaces.ground import SCRATCH, Ground
from sandboxer.backends.namespaces.kept.keeping import Keeping
from sandboxer.backends.namespaces.kept.records import Heritage, Owner
from sandboxer.backends.namespaces.pool import MB
from sandboxer.backends.namespaces.settled import in_thread
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.ids import is_kept_id

# For what a change adds; it mostly removes.
_CHANGE_MB = 64


class Shaping:
    def __init__(self, ground: Ground, keeping: Keeping) -> None:
        self._ground = ground
        self._keeping = keeping

    async def layers(self, disk_id: str, *, suspected: bool) -> KeptLayers:
        heritage = await self._keeping.check(disk_id, suspected=suspected)
        tree = self._ground.image_path(heritage.image)
        return KeptLayers(base=heritage.image, tree=tree, layer=self._ground.copies.path(disk_id) / "upper")

    async def copy(self, disk_id: str, new_id: str, change: Callable[[int], None] | None) -> KeptDisk:
        _check_id(new_id)
        source = await self._keeping.check(disk_id)
        limit_mb = source.at_most_bytes // MB + _CHANGE_MB
        copies = self._ground.copies

        def prepare() -> None:
            copies.prepare(disk_id, new_id, limit_mb=limit_mb, image=source.image)

        return await self._shape(new_id, prepare, change, source, promise_mb=_CHANGE_MB)

    async def fill(self, new_id: str, fill: Callable[[int], None], *, limit_mb: int) -> KeptDisk:
        _check_id(new_id)
        copies = self._ground.copies

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
        """What it may take is promised meanwhile; afterwards what it took."""
        ground = self._ground
        meanwhile = Resources(vcpus=0.0, memory_mb=0, disk_mb=promise_mb, pids=0)
        wanted = ground.promised.with_disk(meanwhile)
        admission.admit(ground.host, ground.settings.overcommit, wanted)
        ground.promised = wanted
        try:
            heritage = await in_thread(ground.threads, self._shape_now, new_id, prepare, change, source)
        finally:
            kept_mb = await in_thread(ground.threads, ground.counting.kept_mb)
            ground.promised = ground.promised.with_kept(kept_mb).with_disk(meanwhile, -1)
        return KeptDisk(disk_id=new_id, content=Content.FILES, at_most_bytes=heritage.at_most_bytes)

    def _shape_now(
        self,
        new_id: str,
        prepare: Callable[[], None],
        change: Callable[[int], None] | None,
        source: Heritage,
    ) -> Heritage:
        ground, copies = self._ground, self._ground.copies
        prepare()
        try:
            if change is not None:
                fd = os.open(copies.prepared(new_id) / "upper", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    change(fd)
                finally:
                    os.close(fd)
            owners = source.owners
            if copies.are_instant:
                owners = (*owners, Owner(copies.prepared_number(new_id), new_id))
            copies.keep_prepared(new_id)
        finally:
            copies.discard(new_id)
        seen = copies.look(new_id)
        heritage = replace(
            source,
            id=new_id,
            owners=owners,
            uuid="" if seen is None else seen.uuid,
            changed=0 if seen is None else seen.changed,
            at_most_bytes=ground.counting.at_most(owners),
            bytes=None,
        )
        try:
            ground.heritages.write(heritage)
        except BaseException:
            copies.drop(new_id)
            raise
        return heritage


def _check_id(new_id: str) -> None:
    if not is_kept_id(new_id):
        raise InvalidRequest(field="disk_id", why="not an id of a kept disk")
