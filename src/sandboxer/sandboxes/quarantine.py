"""The quarantine lists everything on a host that has no record. It is removed only when the owner says so or
after a grace period; a start removes none of it.

Records can be wrong (another database, an older dump), and a removed disk is lost. Each kind of thing has a
`Source` that finds and removes it; the packages add theirs while the platform opens.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from sqlalchemy import BigInteger, Column, Connection, Table, Text, and_, select

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.values import value_class
from sandboxer.store.engine import Store
from sandboxer.store.metadata import UtcDateTime, metadata, required

quarantined = Table(
    "quarantine",
    metadata,
    Column("backend", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    *required(UtcDateTime, "first_seen", "last_seen"),
    Column("seen_for_ms", BigInteger, nullable=False),
)


class Kind(StrEnum):
    SANDBOX = "sandbox"
    SNAPSHOT = "snapshot"
    IMAGE = "image"
    VOLUME = "volume"
    PROCESS = "process"


@value_class
class Unknown:
    """Something on a host that has no record."""

    id: str
    kind: Kind
    backend: str
    why: str


@value_class
class Sighting:
    """How long something unknown has been seen. Time in which nobody looked does not count."""

    first_seen: datetime
    last_seen: datetime
    seen_for: timedelta


@value_class
class Held:
    unknown: Unknown
    sighting: Sighting


def load_sightings(conn: Connection) -> dict[tuple[str, str], Sighting]:
    """Load all sightings, by backend and id."""
    return {
        (row.backend, row.id): Sighting(
            first_seen=row.first_seen,
            last_seen=row.last_seen,
            seen_for=timedelta(milliseconds=row.seen_for_ms),
        )
        for row in conn.execute(select(quarantined))
    }


def replace_sightings(conn: Connection, kinds: Collection[Kind], held: Sequence[Held]) -> None:
    """Replace the sightings of these kinds; other kinds stay as they are."""
    conn.execute(quarantined.delete().where(quarantined.c.kind.in_([kind.value for kind in kinds])))
    if held:
        conn.execute(quarantined.insert(), [_row(one) for one in held])


def forget(conn: Connection, gone: Iterable[Unknown]) -> None:
    for one in gone:
        conn.execute(
            quarantined.delete().where(and_(quarantined.c.backend == one.backend, quarantined.c.id == one.id))
        )


def forget_all(conn: Connection) -> None:
    conn.execute(quarantined.delete())


def _row(held: Held) -> dict[str, object]:
    return {
        "backend": held.unknown.backend,
        "id": held.unknown.id,
        "kind": held.unknown.kind.value,
        "first_seen": held.sighting.first_seen,
        "last_seen": held.sighting.last_seen,
        # Rounded down: never longer than it was.
        "seen_for_ms": held.sighting.seen_for // timedelta(milliseconds=1),
    }


EVERY = timedelta(hours=1)
# One look adds at most so much, so that a clock set forward or a week without a server does not end it.
LONGEST_STEP = 2 * EVERY


def seen_again(before: Sighting | None, now: datetime) -> Sighting:
    """Return the sighting after one more look."""
    if before is None:
        return Sighting(first_seen=now, last_seen=now, seen_for=timedelta(0))
    elapsed = min(max(now - before.last_seen, timedelta(0)), LONGEST_STEP)
    return Sighting(
        first_seen=before.first_seen,
        last_seen=now,
        seen_for=before.seen_for + elapsed,
    )


def goes_at(sighting: Sighting, *, grace: timedelta, now: datetime) -> datetime:
    """Return when it is removed if somebody looks all the time and it gets no record."""
    return now + max(grace - sighting.seen_for, timedelta(0))


def is_due(sighting: Sighting, *, grace: timedelta) -> bool:
    return sighting.seen_for >= grace


log = logging.getLogger(__name__)


class Source(Protocol):
    @property
    def kinds(self) -> frozenset[Kind]: ...

    async def find(self) -> Sequence[Unknown]:
        """Return what exists and has no record."""

    async def remove(self, unknown: Unknown) -> bool:
        """Remove it, unless it has a record by now: False then."""


class Quarantine:
    def __init__(self, store: Store, clock: Clock, grace: timedelta) -> None:
        self._store = store
        self._clock = clock
        self.grace = grace
        self.sources: list[Source] = []

    async def look(self) -> Sequence[Held]:
        """Return everything unknown and record the sighting. A source that fails keeps its old sightings."""
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
        """Remove everything unknown, because the owner asked for it. Returns what was removed."""
        return await self._remove(await self.look())

    async def remove_due(self) -> Sequence[Held]:
        return await self._remove(
            [one for one in await self.look() if is_due(one.sighting, grace=self.grace)]
        )

    def goes_at(self, held: Held) -> datetime:
        return goes_at(held.sighting, grace=self.grace, now=self._clock.now())

    async def run(self) -> None:
        """For ever; cancel it to stop."""
        reported: set[str] = set()
        while True:
            try:
                await self.remove_due()
                held = await self.look()
                if fresh := [one for one in held if one.unknown.id not in reported]:
                    log.warning(
                        "%d things on this host have no record (`sandboxer inspect stale`): %s",
                        len(fresh),
                        ", ".join(one.unknown.id for one in fresh[:20]),
                    )
                reported = {one.unknown.id for one in held}
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
                # One failure must not keep the others from being removed.
                log.exception("%s could not be removed", one.unknown.id)
        await self._store.write(lambda conn: forget(conn, [one.unknown for one in removed]))
        return removed
