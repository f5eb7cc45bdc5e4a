"""Finds trees that nobody needs on this host, shows them, and removes them when their grace is over.

Disks that have no record are the quarantine's (`sandboxes/quarantine.py`).

Records say what is needed, and so do the backends: a disk lies over the very tree that it began on, whatever
its image means today. Both are asked again when a tree is already out of sight, so that what began to need
it meanwhile gets it back.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import Connection, select

from sandboxer.artifacts.garbage.decision import Garbage, Kept, Tier, collectable, is_due
from sandboxer.artifacts.images.build import hold_images
from sandboxer.artifacts.images.catalog import Image, list_images
from sandboxer.artifacts.images.published import records as images
from sandboxer.artifacts.snapshots import records as snapshots
from sandboxer.artifacts.snapshots.lifecycle import OVER
from sandboxer.backends.contract import LiesOverTrees
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import ImageBuildFailed
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.stale import require_owner
from sandboxer.store.engine import Store

# Beside `rootfs` in a tree's folder, so that it goes with the tree: since when nobody needs it.
NOTE = "unneeded-since"
# Out of sight, until it was asked once more whether anybody needs it; decided, and on its way out.
HIDDEN = ".hidden-"
GONE = ".gone-"


@dataclass(frozen=True, slots=True)
class Trees:
    """The trees of base images as folders that may go: which there are, since when each is needed by nobody,
    and their removal. Everything here blocks: callers run it in a thread.

    Only `<name>@<digest>` folders are ever touched, and never one that a name links to: what the newest build
    of an image means stays, whether anything lies over it or not.
    """

    path: Path
    # False: other servers may have disks over the same trees, and nobody here can know.
    is_ours: bool

    def all(self) -> Mapping[str, Image]:
        """By the folder's name; those that a name means are not among them."""
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
        """Noted when it was first seen that nobody needs it."""
        try:
            return datetime.fromisoformat((self.path / tree / NOTE).read_text().strip())
        except (OSError, ValueError):
            return None

    def note(self, tree: str, now: datetime) -> None:
        (self.path / tree / NOTE).write_text(now.isoformat() + "\n")

    def forget(self, tree: str) -> None:
        """Somebody needs it again."""
        with suppress(FileNotFoundError):
            os.unlink(self.path / tree / NOTE)

    def remove(self, tree: str, is_needed: Callable[[], bool]) -> bool:
        """Out of everybody's sight first, then asked once more, and only then removed. False: it stays."""
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
                    # Whoever cannot be asked may need it.
                    if is_wanted:
                        os.rename(hidden, self.path / tree)
                if is_wanted:
                    return False
                os.rename(hidden, gone)
                _remove(gone)
                return True
        except ImageBuildFailed:
            # A build is under way, and may be about to mean another tree.
            return False

    def sweep(self) -> None:
        """At the start: what a killed server had decided on goes, what it had not comes back."""
        if not self.is_ours or not self.path.is_dir():
            return
        for folder in self.path.glob(f"{GONE}*"):
            _remove(folder)
        for folder in self.path.glob(f"{HIDDEN}*"):
            os.rename(folder, self.path / folder.name.removeprefix(HIDDEN))


def _remove(folder: Path) -> None:
    # Never across a mount.
    subprocess.run(["rm", "-rf", "--one-file-system", "--", str(folder)], check=False)


log = logging.getLogger(__name__)
EVERY = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    dependencies: SandboxDependencies
    store: Store
    clock: Clock
    trees: Trees
    grace: timedelta

    async def find(self, caller: Caller) -> Sequence[Garbage]:
        require_owner(caller)
        return await self.look()

    async def collect(self, caller: Caller, *, despite_grace: bool = False) -> Sequence[Garbage]:
        """What was removed. `despite_grace`: also what has not been garbage for long enough."""
        require_owner(caller)
        return await self.remove_due(despite_grace=despite_grace)

    async def run(self) -> None:
        """For ever; cancel it to stop."""
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
        """Everything that nobody needs now, and since when; what is new to us is noted."""
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
                known = self.trees.since(tree)
                if known is None and self.trees.is_ours:
                    self.trees.note(tree, now)
                since[tree] = known or now
            elif self.trees.is_ours:
                self.trees.forget(tree)
        return since

    async def _lies_over(self) -> Mapping[str, str]:
        """Tree by whatever needs it."""
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
            # One piece must not keep the others.
            log.exception("%s could not be removed", garbage.id)
            return False
        log.info("removed %s: %s since %s", garbage.id, garbage.tier.value, garbage.since.isoformat())
        return True

    async def _remove_tree(self, tree: str) -> bool:
        loop = asyncio.get_running_loop()

        def is_needed() -> bool:
            """In the thread, with the tree out of sight."""
            return tree in asyncio.run_coroutine_threadsafe(self._needed(), loop).result()

        return await asyncio.to_thread(self.trees.remove, tree, is_needed)

    async def _needed(self) -> set[str]:
        bases = {one.base for one in await self.store.read(images.rows.living)}
        return {*bases, *(await self._lies_over()).values()}


def _named(conn: Connection) -> dict[str, str]:
    """Records that name a tree outright. Those that name an image mean what it means, which stays."""
    table = snapshots.snapshots
    rows = conn.execute(
        select(table.c.id, table.c.image).where(
            table.c.state.not_in([state.value for state in OVER]), table.c.image.contains("@")
        )
    )
    return {row.id: row.image for row in rows}
