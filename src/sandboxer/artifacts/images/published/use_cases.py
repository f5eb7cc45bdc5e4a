"""The use cases of published images: publish, list, change, verify, clone, remove.

Slow operations go on without their caller. What is being read (a spawn, an export, a clone) is never removed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection

from sandboxer.artifacts.images.published import policy as rules
from sandboxer.artifacts.images.published import records
from sandboxer.artifacts.images.published.contents import Lists
from sandboxer.artifacts.images.published.manifest import Made, Shaping, Walks, survey_and_list, verify
from sandboxer.artifacts.images.published.policy import ImagePolicy
from sandboxer.artifacts.images.published.records import Filter, PublishedImage, Visibility
from sandboxer.artifacts.images.published.repository import ImageRepository, Step
from sandboxer.artifacts.policy import check_room
from sandboxer.artifacts.snapshots.lifecycle import OVER, USABLE, Signal, State
from sandboxer.artifacts.snapshots.use_cases import SnapshotUseCases
from sandboxer.backends.contract import KeptDisk, Resources, ShapesDisks
from sandboxer.identity.keys import OWNER_ACCOUNT, Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, IllegalTransition, NotAvailable, NotFound, SandboxerError
from sandboxer.kernel.ids import new_id
from sandboxer.sandboxes.dependencies import actor_of
from sandboxer.sandboxes.operations import Operations
from sandboxer.sandboxes.use_cases.disks import reconciler_of
from sandboxer.sandboxes.use_cases.facade import SandboxUseCases
from sandboxer.sandboxes.use_cases.locks import refuse_locked
from sandboxer.store.repository import Also
from sandboxer.store.rows import Page

PREFIX = "img"
# The prefix of disks that exist only while they are being published.
PASSING = "pub"
# How many altered paths the event names.
_ALTERED_FACTS = ("altered", "altered_count")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a publisher says about an image."""

    name: str
    description: str = ""
    visibility: Visibility = Visibility.PRIVATE
    # Leave out files in which something looks like a secret.
    clean: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)


