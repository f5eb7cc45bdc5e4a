"""What is held in quarantine, and for how long it was seen there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import BigInteger, Column, Connection, Table, Text, and_, select

from sandboxer.store.metadata import UtcDateTime, metadata

quarantined = Table(
    "quarantine",
    metadata,
    Column("backend", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("first_seen", UtcDateTime, nullable=False),
    Column("last_seen", UtcDateTime, nullable=False),
    Column("seen_for_ms", BigInteger, nullable=False),
)


class Kind(StrEnum):
    SANDBOX = "sandbox"
    SNAPSHOT = "snapshot"
    IMAGE = "image"
    VOLUME = "volume"
    PROCESS = "process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Something on a host that no record accounts for."""

    id: str
    kind: Kind
    backend: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """How long something unknown was seen. Time in which nobody looked does not count."""

    first_seen: datetime
    last_seen: datetime
    seen_for: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    unknown: Unknown
    sighting: Sighting


def load_sightings(conn: Connection) -> dict[tuple[str, str], Sighting]:
    """By backend and id."""
    return {
        (row.backend, row.id): Sighting(
            first_seen=row.first_seen,
            last_seen=row.last_seen,
            seen_for=timedelta(milliseconds=row.seen_for_ms),
        )
        for row in conn.execute(select(quarantined))
    }


def replace_sightings(conn: Connection, kinds: Collection[Kind], held: Sequence[Held]) -> None:
    """Of these kinds exactly these are held; other kinds stay as they are."""
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
