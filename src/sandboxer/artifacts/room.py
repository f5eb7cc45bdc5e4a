"""Everything this room does for a caller, in one place: the edges hold this and nothing else of the room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sandboxer.accounts.authority import AuthorityBook
from sandboxer.artifacts.garbage.collector import Collector
from sandboxer.artifacts.garbage.trees import Trees
from sandboxer.artifacts.images.oci.exporting import Exporting
from sandboxer.artifacts.images.oci.importing import Importing
from sandboxer.artifacts.images.published.book import ImageBook
from sandboxer.artifacts.images.published.desk import ImageDesk
from sandboxer.artifacts.images.published.keeper import ImageKeeper
from sandboxer.artifacts.images.published.listing import Lists
from sandboxer.artifacts.images.published.policy import ImagePolicy
from sandboxer.artifacts.images.published.sharing import ImageSharing
from sandboxer.artifacts.images.published.spawning import Spawning
from sandboxer.artifacts.snapshots.book import SnapshotBook
from sandboxer.artifacts.snapshots.charging import KeepCharges
from sandboxer.artifacts.snapshots.cloning import Cloning
from sandboxer.artifacts.snapshots.desk import SnapshotDesk
from sandboxer.artifacts.snapshots.keeper import SnapshotKeeper
from sandboxer.artifacts.snapshots.policy import SnapshotPolicy
from sandboxer.artifacts.unknown_disks import UnknownKeptDisks, UnknownVolumes
from sandboxer.artifacts.volumes.desk import VolumeDesk
from sandboxer.artifacts.volumes.policy import VolumePolicy
from sandboxer.artifacts.volumes.room import open_volumes
from sandboxer.kernel.budget import Budget
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.tasks import own_tasks
from sandboxer.sandboxes.operations import Operations
from sandboxer.sandboxes.quarantine.use_cases import Quarantine
from sandboxer.sandboxes.room import Room
from sandboxer.sandboxes.slots import Slots
from sandboxer.sandboxes.use_cases import SandboxUseCases
from sandboxer.store.engine import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifacts:
    snapshots: SnapshotDesk
    cloning: Cloning
    images: ImageDesk
    image_sharing: ImageSharing
    spawning: Spawning
    volumes: VolumeDesk
    garbage: Collector
    exporting: Exporting
    importing: Importing


@asynccontextmanager
async def open_artifacts(
    sandboxes: SandboxUseCases,
    store: Store,
    clock: Clock,
    *,
    authorities: AuthorityBook,
    budget: Budget,
    slots: Slots,
    charges: KeepCharges | None,
    policy: SnapshotPolicy,
    image_policy: ImagePolicy,
    spool_dir: Path,
    lists_dir: Path,
    default_profile: str,
    volume_policy: VolumePolicy,
    trees: Trees,
    garbage_grace: timedelta,
) -> AsyncIterator[Artifacts]:
    """`charges` None: nothing is charged here."""
    # Leaving: the loops end first, then what is under way comes to its end.
    async with own_tasks() as operations:
        desk = SnapshotDesk(
            sandboxes=sandboxes,
            store=store,
            clock=clock,
            book=SnapshotBook(store, clock, charges),
            operations=Operations(operations),
            policy=policy,
        )
        keeper = SnapshotKeeper(desk)
        await keeper.reconcile()
        await keeper.catch_up()
        images = ImageDesk(
            sandboxes=sandboxes,
            snapshots=desk,
            clock=clock,
            book=ImageBook(store, clock, charges),
            operations=desk.operations,
            policy=image_policy,
            lists=Lists(lists_dir),
        )
        image_keeper = ImageKeeper(images)
        await image_keeper.reconcile()
        await image_keeper.catch_up()
        garbage = Collector(
            room=sandboxes.room,
            store=store,
            clock=clock,
            trees=trees,
            grace=garbage_grace,
        )
        quarantine = _add_sources(sandboxes.room, store, images)
        await asyncio.to_thread(trees.sweep)
        async with open_volumes(desk, charges, volume_policy) as volumes, own_tasks() as loops:
            loops.start(keeper.run(), name="keeper of snapshots")
            loops.start(image_keeper.run(), name="keeper of images")
            loops.start(garbage.run(), name="collector of garbage")
            # Not before every source is there, and every record was compared.
            loops.start(quarantine.run(), name="quarantine")
            yield Artifacts(
                garbage=garbage,
                snapshots=desk,
                cloning=Cloning(desk=desk, authorities=authorities, slots=slots),
                images=images,
                volumes=volumes,
                image_sharing=ImageSharing(desk=images),
                exporting=Exporting(desk=images),
                importing=Importing(images, spool_dir, default_profile, authorities, budget),
                spawning=Spawning(desk=images, authorities=authorities, slots=slots),
            )


def _add_sources(room: Room, store: Store, images: ImageDesk) -> Quarantine:
    room.quarantine.sources += [
        UnknownKeptDisks(room, store, images.passing),
        UnknownVolumes(room, store),
    ]
    return room.quarantine
