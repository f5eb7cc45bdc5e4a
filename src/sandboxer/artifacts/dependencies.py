"""Builds the use cases of snapshots, images and volumes and starts their loops. The edges hold these and
nothing else of the package.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from sandboxer.accounts.authority import AuthorityRepository
from sandboxer.artifacts.charges import KeepCharges
from sandboxer.artifacts.clones import Cloning, Spawning
from sandboxer.artifacts.garbage import Collector, Trees
from sandboxer.artifacts.images.builders.templates import TemplateBuilds
from sandboxer.artifacts.images.builders.use_cases import ImageBuilders
from sandboxer.artifacts.images.builders.workshop import BuildPolicy, Workshop
from sandboxer.artifacts.images.oci.export import Exporting
from sandboxer.artifacts.images.oci.upload import Importing
from sandboxer.artifacts.images.published.grants import ImageSharing
from sandboxer.artifacts.images.published.manifest import Lists
from sandboxer.artifacts.images.published.use_cases import ImageUseCases
from sandboxer.artifacts.noun_reconcilers import (
    ImageReconciler,
    SnapshotReconciler,
    UnknownDisks,
    VolumeReconciler,
)
from sandboxer.artifacts.policy import ImagePolicy, KeepPolicy
from sandboxer.artifacts.reconciler import KeptReconciler
from sandboxer.artifacts.repository import ImageRepository, SnapshotRepository
from sandboxer.artifacts.snapshots.use_cases import SnapshotUseCases
from sandboxer.artifacts.volumes.repository import VolumeRepository, attach
from sandboxer.artifacts.volumes.use_cases import VolumeContent, VolumeUseCases
from sandboxer.kernel.budget import Budget
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.tasks import TaskOwner, own_tasks
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.operations import Operations
from sandboxer.sandboxes.passing import Endings
from sandboxer.sandboxes.quarantine import Kind
from sandboxer.sandboxes.use_cases.admission import Slots
from sandboxer.store.engine import Store


@value_class
class Artifacts:
    snapshots: SnapshotUseCases
    cloning: Cloning
    images: ImageUseCases
    image_sharing: ImageSharing
    spawning: Spawning
    volumes: VolumeUseCases
    volume_content: VolumeContent
    garbage: Collector
    exporting: Exporting
    importing: Importing
    builders: ImageBuilders
    templates: TemplateBuilds


@asynccontextmanager
async def open_artifacts(
    sandboxes: SandboxDependencies,
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
    endings: Endings,
    build_policy: BuildPolicy,
) -> AsyncIterator[Artifacts]:
    """Opens the package. `charges` None means that nothing is charged on this platform."""
    # On leaving, the loops end first, then running operations finish.
    async with own_tasks() as tasks:
        operations = Operations(tasks, sandboxes.operations.work)
        snapshots = SnapshotUseCases(
            sandboxes=sandboxes,
            clock=clock,
            repository=SnapshotRepository(store, clock, charges),
            operations=operations,
            policy=policy,
        )
        images = ImageUseCases(
            sandboxes=sandboxes,
            snapshots=snapshots,
            clock=clock,
            repository=ImageRepository(store, clock, charges),
            operations=operations,
            policy=image_policy,
            lists=Lists(lists_dir),
        )
        volumes = VolumeUseCases(
            sandboxes=sandboxes,
            snapshots=snapshots,
            clock=clock,
            repository=VolumeRepository(store, clock, charges),
            operations=operations,
            policy=volume_policy,
        )
        sandboxes.repository.with_each_new(partial(attach, clock=clock))
        reconcilers = await _reconcile(snapshots, images, volumes)
        garbage = Collector(
            dependencies=sandboxes, store=store, clock=clock, trees=trees, grace=garbage_grace
        )
        await asyncio.to_thread(trees.sweep)
        async with own_tasks() as loops:
            _start(loops, reconcilers, garbage)
            importing = Importing(images, spool_dir, default_profile, authorities, budget)
            builders = _builders(importing, volumes, slots, trees, endings, build_policy)
            yield _artifacts(snapshots, garbage, builders, loops)


def _artifacts(
    snapshots: SnapshotUseCases, garbage: Collector, builders: ImageBuilders, loops: TaskOwner
) -> Artifacts:
    images, volumes, slots = builders.importing.use_cases, builders.workshop.volumes, builders.workshop.slots
    authorities, endings = builders.importing.authorities, builders.workshop.endings
    return Artifacts(
        garbage=garbage,
        snapshots=snapshots,
        cloning=Cloning(use_cases=snapshots, authorities=authorities, slots=slots),
        images=images,
        volumes=volumes,
        volume_content=VolumeContent(
            use_cases=volumes, authorities=authorities, slots=slots, endings=endings
        ),
        image_sharing=ImageSharing(use_cases=images),
        exporting=builders.exporting,
        importing=builders.importing,
        spawning=builders.spawning,
        builders=builders,
        templates=TemplateBuilds(builders, images, loops),
    )


def _start(loops: TaskOwner, reconcilers: Sequence[KeptReconciler[Any, Any]], garbage: Collector) -> None:
    for reconciler in reconcilers:
        loops.start(reconciler.run(), name=f"reconciler of {reconciler.repository.noun}s")
    loops.start(garbage.run(), name="collector of garbage")
    # Started only after every source was added and every record was compared.
    loops.start(garbage.dependencies.quarantine.run(), name="quarantine")


def _builders(
    importing: Importing,
    volumes: VolumeUseCases,
    slots: Slots,
    trees: Trees,
    endings: Endings,
    policy: BuildPolicy,
) -> ImageBuilders:
    images, authorities = importing.use_cases, importing.authorities
    workshop = Workshop(
        sandboxes=images.sandboxes,
        volumes=volumes,
        authorities=authorities,
        slots=slots,
        budget=importing.budget,
        endings=endings,
        clock=images.clock,
        policy=policy,
    )
    return ImageBuilders(
        workshop=workshop,
        importing=importing,
        exporting=Exporting(use_cases=images),
        spawning=Spawning(use_cases=images, authorities=authorities, slots=slots),
        images_dir=trees.path,
    )


async def _reconcile(
    snapshots: SnapshotUseCases, images: ImageUseCases, volumes: VolumeUseCases
) -> Sequence[KeptReconciler[Any, Any]]:
    """Compares every record with reality, and has the quarantine look for disks without a record."""
    of_snapshots, of_volumes = SnapshotReconciler(snapshots), VolumeReconciler(volumes)
    reconcilers = (of_snapshots, ImageReconciler(images), of_volumes)
    for reconciler in reconcilers:
        await reconciler.reconcile()
        await reconciler.catch_up()
    snapshots.sandboxes.quarantine.sources += [
        UnknownDisks(of_snapshots, (Kind.SNAPSHOT, Kind.IMAGE), images.passing),
        UnknownDisks(of_volumes, (Kind.VOLUME,)),
    ]
    return reconcilers
