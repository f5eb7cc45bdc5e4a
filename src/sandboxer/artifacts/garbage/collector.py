"""Finds trees that nobody needs on this host, shows them, and removes them when their grace is over.

Disks that have no record are the quarantine's (`sandboxes/quarantine/`).

Records say what is needed, and so do the backends: a disk lies over the very tree that it began on, whatever
its image means today. Both are asked again when a tree is already out of sight, so that what began to need
it meanwhile gets it back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, select

from sandboxer.artifacts.garbage.decision import Garbage, is_due
from sandboxer.artifacts.garbage.trees import Trees
from sandboxer.artifacts.images.published import records as images
from sandboxer.artifacts.images.published.collecting import Kept, Tier, collectable
from sandboxer.artifacts.snapshots import records as snapshots
from sandboxer.artifacts.snapshots.lifecycle import OVER
from sandboxer.backends.contract import LiesOverTrees
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.sandboxes.room import Room
from sandboxer.sandboxes.stale import require_owner
from sandboxer.store.engine import Store

log = logging.getLogger(__name__)
EVERY = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    room: Room
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
        living = await self.store.read(images.load_living)
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
        for backend in self.room.backends.values():
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
        bases = {one.base for one in await self.store.read(images.load_living)}
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