# Makes the kept disk of this id, and applies the given change to its layer before it becomes permanent.
Make = Callable[[ShapesDisks, str, Callable[[int], None]], "Any"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageUseCases:
    sandboxes: SandboxUseCases
    snapshots: SnapshotUseCases
    clock: Clock
    repository: ImageRepository
    operations: Operations
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
        )
        planned = replace(planned, size_bytes=snapshot.size_bytes)

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
        also: Also | None = None,
    ) -> PublishedImage:
        """Publishes the sandbox's disk as it is now; its processes go on. `source` is recorded in place of
        the sandbox.
        """
        sandbox = await self.sandboxes.get(sandbox_id, caller)
        planned = self._planned(
            wanted,
            caller,
            account=sandbox.account,
            source=source or sandbox.id,
            backend=sandbox.backend,
            profile=sandbox.profile,
            resources=sandbox.resources,
        )

        async def make(backend: ShapesDisks, image_id: str, change: Callable[[int], None]) -> KeptDisk:
            passing, dependencies = new_id(PASSING), self.sandboxes.dependencies
            self.passing.add(passing)
            try:
                await self.sandboxes.keep_disk(sandbox_id, caller, passing)
                return await backend.copy_kept(passing, image_id, change)
            finally:
                # One that is gone or never existed counts as success.
                await reconciler_of(dependencies.backends.get(sandbox.backend), sandbox.backend).drop(passing)
                self.passing.discard(passing)

        return await self._publish(planned, wanted, caller, make, also)

    async def clone(
        self, image_id: str, wanted: Wanted, caller: Caller, *, also: Also | None = None
    ) -> PublishedImage:
        """Makes a copy in the caller's own account, which outlives the original."""
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
                source=image.id,
                hands=0,
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
        found = self.sandboxes.dependencies.profiles.get(profile)
        planned = self._planned(
            wanted,
            caller,
            account=caller.account,
            source="import",
            backend=found.backend,
            profile=found.id,
            resources=found.resources,
        )
        planned = replace(planned, size_bytes=size_bytes)

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

    async def recall(self, image_id: str, caller: Caller) -> PublishedImage | None:
        """Returns the image of a publish whose answer was lost, or None if nothing was made."""
        await self.operations.free(image_id)
        image = await self.get(image_id, caller)
        return None if image.state in OVER else image

    async def list(
        self, caller: Caller, *, which: Filter = Filter.ALL, cursor: str | None = None, limit: int = 50
    ) -> Page[PublishedImage]:
        return await self.repository.store.read(
            lambda conn: records.load_page(
                conn, account=caller.account, which=which, cursor=cursor, limit=limit
            )
        )

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
                signal="use", state=image.state.value, hint="GET the image to see its state."
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
                step = Step(signal=Signal.MISSED, actor=actor_of(caller), reason="altered", data=facts)
                await self.repository.move(image_id, step)
                raise
            # Everything is as published, also if somebody changed it and changed it back.
            await backend.layers(image_id)
            step = Step(
                signal=None,
                actor=actor_of(caller),
                reason="verified",
                kind="image.verified",
                changes={"verified_at": self.clock.now()},
            )
            return await self.repository.move(image_id, step)

    async def drop(self, image_id: str, caller: Caller, *, despite_lock: bool = False) -> PublishedImage:
        """Drops it; what was made from it stays. A dropped one counts as success. `despite_lock` says that a
        second proof allowed it.
        """
        image = await self.get(image_id, caller)
        rules.refuse_strangers(image, caller)
        check_lock = None if despite_lock else refuse_locked
        return await self.remove(
            image, Signal.DROP, actor=actor_of(caller), reason="removed_by_caller", check=check_lock
        )

    async def remove(
        self,
        image: PublishedImage,
        signal: Signal,
        *,
        actor: str,
        reason: str,
        check: Callable[[PublishedImage], None] | None = None,
    ) -> PublishedImage:
        """Brings it to `dropped`. The intent is recorded first, so that the next start finishes what a crash
        interrupted.
        """

        async def act() -> PublishedImage:
            current = await self.repository.find(image.id)
            if current is None or current.state in OVER:
                return current or image
            if self.readers[image.id]:
                raise Conflict(why=f"{image.id} is being read", reason="in_use", hint="Try again in a while.")
            if current.state is not State.DROPPING:
                await self.repository.move(
                    image.id, Step(signal=signal, actor=actor, reason=reason, check=check)
                )
            await self._forget(image)
            return await self.repository.move(
                image.id, Step(signal=Signal.REMOVED, actor=actor, reason=reason)
            )

        return await self.operations.perform(image.id, "drop", act)

    async def _forget(self, image: PublishedImage) -> None:
        """Removes the disk and the list. One that is gone already counts as success."""
        await reconciler_of(self.sandboxes.dependencies.backends.get(image.backend), image.backend).drop(
            image.id
        )
        await asyncio.to_thread(self.lists.drop, image.id)

    def shaper(self, name: str) -> ShapesDisks:
        backend = self.sandboxes.dependencies.backends.get(name)
        if not isinstance(backend, ShapesDisks):
            raise NotAvailable(what="images", why=f"{name} cannot publish disks")
        return backend

    async def _publish(
        self, planned: PublishedImage, wanted: Wanted, caller: Caller, make: Make, also: Also | None
    ) -> PublishedImage:
        self.shaper(planned.backend)

        def check(conn: Connection) -> None:
            if planned.account != OWNER_ACCOUNT:
                held = records.holding(conn, planned.account)
                check_room(held, self.policy, "image", more_bytes=planned.size_bytes)

        opened = await self.repository.create(planned, check=check, also=also)
        return await self.operations.perform(
            opened.id, "publish", lambda: self._make(opened, wanted, caller, make)
        )

    async def _make(
        self, opened: PublishedImage, wanted: Wanted, caller: Caller, make: Make
    ) -> PublishedImage:
        actor, backend = actor_of(caller), self.shaper(opened.backend)
        try:
            change = Shaping(self.policy.bounds, clean=wanted.clean)
            async with self.walks.turn(opened.account):
                await make(backend, opened.id, change)
                layers, bounds = await backend.layers(opened.id), self.policy.bounds
                found = await asyncio.to_thread(survey_and_list, opened.id, layers, bounds, self.lists)
            made = Made(base=layers.base, survey=found, stripped=change.stripped)
            return await self._record(opened, wanted, made, actor)
        except BaseException as error:
            await self._forget(opened)
            why = str(error)[:300] if isinstance(error, SandboxerError) else "it broke"
            code = error.code if isinstance(error, SandboxerError) else "broken"
            step = Step(signal=Signal.FAIL, actor=actor, reason=code, data={"why": why})
            await self.repository.move(opened.id, step)
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
        if opened.account != OWNER_ACCOUNT:
            more = max(0, size - opened.size_bytes)
            await self.repository.store.read(lambda conn: self._check_more(conn, opened.account, more))
        step = Step(
            signal=Signal.TAKEN,
            actor=actor,
            reason="published",
            changes=changes,
            data={"digest": made.survey.digest, "size_bytes": size, "findings": made.survey.findings.count},
        )
        return await self.repository.move(opened.id, step)

    def _check_more(self, conn: Connection, account: str, more_bytes: int) -> None:
        """Checks the quota; its own record is among those counted."""
        held = records.holding(conn, account)
        held = replace(held, count=held.count - 1)
        check_room(held, self.policy, "image", more_bytes=more_bytes)

    def _planned(
        self,
        wanted: Wanted,
        caller: Caller,
        *,
        account: str,
        source: str,
        backend: str,
        profile: str,
        resources: Resources,
    ) -> PublishedImage:
        now = self.clock.now()
        return PublishedImage(
            id=new_id(PREFIX),
            version=0,
            # The owner of the source owns the image, also when the operator publishes it.
            account=account,
            created_by=caller.public_key,
            name=wanted.name,
            description=wanted.description,
            visibility=wanted.visibility,
            state=State.TAKING,
            reason="requested",
            source=source,
            backend=backend,
            base="",
            profile=profile,
            resources=resources,
            config=dict(wanted.config),
            created_at=now,
            state_since=now,
        )
