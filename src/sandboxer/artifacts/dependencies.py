"""Builds the use cases of snapshots, images and volumes and starts their loops. The edges hold these and
nothing else of the package.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sandboxer.accounts.authority import AuthorityRepository
from sandboxer.artifacts.charges import KeepCharges
from sandboxer.artifacts.clones import Cloning, Spawning
from sandboxer.artifacts.garbage import Collector, Trees
from sandboxer.artifacts.images.oci.export import Exporting
from sandboxer.artifacts.images.oci.upload import Importing
from sandboxer.artifacts.images.published.contents import Lists
from sandboxer.artifacts.images.published.grants import ImageSharing
from sandboxer.artifacts.images.published.policy import ImagePolicy
from sandboxer.artifacts.images.published.reconciler import ImageReconciler
from sandboxer.artifacts.images.published.repository import ImageRepository
from sandboxer.artifacts.images.published.use_cases import ImageUseCases
from sandboxer.artifacts.policy import KeepPolicy
from sandboxer.artifacts.snapshots.reconciler import SnapshotReconciler
from sandboxer.artifacts.snapshots.repository import SnapshotRepository
from sandboxer.artifacts.snapshots.use_cases import SnapshotUseCases
from sandboxer.artifacts.unknown_disks import UnknownKeptDisks, UnknownVolumes
from sandboxer.artifacts.volumes.reconciler import VolumeReconciler
from sandboxer.artifacts.volumes.repository import VolumeRepository, attach
from sandboxer.artifacts.volumes.use_cases import VolumeUseCases
from sandboxer.kernel.budget import Budget
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.tasks import own_tasks
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.operations import Operations
from sandboxer.sandboxes.quarantine import Quarantine
from sandboxer.sandboxes.use_cases.admission import Slots
from sandboxer.sandboxes.use_cases.facade import SandboxUseCases
from sandboxer.store.engine import Store


@asynccontextmanager
async def open_volumes(
    snapshots: SnapshotUseCases, charges: KeepCharges | None, policy: KeepPolicy
) -> AsyncIterator[VolumeUseCases]:
    use_cases = VolumeUseCases(
        sandboxes=snapshots.sandboxes,
        snapshots=snapshots,
        clock=snapshots.clock,
        repository=VolumeRepository(snapshots.store, snapshots.clock, charges),
        operations=snapshots.operations,
        policy=policy,
    )
    snapshots.sandboxes.dependencies.repository.with_each_new(
        lambda conn, sandbox: attach(conn, sandbox, now=use_cases.clock.now())
    )
    reconciler = VolumeReconciler(use_cases)
    await reconciler.reconcile()
    await reconciler.catch_up()
    async with own_tasks() as loops:
        loops.start(reconciler.run(), name="reconciler of volumes")
        yield use_cases


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifacts:
    snapshots: SnapshotUseCases
    cloning: Cloning
    images: ImageUseCases
    image_sharing: ImageSharing
    spawning: Spawning
    volumes: VolumeUseCases
    garbage: Collector
    exporting: Exporting
    importing: Importing


@asynccontextmanager
async def open_artifacts(
    sandboxes: SandboxUseCases,
    store: Store,
    clock: Clock,
    *,
    authorities: AuthorityRepository,
    budget: Budget,
    slots: Slots,
    charges: KeepCharges | None,
    policy: KeepPolicy,
    image_policy: ImagePolicy,
    spool_dir: Path,
    lists_dir: Path,
    default_profile: str,
    volume_policy: KeepPolicy,
    trees: Trees,
    garbage_grace: timedelta,
) -> AsyncIterator[Artifacts]:
    """Opens the package. `charges` None means that nothing is charged on this platform."""
    # On leaving, the loops end first, then running operations finish.
    async with own_tasks() as operations:
        use_cases = SnapshotUseCases(
            sandboxes=sandboxes,
            store=store,
            clock=clock,
            repository=SnapshotRepository(store, clock, charges),
            operations=Operations(operations),
            policy=policy,
        )
        reconciler = SnapshotReconciler(use_cases)
        await reconciler.reconcile()
        await reconciler.catch_up()
        images = ImageUseCases(
            sandboxes=sandboxes,
            snapshots=use_cases,
            clock=clock,
            repository=ImageRepository(store, clock, charges),
            operations=use_cases.operations,
            policy=image_policy,
            lists=Lists(lists_dir),
        )
        image_reconciler = ImageReconciler(images)
        await image_reconciler.reconcile()
        await image_reconciler.catch_up()
        garbage = Collector(
            dependencies=sandboxes.dependencies,
            store=store,
            clock=clock,
            trees=trees,
            grace=garbage_grace,
        )
        quarantine = _add_sources(sandboxes.dependencies, store, images)
        await asyncio.to_thread(trees.sweep)
        async with open_volumes(use_cases, charges, volume_policy) as volumes, own_tasks() as loops:
            loops.start(reconciler.run(), name="reconciler of snapshots")
            loops.start(image_reconciler.run(), name="reconciler of images")
            loops.start(garbage.run(), name="collector of garbage")
            # Started only after every source was added and every record was compared.
            loops.start(quarantine.run(), name="quarantine")
            yield Artifacts(
                garbage=garbage,
                snapshots=use_cases,
                cloning=Cloning(use_cases=use_cases, authorities=authorities, slots=slots),
                images=images,
                volumes=volumes,
                image_sharing=ImageSharing(use_cases=images),
                exporting=Exporting(use_cases=images),
                importing=Importing(images, spool_dir, default_profile, authorities, budget),
                spawning=Spawning(use_cases=images, authorities=authorities, slots=slots),
            )


def _add_sources(dependencies: SandboxDependencies, store: Store, images: ImageUseCases) -> Quarantine:
    dependencies.quarantine.sources += [
        UnknownKeptDisks(dependencies, store, images.passing),
        UnknownVolumes(dependencies, store),
    ]
    return dependencies.quarantine
