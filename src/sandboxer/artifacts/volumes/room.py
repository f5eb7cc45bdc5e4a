"""Opening the volumes: reconciled, and their keeper at work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandboxer.artifacts.snapshots.charging import KeepCharges
from sandboxer.artifacts.snapshots.desk import SnapshotDesk
from sandboxer.artifacts.volumes.attaching import attach
from sandboxer.artifacts.volumes.book import VolumeBook
from sandboxer.artifacts.volumes.desk import VolumeDesk
from sandboxer.artifacts.volumes.keeper import VolumeKeeper
from sandboxer.artifacts.volumes.policy import VolumePolicy
from sandboxer.kernel.tasks import own_tasks


@asynccontextmanager
async def open_volumes(
    snapshots: SnapshotDesk, charges: KeepCharges | None, policy: VolumePolicy
) -> AsyncIterator[VolumeDesk]:
    desk = VolumeDesk(
        sandboxes=snapshots.sandboxes,
        snapshots=snapshots,
        clock=snapshots.clock,
        book=VolumeBook(snapshots.store, snapshots.clock, charges),
        operations=snapshots.operations,
        policy=policy,
    )
    snapshots.sandboxes.room.book.with_each_new(
        lambda conn, sandbox: attach(conn, sandbox, now=desk.clock.now())
    )
    keeper = VolumeKeeper(desk)
    await keeper.reconcile()
    await keeper.catch_up()
    async with own_tasks() as loops:
        loops.start(keeper.run(), name="keeper of volumes")
        yield desk
