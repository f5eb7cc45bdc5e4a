"""Gives a database its identity: an id made once, and a count that grows while a server uses it.

Backends carry the same id beside their disks (see `sandboxes/binding.py`). The count tells a database from an
older copy of itself: what a dump restored has counted less than the disks have seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import BigInteger, Column, Connection, Integer, Table, Text, select

from sandboxer.kernel.ids import new_id
from sandboxer.store.metadata import UtcDateTime, metadata

installations = Table(
    "installation",
    metadata,
    # Always 1: there is one row.
    Column("only", Integer, primary_key=True),
    Column("id", Text, nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("made_at", UtcDateTime, nullable=False),
)


@dataclass(frozen=True, slots=True)
class Installation:
    id: str
    beat: int


def load(conn: Connection) -> Installation | None:
    """Returns the installation; None if no server has used this database since installations have ids."""
    row = conn.execute(select(installations.c.id, installations.c.beat)).first()
    return None if row is None else Installation(row.id, row.beat)


def ensure(conn: Connection, *, now: datetime) -> Installation:
    """Returns the installation, and makes it if need be."""
    known = load(conn)
    if known is not None:
        return known
    made = Installation(new_id("ins"), 0)
    conn.execute(installations.insert().values(only=1, id=made.id, beat=made.beat, made_at=now))
    return made


def count_on(conn: Connection, *, at_least: int = 0, now: datetime) -> Installation:
    """Raises the count by one, to at least `at_least`, and returns the installation. Makes it if need be."""
    known = ensure(conn, now=now)
    beat = max(known.beat + 1, at_least)
    conn.execute(installations.update().values(beat=beat))
    return Installation(known.id, beat)
