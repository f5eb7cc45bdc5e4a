"""The use cases of published images: publish, list, change, verify, clone, remove.

Slow operations go on without their caller. What is being read (a spawn, an export, a clone) is never removed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import field, replace
from typing import Any

from sqlalchemy import Connection

from sandboxer.artifacts import policy as rules
from sandboxer.artifacts.images.published import records
from sandboxer.artifacts.images.published.manifest import Lists, Made, Shaping, Walks, survey_and_list, verify
from sandboxer.artifacts.images.published.records import Filter, PublishedImage, Tag, Visibility
from sandboxer.artifacts.policy import ImagePolicy
from sandboxer.artifacts.records import USABLE, Signal, State
from sandboxer.artifacts.repository import ImageRepository
from sandboxer.artifacts.snapshots.use_cases import SnapshotUseCases
from sandboxer.artifacts.use_cases import ITSELF, KeptUseCases
from sandboxer.backends.contract import Capability, KeptDisk, Resources, ShapesDisks
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Conflict, IllegalTransition, NotAvailable, NotFound
from sandboxer.kernel.values import new_id, value_class
from sandboxer.sandboxes.dependencies import actor_of
from sandboxer.sandboxes.requests import WantedResources, wanted_resources
from sandboxer.sandboxes.use_cases import disks
from sandboxer.sandboxes.use_cases.disks import reconciler_of
from sandboxer.sandboxes.use_cases.routes import home_of
from sandboxer.store.repository import Also
from sandboxer.store.rows import Page
from sandboxer.store.steps import Step

PREFIX = "img"
# The prefix of disks that exist only while they are being published.
PASSING = "pub"
# How many altered paths the event names.
_ALTERED_FACTS = ("altered", "altered_count")


@value_class
class Wanted:
    """What a publisher says about an image."""

    name: str
    description: str = ""
    visibility: Visibility = Visibility.PRIVATE
    # Leave out files in which something looks like a secret.
    clean: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)
    # What an archive came from.
    source: str = "import"
    # What sandboxes of an archive have, where that is not what its profile says.
    resources: WantedResources = field(default_factory=WantedResources)


# Makes the kept disk of this id, and applies the given change to its layer before it becomes permanent.
Make = Callable[[ShapesDisks, str, Callable[[int], None]], "Any"]


@value_class
class ImageUseCases(KeptUseCases[PublishedImage]):
    snapshots: SnapshotUseCases
    repository: ImageRepository
    policy: ImagePolicy
    lists: Lists
    # By id: how many readers it has now.
    readers: Counter[str] = field(default_factory=Counter)
    walks: Walks = field(default_factory=Walks)
    # Disks that exist only while they are being published; they have no record.
    passing: set[str] = field(default_factory=set)

    async def publish_snapshot(
        self, snapshot_id: str, wanted: Wanted, caller: Caller, *, also: Also | None = None
    ) -> PublishedImage:
        snapshot = await self.snapshots.usable(snapshot_id, caller)
        planned = self._planned(
            wanted,
            caller,
            account=snapshot.account,
            source=snapshot.id,
            backend=snapshot.backend,
            profile=snapshot.profile,
            resources=snapshot.resources,
            size_bytes=snapshot.size_bytes,
        )

        async def make(backend: ShapesDisks, image_id: str, change: Callable[[int], None]) -> KeptDisk:
            return await backend.copy_kept(snapshot.id, image_id, change)

        return await self._publish(planned, wanted, caller, make, also)

    async def publish_sandbox(
        self,
        sandbox_id: str,
        wanted: Wanted,
        caller: Caller,
        *,
        source: str | None = None,
        resources: Resources | None = None,
        also: Also | None = None,
    ) -> PublishedImage:
        """Publishes the sandbox's disk as it is now; its processes go on. `source` is recorded in place of
        the sandbox, `resources` in place of its own.
        """
        sandbox = await self.sandboxes.visible(sandbox_id, caller)
        planned = self._planned(
            wanted,
            caller,
            account=sandbox.account,
            source=source or sandbox.id,
            backend=sandbox.backend,
            profile=sandbox.profile,
            resources=resources or sandbox.resources,
        )

        async def make(backend: ShapesDisks, image_id: str, change: Callable[[int], None]) -> KeptDisk:
            passing, dependencies = new_id(PASSING), self.sandboxes
            self.passing.add(passing)
            try:
                await disks.keep(self.sandboxes, sandbox_id, caller, passing)
                return await backend.copy_kept(passing, image_id, change)
            finally:
                # One that is gone or never existed counts as success.
                await reconciler_of(dependencies.backends.get(sandbox.backend), sandbox.backend).drop(passing)
                self.passing.discard(passing)

        return await self._publish(planned, wanted, caller, make, also)

    async def clone(
        self,
        image_id: str,
        wanted: Wanted,
        caller: Caller,
        *,
        source: str | None = None,
        also: Also | None = None,
    ) -> PublishedImage:
        """Makes a copy in the caller's own account, which outlives the original. `source` is recorded in
        place of the original.
        """
        async with self.reading(image_id, caller) as image:
            planned = replace(
                image,
                id=new_id(PREFIX),
                version=0,
                account=caller.account,
                created_by=caller.public_key,
                name=wanted.name or image.name,
                description=wanted.description or image.description,
                visibility=wanted.visibility,
                state=State.TAKING,
                reason="requested",
                source=source or image.id,
                hands=0,
                tags={},
                offered_to=None,
                locked_at=None,
                expires_at=None,
                created_at=self.clock.now(),
                state_since=self.clock.now(),
            )

            async def make(backend: ShapesDisks, new: str, change: Callable[[int], None]) -> KeptDisk:
                return await backend.copy_kept(image.id, new, change)

            return await self._publish(planned, wanted, caller, make, also)

    async def receive(
        self,
        wanted: Wanted,
        caller: Caller,
        fill: Callable[[int], None],
        *,
        profile: str,
        limit_mb: int,
        size_bytes: int,
        also: Also | None = None,
    ) -> PublishedImage:
        """Makes an image without a lower tree; `fill` writes its content, in a thread."""
        found = self.sandboxes.profiles.get(profile)
        planned = self._planned(
            wanted,
            caller,
            account=caller.account,
            source=wanted.source,
            # Elsewhere he could not begin anything with it.
            backend=await home_of(self.sandboxes, caller, found.id, able=Capability.SNAPSHOT),
            profile=found.id,
            resources=wanted_resources(wanted.resources, found),
            size_bytes=size_bytes,
        )

        async def make(backend: ShapesDisks, image_id: str, change: Callable[[int], None]) -> KeptDisk:
            def both(layer: int) -> None:
                fill(layer)
                change(layer)

            return await backend.fill_kept(image_id, both, limit_mb=limit_mb)

        return await self._publish(planned, wanted, caller, make, also)

    async def get(self, image_id: str, caller: Caller) -> PublishedImage:
        """Returns the image. Raises NotFound, also for one that the caller may not see."""
        image = await self.repository.find(image_id)
        granted = await self.grantees(image_id)
        if image is None or not rules.is_visible(image, caller, granted):
            raise NotFound(what="image", id=image_id)
        return image

    async def grantees(self, image_id: str) -> list[str]:
        return await self.repository.store.read(lambda conn: records.grantees(conn, image_id))

    async def list(
        self, caller: Caller, *, which: Filter = Filter.ALL, cursor: str | None = None, limit: int = 50
    ) -> Page[PublishedImage]:
        return await self.repository.store.read(
            lambda conn: records.load_page(
                conn, account=caller.account, which=which, cursor=cursor, limit=limit
            )
        )

    async def tagged(self, name: str, caller: Caller) -> Sequence[PublishedImage]:
        """Returns the caller's own images of this name that have tags, newest first."""
        found = await self.repository.store.read(lambda conn: records.load_tagged(conn, caller.account, name))
        return [image for image in found if image.tags and image.state in USABLE]

    async def tag(self, image: PublishedImage, tags: Sequence[str], build_id: str, caller: Caller) -> None:
        """Gives an image these tags, which others of its name lose. One that has no tag left is dropped."""
        marks = {tag: Tag(build_id=build_id, at=self.clock.now()) for tag in tags}
        await self.amend(image.id, caller, "changed", {"tags": {**image.tags, **marks}})
        for other in await self.tagged(image.name, caller):
            if other.id != image.id:
                await self.untag(other, tags, caller)

    async def untag(self, image: PublishedImage, tags: Sequence[str], caller: Caller) -> None:
        """Takes these tags away from an image; one that has none left is dropped, unless it is in use or
        locked.
        """
        left = {tag: mark for tag, mark in image.tags.items() if tag not in tags}
        if left == image.tags:
            return
        await self.amend(image.id, caller, "changed", {"tags": left})
        if not left:
            with suppress(Conflict):
                await self.drop(image.id, caller)

    @asynccontextmanager
    async def reading(
        self, image_id: str, caller: Caller, *, suspected: bool = False
    ) -> AsyncIterator[PublishedImage]:
        """Yields a usable image, which cannot be removed meanwhile. Raises NotFound, IllegalTransition,
        Conflict (altered).

        `suspected` also admits one that was altered; nothing may be made of it.
        """
        image = await self.get(image_id, caller)
        if image.state not in USABLE:
            raise IllegalTransition(
                signal="use", state=image.state.value, hint=f"Look at its state: GET /v1/images/{image.id}."
            )
        self.readers[image_id] += 1
        try:
            if not suspected:
                await self.shaper(image.backend).layers(image_id)
            yield image
        finally:
            self.readers[image_id] -= 1
            if not self.readers[image_id]:
                del self.readers[image_id]

    async def verify(self, image_id: str, caller: Caller) -> PublishedImage:
        """Reads every file and computes the digest anew. Raises Conflict if it is not what was published."""
        async with self.reading(image_id, caller, suspected=True) as image:
            backend, bounds = self.shaper(image.backend), self.policy.bounds
            layers = await backend.layers(image_id, suspected=True)
            try:
                async with self.walks.turn(caller.account):
                    await asyncio.to_thread(verify, image_id, layers, bounds, self.lists, digest=image.digest)
            except Conflict as error:
                facts = {name: error.facts[name] for name in _ALTERED_FACTS if name in error.facts}
                step = Step[PublishedImage, Signal](
                    signal=Signal.MISSED, actor=actor_of(caller), reason="altered", data=facts
                )
                await self.repository.move(image_id, step)
                raise
            # Everything is as published, also if somebody changed it and changed it back.
            await backend.layers(image_id)
            step = Step[PublishedImage, Signal](
                signal=None,
                actor=actor_of(caller),
                reason="verified",
                kind="image.verified",
                changes={"verified_at": self.clock.now()},
            )
            return await self.repository.move(image_id, step)

    async def own(self, ref: str, caller: Caller) -> PublishedImage:
        image = await self.get(ref, caller)
        rules.refuse_strangers(image, caller)
        return image

    async def erase(self, record: PublishedImage) -> None:
        """Removes the disk and the list. One that is gone already counts as success."""
        await reconciler_of(self.sandboxes.backends.get(record.backend), record.backend).drop(record.id)
        await asyncio.to_thread(self.lists.drop, record.id)

    def refuse_drop(self, record: PublishedImage) -> None:
        if self.readers[record.id]:
            hint = "Try again when whoever starts from it or downloads it has it."
            raise Conflict(why=f"{record.id} is being read", reason="in_use", hint=hint)

    def shaper(self, name: str) -> ShapesDisks:
        backend = self.sandboxes.backends.get(name)
        if not isinstance(backend, ShapesDisks):
            raise NotAvailable(what="images", why=f"{name} cannot publish disks")
        return backend

    async def _publish(
        self, planned: PublishedImage, wanted: Wanted, caller: Caller, make: Make, also: Also | None
    ) -> PublishedImage:
        self.shaper(planned.backend)

        def check(conn: Connection) -> None:
            self.check_room(conn, planned, more_bytes=planned.size_bytes)

        opened = await self.repository.create(planned, check=check, also=also)
        return await self.operations.perform(
            opened.id, "publish", lambda: self._make(opened, wanted, caller, make)
        )

    async def _make(
        self, opened: PublishedImage, wanted: Wanted, caller: Caller, make: Make
    ) -> PublishedImage:
        backend = self.shaper(opened.backend)
        try:
            change = Shaping(self.policy.bounds, clean=wanted.clean)
            async with self.walks.turn(opened.account):
                await make(backend, opened.id, change)
                layers, bounds = await backend.layers(opened.id), self.policy.bounds
                found = await asyncio.to_thread(survey_and_list, opened.id, layers, bounds, self.lists)
            made = Made(base=layers.base, survey=found, stripped=change.stripped)
            return await self._record(opened, wanted, made, actor_of(caller))
        except BaseException as error:
            await self.give_up(opened, error, caller)
            raise

    async def _record(self, opened: PublishedImage, wanted: Wanted, made: Made, actor: str) -> PublishedImage:
        size = made.survey.size_bytes
        changes: dict[str, Any] = {
            "base": made.base,
            "digest": made.survey.digest,
            "size_bytes": size,
            "files": made.survey.files,
            "findings": tuple(made.survey.findings.first),
            "findings_count": made.survey.findings.count,
            "stripped": tuple(made.stripped.first),
            "stripped_count": made.stripped.count,
            "rate_msats": self.repository.rate(opened.account, opened.profile, size),
            "verified_at": self.clock.now(),
        }
        if wanted.visibility is not Visibility.PRIVATE:
            rules.refuse_findings(replace(opened, **changes))
        more = max(0, size - opened.size_bytes)
        await self.repository.store.read(
            lambda conn: self.check_room(conn, opened, more_bytes=more, counted=ITSELF)
        )
        step = Step[PublishedImage, Signal](
            signal=Signal.TAKEN,
            actor=actor,
            reason="published",
            changes=changes,
            data={"digest": made.survey.digest, "size_bytes": size, "findings": made.survey.findings.count},
        )
        return await self.repository.move(opened.id, step)

    def _planned(self, wanted: Wanted, caller: Caller, **of_source: Any) -> PublishedImage:
        """The owner of the source owns the image, also when the operator publishes it."""
        now = self.clock.now()
        return PublishedImage(
            id=new_id(PREFIX),
            version=0,
            created_by=caller.public_key,
            name=wanted.name,
            description=wanted.description,
            visibility=wanted.visibility,
            state=State.TAKING,
            reason="requested",
            base="",
            config=dict(wanted.config),
            created_at=now,
            state_since=now,
            **of_source,
        )
