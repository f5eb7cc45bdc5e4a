"""The collector finds image trees that nobody needs on this host, lists them, and removes them after a grace
period.

Disks without a record are not its business but the quarantine's (`sandboxes/quarantine.py`).

Records say what is needed, and so do the backends: a disk lies over the very tree that it began on, whatever
its image's name means today. Both are asked again after a tree was moved out of sight, so that a sandbox that
began to need it meanwhile gets it back.

Garbage belongs to one of five tiers, and each tier is a reason why it may be removed:

1. `leftover`: on the host without a record, from a crash half-way; nobody can name it, so nobody needs it.
2. `ended`: its record says it is over or on its way out.
3. `account_ended`: the delegated account that kept it has ended.
4. `unpaid`: nobody paid for it during the whole retention time; a locked one is spared once more.
5. `base`: a tree that no name, no sandbox and no kept disk lies over any more.

What is being read, or being made, is in no tier. A sandbox needs no image once it is made: its disk is its
own.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from sqlalchemy import Connection, select

from sandboxer.accounts.operators import demand_operator
from sandboxer.artifacts.images.build import Image, hold_images, list_images, remove_tree
from sandboxer.artifacts.images.published import records as images
from sandboxer.artifacts.images.published.records import PublishedImage
from sandboxer.artifacts.reconciler import is_spared
from sandboxer.artifacts.records import OVER, State
from sandboxer.artifacts.snapshots import records as snapshots
from sandboxer.backends.contract import LiesOverTrees
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import ImageBuildFailed
from sandboxer.kernel.values import brief_value_class, value_class
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.store.engine import Store


class Tier(StrEnum):
    LEFTOVER = "leftover"
    ENDED = "ended"
    ACCOUNT_ENDED = "account_ended"
    UNPAID = "unpaid"
    BASE = "base"


@value_class
class Kept:
    """What exists on a host: disks by id, what is being read or made, trees and what lies over each."""

    disks: frozenset[str]
    in_use: frozenset[str] = frozenset()
    trees: frozenset[str] = frozenset()
    # By a disk, a sandbox or a name: the tree that it needs.
    lies_over: Mapping[str, str] | None = None


def collectable(
    kept: Kept, images: Iterable[PublishedImage], *, ended_accounts: Collection[str], now: datetime
) -> dict[str, Tier]:
    """Returns the id of each disk, or the name of each tree, that may be removed, with its tier."""
    known = {image.id: image for image in images}
    found: dict[str, Tier] = {}
    for disk in kept.disks | known.keys():
        tier = _tier(known.get(disk), ended_accounts=ended_accounts, now=now)
        if tier is not None and disk not in kept.in_use:
            found[disk] = tier
    over = kept.lies_over or {}
    # A tree is kept by what lies over it and stays. If a disk is removed now, its tree can go the next time.
    needed = {*over.values(), *(image.base for image in known.values() if image.state not in OVER)}
    return {**found, **dict.fromkeys(kept.trees - needed, Tier.BASE)}


def _tier(image: PublishedImage | None, *, ended_accounts: Collection[str], now: datetime) -> Tier | None:
    if image is None:
        return Tier.LEFTOVER
    if image.state in (*OVER, State.DROPPING):
        return Tier.ENDED
    if image.state is State.TAKING:
        return None
    if image.account in ended_accounts:
        return Tier.ACCOUNT_ENDED
    if image.state is State.UNPAID and image.expires_at is not None and image.expires_at <= now:
        return None if is_spared(image) else Tier.UNPAID
    return None


WHY = {
    Tier.LEFTOVER: "a disk without a record: something failed half-way",
    Tier.BASE: "an older build: no name means it, and no disk lies over it",
}


@value_class
class Garbage:
    # The name of a tree, or the id of a kept disk.
    id: str
    tier: Tier
    # The backend that has it; None for a tree.
    backend: str | None
    # None if nobody has measured it.
    size_bytes: int | None
    # Since when nobody is known to have needed it.
    since: datetime
    # False if others may need it; then it is only listed.
    is_ours: bool = True

    def goes_at(self, grace: timedelta) -> datetime | None:
        """Returns when it is removed, or None if that never happens by itself."""
        return self.since + grace if self.is_ours else None


def is_due(garbage: Garbage, *, grace: timedelta, now: datetime) -> bool:
    goes_at = garbage.goes_at(grace)
    return goes_at is not None and goes_at <= now


# A file beside `rootfs` notes since when nobody needs the tree; it is removed with the tree.
NOTE = "unneeded-since"
# Prefixes of a tree that is hidden while its users are asked once more, and of one that is being removed.
HIDDEN = ".hidden-"
GONE = ".gone-"


@brief_value_class
class Trees:
    """The trees of base images: which exist, since when each is unused, and their removal. Everything here
    blocks: callers run it in a thread.

    Only `<name>@<digest>` folders are ever touched, and never one that a name links to: the newest build of
    an image stays, whether anything lies over it or not.
    """

    path: Path
    # False if other servers may have disks over the same trees, which this one cannot know.
    is_ours: bool

    def all(self) -> Mapping[str, Image]:
        """Returns the trees by folder name, without those that a name links to."""
        if not self.path.is_dir():
            return {}
        meant = {os.path.basename(os.readlink(one)) for one in self.path.iterdir() if one.is_symlink()}
        return {
            image.folder.name: image
            for image in list_images(self.path)
            if "@" in image.folder.name
            and not image.folder.is_symlink()
            and image.rootfs.is_dir()
            and image.folder.name not in meant
        }

    def since(self, tree: str) -> datetime | None:
        """Returns when the tree was first seen unused, and notes it."""
        try:
            return datetime.fromisoformat((self.path / tree / NOTE).read_text().strip())
        except (OSError, ValueError):
            return None

    def note(self, tree: str, now: datetime) -> None:
        (self.path / tree / NOTE).write_text(now.isoformat() + "\n")

    def forget(self, tree: str) -> None:
        """Deletes that note, because somebody needs the tree again."""
        with suppress(FileNotFoundError):
            os.unlink(self.path / tree / NOTE)

    def remove(self, tree: str, is_needed: Callable[[], bool]) -> bool:
        """Hides the tree, asks once more whether anybody needs it, and only then removes it. Returns False if
        it stays.
        """
        try:
            with hold_images(self.path):
                if tree not in self.all():
                    return False
                hidden, gone = self.path / f"{HIDDEN}{tree}", self.path / f"{GONE}{tree}"
                os.rename(self.path / tree, hidden)
                is_wanted = True
                try:
                    is_wanted = is_needed()
                finally:
                    # A user that cannot be asked may need it.
                    if is_wanted:
                        os.rename(hidden, self.path / tree)
                if is_wanted:
                    return False
                os.rename(hidden, gone)
                remove_tree(gone)
                return True
        except ImageBuildFailed:
            # A build is running and may be about to use this tree.
            return False

    def sweep(self) -> None:
        """At the start: removes the trees that a killed server had decided to remove, and restores the ones
        it had only hidden.
        """
        if not self.is_ours or not self.path.is_dir():
            return
        for folder in self.path.glob(f"{GONE}*"):
            remove_tree(folder)
        for folder in self.path.glob(f"{HIDDEN}*"):
            os.rename(folder, self.path / folder.name.removeprefix(HIDDEN))


log = logging.getLogger(__name__)
EVERY = timedelta(hours=1)


@value_class
class Collector:
    dependencies: SandboxDependencies
    store: Store
    clock: Clock
    trees: Trees
    grace: timedelta

    async def find(self, caller: Caller) -> Sequence[Garbage]:
        demand_operator(caller)
        return await self.look()

    async def collect(self, caller: Caller, *, despite_grace: bool = False) -> Sequence[Garbage]:
        """Removes garbage and returns what was removed. `despite_grace` includes what has not been garbage
        for long enough.
        """
        demand_operator(caller)
        return await self.remove_due(despite_grace=despite_grace)

    async def run(self) -> None:
        """Collects again and again until it is cancelled."""
        while True:
            try:
                await self.remove_due()
            except Exception:
                # An outermost loop: the next round tries again.
                log.exception("the collector of garbage could not look")
            await self.clock.sleep(EVERY)

    async def remove_due(self, *, despite_grace: bool = False) -> Sequence[Garbage]:
        grace = timedelta(0) if despite_grace else self.grace
        found, now = await self.look(), self.clock.now()
        due = [one for one in found if is_due(one, grace=grace, now=now)]
        return [one for one in due if await self._remove(one)]

    async def look(self) -> Sequence[Garbage]:
        """Returns everything that nobody needs now, and since when; what is new is noted."""
        now = self.clock.now()
        trees = await asyncio.to_thread(self.trees.all)
        kept = Kept(disks=frozenset(), trees=frozenset(trees), lies_over=await self._lies_over())
        living = await self.store.read(images.rows.living)
        found = {
            tree
            for tree, tier in collectable(kept, living, ended_accounts=(), now=now).items()
            if tier is Tier.BASE
        }
        since = await asyncio.to_thread(self._noted, trees, found, now)
        return [
            Garbage(
                id=tree,
                tier=Tier.BASE,
                backend=None,
                size_bytes=trees[tree].size_bytes,
                since=since[tree],
                is_ours=self.trees.is_ours,
            )
            for tree in sorted(found)
        ]

    def _noted(self, trees: Mapping[str, object], found: set[str], now: datetime) -> dict[str, datetime]:
        since = {}
        for tree in trees:
            if tree in found:
                if (known := self.trees.since(tree)) is None and self.trees.is_ours:
                    self.trees.note(tree, now)
                since[tree] = known or now
            elif self.trees.is_ours:
                self.trees.forget(tree)
        return since

    async def _lies_over(self) -> Mapping[str, str]:
        """Returns the tree that each user needs."""
        needs = await self.store.read(_named)
        for backend in self.dependencies.backends.values():
            if isinstance(backend, LiesOverTrees):
                needs |= await backend.lies_over()
        return needs

    async def _remove(self, garbage: Garbage) -> bool:
        try:
            if not await self._remove_tree(garbage.id):
                return False
        except Exception:
            # A failure with one piece must not keep the others.
            log.exception("%s could not be removed", garbage.id)
            return False
        log.info("removed %s: %s since %s", garbage.id, garbage.tier.value, garbage.since.isoformat())
        return True

    async def _remove_tree(self, tree: str) -> bool:
        loop = asyncio.get_running_loop()

        def is_needed() -> bool:
            """Runs in the thread, while the tree is hidden."""
            return tree in asyncio.run_coroutine_threadsafe(self._needed(), loop).result()

        return await asyncio.to_thread(self.trees.remove, tree, is_needed)

    async def _needed(self) -> set[str]:
        bases = {one.base for one in await self.store.read(images.rows.living)}
        return {*bases, *(await self._lies_over()).values()}


def _named(conn: Connection) -> dict[str, str]:
    """Returns records that name a tree directly. Records that name an image use its present tree, which
    stays.
    """
    table = snapshots.snapshots
    rows = conn.execute(
        select(table.c.id, table.c.image).where(
            table.c.state.not_in([state.value for state in OVER]), table.c.image.contains("@")
        )
    )
    return {row.id: row.image for row in rows}
