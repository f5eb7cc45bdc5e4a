"""Everything on a host that no record accounts for: noted when it is first seen, shown, and removed only when
the owner says so or after the grace period. A start removes none of it.

Records can be wrong (another database, an older dump), and disks cannot be made again. Each kind of thing has
a `Source` that finds and removes it; the rooms add theirs while the platform opens.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from sqlalchemy import Connection

from sandboxer.kernel.clock import Clock
from sandboxer.sandboxes.quarantine.policy import EVERY, goes_at, is_due, seen_again
from sandboxer.sandboxes.quarantine.records import (
    Held,
    Kind,
    Unknown,
    forget,
    load_sightings,
    replace_sightings,
)
from sandboxer.store.engine import Store

log = logging.getLogger(__name__)


class Source(Protocol):
    @property
    def kinds(self) -> frozenset[Kind]: ...

    async def find(self) -> Sequence[Unknown]:
        """What is there and has no record."""

    async def remove(self, unknown: Unknown) -> bool:
        """Remove it, unless it has a record by now: False then."""


class Quarantine:
    def __init__(self, store: Store, clock: Clock, grace: timedelta) -> None:
        self._store = store
        self._clock = clock
        self.grace = grace
        self.sources: list[Source] = []

    async def look(self) -> Sequence[Held]:
        """Everything unknown, noted. A source that cannot look keeps what it had noted."""
        found: list[Unknown] = []
        kinds: set[Kind] = set()
        for source in self.sources:
            try:
                found += await source.find()
            except Exception:
                log.exception("could not look for unknown %s", ", ".join(sorted(source.kinds)))
            else:
                kinds |= source.kinds
        now = self._clock.now()

        def note(conn: Connection) -> list[Held]:
            before = load_sightings(conn)
            held = [
                Held(unknown=one, sighting=seen_again(before.get((one.backend, one.id)), now))
                for one in found
            ]
            replace_sightings(conn, kinds, held)
            return held

        return await self._store.write(note)

    async def reap(self) -> Sequence[Held]:
        """Remove everything unknown, by the owner's word; says what was removed."""
        return await self._remove(await self.look())

    async def remove_due(self) -> Sequence[Held]:
        return await self._remove(
            [one for one in await self.look() if is_due(one.sighting, grace=self.grace)]
        )

    def goes_at(self, held: Held) -> datetime:
        return goes_at(held.sighting, grace=self.grace, now=self._clock.now())

    async def run(self) -> None:
        """For ever; cancel it to stop."""
        told: set[str] = set()
        while True:
            try:
                await self.remove_due()
                held = await self.look()
                if fresh := [one for one in held if one.unknown.id not in told]:
                    log.warning(
                        "%d things on this host have no record (`sandboxer inspect stale`): %s",
                        len(fresh),
                        ", ".join(one.unknown.id for one in fresh[:20]),
                    )
                told = {one.unknown.id for one in held}
            except Exception:
                # An outermost loop: the next round tries again.
                log.exception("could not look for things without a record")
            await self._clock.sleep(EVERY)

    async def _remove(self, held: Sequence[Held]) -> Sequence[Held]:
        removed = []
        for one in held:
            source = next(each for each in self.sources if one.unknown.kind in each.kinds)
            try:
                if await source.remove(one.unknown):
                    removed.append(one)
                    log.warning("removed %s of %s: %s", one.unknown.id, one.unknown.backend, one.unknown.why)
            except Exception:
                # One piece must not keep the others.
                log.exception("%s could not be removed", one.unknown.id)
        await self._store.write(lambda conn: forget(conn, [one.unknown for one in removed]))
        return removed
