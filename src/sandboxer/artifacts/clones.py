"""New sandboxes from a snapshot or a published image: one, or up to a hundred at once, each made by the
ordinary create.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field, fields, replace
from typing import Any

from sqlalchemy import Connection

from sandboxer.accounts.authority import AuthorityRepository
from sandboxer.artifacts.images.published.records import PublishedImage
from sandboxer.artifacts.images.published.use_cases import ImageUseCases
from sandboxer.artifacts.records import MB
from sandboxer.artifacts.snapshots.records import Snapshot
from sandboxer.artifacts.snapshots.use_cases import SnapshotUseCases
from sandboxer.artifacts.use_cases import KeptUseCases
from sandboxer.backends.contract import Content, CopiesAhead, VolumeMount
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Broken, Conflict, InvalidRequest, SandboxerError
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.profiles import WorkspaceAccess, excess
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.requests import CreateRequest, Origin, WantedResources, refuse_many_writers
from sandboxer.sandboxes.use_cases import creation
from sandboxer.sandboxes.use_cases.admission import Slots
from sandboxer.store.repository import Also

MOST_AT_ONCE = 100


@value_class
class Clones:
    sandboxes: Sequence[Sandbox]
    # By number, from 0: why one could not be made.
    failed: Mapping[int, SandboxerError] = field(default_factory=dict)
    # What the original sandbox had and the clones do not have.
    volumes_left_out: Sequence[VolumeMount] = ()


@value_class
class Batch:
    """How many to make, and what ties them to a request that may be repeated after a crash."""

    count: int
    # By number: the sandbox that an earlier attempt, whose answer was lost, began to make.
    begun: Mapping[int, str] = field(default_factory=dict)
    # Written in the transaction of each record, with its number.
    also: Callable[[Connection, int, str], None] | None = None

    def also_of(self, number: int) -> Also | None:
        bind = self.also
        return None if bind is None else lambda conn, made: bind(conn, number, made)


@asynccontextmanager
async def _copies_ahead(
    sandboxes: SandboxDependencies, wanted: CreateRequest, caller: Caller, batch: Batch
) -> AsyncIterator[None]:
    """Has the backend copy all disks at once: a hundred copies of one disk take the time of a few if it knows
    beforehand.
    """
    origin, count = wanted.origin, batch.count - len(batch.begun)
    backend = None if origin is None else sandboxes.backends.get(origin.backend)
    if origin is None or count < 2 or not isinstance(backend, CopiesAhead):
        yield
    elif not await _may_start(sandboxes, wanted, caller):
        # An account without funds gets no copies made: each create refuses by itself.
        yield
    else:
        async with backend.copies_ahead(origin.disk_id, count):
            yield


async def _may_start(sandboxes: SandboxDependencies, wanted: CreateRequest, caller: Caller) -> bool:
    try:
        await creation.check_create(sandboxes, wanted, caller)
    except SandboxerError:
        return False
    return True


@value_class
class Copying:
    """Makes sandboxes whose disks begin as copies of one disk."""

    use_cases: KeptUseCases[Any]
    authorities: AuthorityRepository
    slots: Slots

    async def make_all(self, wanted: CreateRequest, caller: Caller, batch: Batch) -> Clones:
        """Makes all of them concurrently; each succeeds or fails by itself. Raises the first error if none
        could be made.
        """
        refuse_many_writers(wanted.volumes, batch.count)
        sandboxes = self.use_cases.sandboxes
        made: dict[int, Sandbox] = {}
        failed: dict[int, SandboxerError] = {}

        async def one(number: int) -> None:
            named = wanted
            if batch.count > 1 and wanted.name is not None:
                named = replace(wanted, name=f"{wanted.name[:59]}-{number + 1}")
            try:
                known = batch.begun.get(number)
                found = None if known is None else await creation.recall(sandboxes, known, caller)
                made[number] = found or await self._create(named, caller, batch.also_of(number))
            except SandboxerError as error:
                failed[number] = error

        async with _copies_ahead(sandboxes, wanted, caller, batch), asyncio.TaskGroup() as group:
            for number in range(batch.count):
                group.create_task(one(number))
        if not made:
            raise failed.get(0) or Broken(why="nothing was made, and nobody knows why")
        return Clones(
            sandboxes=[made[number] for number in sorted(made)], failed=dict(sorted(failed.items()))
        )

    async def _create(self, wanted: CreateRequest, caller: Caller, also: Also | None) -> Sandbox:
        async with self.slots.taken(await self.authorities.of(caller)):
            return await creation.create(self.use_cases.sandboxes, wanted, caller, also=also)

    def resources(self, original: Snapshot | PublishedImage, request: CreateRequest) -> WantedResources:
        """Returns the resources of the original sandbox, as far as the profile allows them now. An image may
        hold more than the usual disk of its profile: then the disk has room for it.
        """
        profile = self.use_cases.sandboxes.profiles.get(request.profile or original.profile)
        # What was kept of its memory lies beside the disk.
        least = 0 if has_memory(original) else -(-original.size_bytes // MB)
        resources = replace(original.resources, disk_mb=max(original.resources.disk_mb, least))
        too_much = set(excess(resources, profile.resources_max))
        asked = request.resources
        return WantedResources(
            **{
                f.name: getattr(resources, f.name)
                if getattr(asked, f.name) is None and f.name not in too_much
                else getattr(asked, f.name)
                for f in fields(WantedResources)
            }
        )


def has_memory(original: Snapshot | PublishedImage) -> bool:
    return isinstance(original, Snapshot) and original.content is Content.FILES_AND_MEMORY


def refuse_what_cannot_go_on(snapshot: Snapshot, request: CreateRequest) -> None:
    """Refuses mounts and less memory for what goes on where it was: it would not find what it had."""
    if request.volumes or request.wanted_volumes or request.wishes.workspace_access not in _OPEN:
        raise Conflict(
            why=f"what runs in {snapshot.id} goes on as it was, and cannot be given mounts that it had not",
            reason="memory_of_mounts",
            hint="Begin with its files alone: make an image of it.",
        )
    asked, had = request.resources.memory_mb, snapshot.resources.memory_mb
    if asked is not None and asked < had:
        raise InvalidRequest(
            field="resources.memory_mb",
            why=f"what runs in it was kept with {had} MB, and goes on with no less",
        )


# What leaves a workspace unmounted.
_OPEN = (None, WorkspaceAccess.READ_WRITE)


def check_count(count: int) -> None:
    if not 1 <= count <= MOST_AT_ONCE:
        raise InvalidRequest(field="count", why=f"from 1 to {MOST_AT_ONCE}")


@value_class
class Cloning(Copying):
    use_cases: SnapshotUseCases

    async def complete(self, request: CreateRequest, caller: Caller) -> CreateRequest:
        """See `sandboxes.admission.Source`."""
        if request.snapshot is None:
            return request
        return replace(await self.request_for(request.snapshot, request, caller), snapshot=None)

    async def request_for(self, snapshot_id: str, request: CreateRequest, caller: Caller) -> CreateRequest:
        """The request, with this snapshot as its origin, and as it was taken where nothing is asked for."""
        snapshot = await self.use_cases.usable(snapshot_id, caller)
        if has_memory(snapshot):
            refuse_what_cannot_go_on(snapshot, request)
        return replace(
            request,
            profile=request.profile or snapshot.profile,
            resources=self.resources(snapshot, request),
            origin=Origin(disk_id=snapshot.id, backend=snapshot.backend, image=snapshot.image),
        )

    async def clone(self, snapshot_id: str, request: CreateRequest, caller: Caller, batch: Batch) -> Clones:
        """See `make_all`."""
        check_count(batch.count)
        wanted = await self.request_for(snapshot_id, request, caller)
        made = await self.make_all(wanted, caller, batch)
        return replace(made, volumes_left_out=await self._left_out(snapshot_id, wanted))

    async def _left_out(self, snapshot_id: str, wanted: CreateRequest) -> Sequence[VolumeMount]:
        """Returns what clones do not get: volumes are no part of a snapshot, and the caller says which ones
        clones get.
        """
        snapshot = await self.use_cases.repository.find(snapshot_id)
        sandboxes = self.use_cases.sandboxes.repository
        source = None if snapshot is None else await sandboxes.find(snapshot.sandbox_id)
        have = {one.volume_id for one in wanted.volumes}
        return [] if source is None else [one for one in source.volumes if one.volume_id not in have]


def is_image_id(text: str | None) -> bool:
    return text is not None and text.startswith("img_")


@value_class
class Spawning(Copying):
    use_cases: ImageUseCases

    async def complete(self, request: CreateRequest, caller: Caller) -> CreateRequest:
        """See `sandboxes.admission.Source`."""
        if request.image is None or request.origin is not None or not is_image_id(request.image):
            return request
        return await self.request_for(request.image, request, caller)

    async def request_for(self, image_id: str, request: CreateRequest, caller: Caller) -> CreateRequest:
        """The request, with this image as its origin, and as its source was where nothing is asked.

        What the image sets for its processes holds where the request says nothing.
        """
        async with self.use_cases.reading(image_id, caller) as image:
            return replace(
                request,
                profile=request.profile or image.profile,
                image=image.id,
                resources=self.resources(image, request),
                env={**_env(image), **request.env},
                origin=Origin(disk_id=image.id, backend=image.backend, image=image.id),
            )

    async def spawn(self, image_id: str, request: CreateRequest, caller: Caller, batch: Batch) -> Clones:
        """See `make_all`."""
        check_count(batch.count)
        wanted = await self.request_for(image_id, request, caller)
        async with self.use_cases.reading(image_id, caller):
            return await self.make_all(wanted, caller, batch)


def _env(image: PublishedImage) -> dict[str, str]:
    pairs = (str(one).partition("=") for one in image.config.get("Env", ()))
    return {name: value for name, mark, value in pairs if mark and name}
