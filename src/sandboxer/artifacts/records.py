"""What the records of everything that is kept have in common: their fields, their columns and a few queries,
which decide nothing.

The lifecycle of everything that is kept: one table for snapshots and images, one for volumes. Every change
of state goes through a `Lifecycle`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Index, Integer, Select, Table, Text, func, select
from sqlalchemy.sql.schema import SchemaItem

from sandboxer.backends.contract import Resources
from sandboxer.kernel.values import value_class
from sandboxer.store.metadata import UtcDateTime, metadata, nullable, required
from sandboxer.store.rows import Record, Rows
from sandboxer.store.steps import Lifecycle


class State(StrEnum):
    # Recorded, and the backend is making it. After a crash it stays so until the next start checks it.
    # A volume is `making` and then `ready`, everything else `taking` and then `kept`.
    TAKING = "taking"
    MAKING = "making"
    KEPT = "kept"
    READY = "ready"
    # Its account ran dry; it is kept for the retention time all the same. A volume cannot be attached anew.
    UNPAID = "unpaid"
    # It is being removed; it is gone, and only the record stays.
    DROPPING = "dropping"
    DROPPED = "dropped"
    # It could not be made; its disk is missing or was altered.
    FAILED = "failed"
    LOST = "lost"


class Signal(StrEnum):
    TAKEN = "taken"
    MADE = "made"
    FAIL = "fail"
    # Its disk is missing or altered.
    MISSED = "missed"
    DRY = "dry"
    PAID = "paid"
    # A caller asked for it, or its account ended; its time is over; nobody paid in time.
    DROP = "drop"
    EXPIRE = "expire"
    RETENTION_OVER = "retention_over"
    REMOVED = "removed"


S, E = State, Signal

BEGUN = frozenset({S.TAKING, S.MAKING})
# There is a disk, and somebody pays for it.
PAID = frozenset({S.KEPT, S.READY})
# There is a disk to restore, to copy or to attach.
USABLE = PAID | {S.UNPAID}
# Nothing is left of it, and its name is free.
OVER = frozenset({S.DROPPED, S.FAILED})


def _transitions(begun: State, made: Signal, kept: State) -> Mapping[tuple[State, Signal], State]:
    return {
        (begun, made): kept,
        (begun, E.FAIL): S.FAILED,
        (kept, E.DRY): S.UNPAID,
        (S.UNPAID, E.PAID): kept,
        **{(s, E.MISSED): S.LOST for s in (kept, S.UNPAID)},
        **{(s, E.DROP): S.DROPPING for s in (kept, S.UNPAID, S.LOST)},
        (S.UNPAID, E.RETENTION_OVER): S.DROPPING,
        (S.DROPPING, E.REMOVED): S.DROPPED,
    }


# Of snapshots and images. Volumes have no time of their own that could be over.
DISKS = Lifecycle(
    {
        **_transitions(S.TAKING, E.TAKEN, S.KEPT),
        **{(s, E.EXPIRE): S.DROPPING for s in (S.KEPT, S.UNPAID)},
    },
    ended=OVER | {S.LOST},
    hint="Look at its state: GET /v1/snapshots/{id}.",
)
VOLUMES = Lifecycle(
    _transitions(S.MAKING, E.MADE, S.READY),
    ended=OVER | {S.LOST},
    hint="Look at its state: GET /v1/volumes/{id}.",
)


MB = 1 << 20


@value_class
class KeptRecord(Record):
    """Anything that is kept and charged by its size: a snapshot, an image, a volume."""

    state: State
    backend: str
    # What keeping it costs, in msats a second; its size decides.
    rate_msats: int = 0
    state_since: datetime
    # When it is dropped. While it is unpaid: unless somebody pays before.
    expires_at: datetime | None = None
    ended_at: datetime | None = None
    locked_at: datetime | None = None

    def priced(self) -> tuple[str, int]:
        """Returns what its price depends on: its profile, which may make it free, and its size in bytes."""
        raise NotImplementedError


@value_class
class DiskRecord(KeptRecord):
    """The kept disk of a sandbox: a snapshot or an image."""

    # The defaults for sandboxes that are made from it and do not ask for something else.
    profile: str
    resources: Resources
    size_bytes: int = 0

    def priced(self) -> tuple[str, int]:
        return self.profile, self.size_bytes


def kept_table(name: str, *own: SchemaItem) -> Table:
    """Makes the table of one kind: the columns of every kept record, and its own."""
    return Table(
        name,
        metadata,
        Column("id", Text, primary_key=True),
        Column("version", Integer, nullable=False),
        *required(Text, "account", "created_by", "state", "reason", "backend"),
        Column("rate_msats", BigInteger, nullable=False),
        *required(UtcDateTime, "created_at", "state_since"),
        *nullable(UtcDateTime, "expires_at", "ended_at", "locked_at"),
        *own,
        Index(None, "account", "created_at", "id"),
        Index(None, "state"),
    )


@value_class
class Holding:
    """How much an account keeps of one kind."""

    count: int
    size_bytes: int


def matching(rows: Rows[Any], state: State | None, **wanted: object) -> Select[Any]:
    """Asks for the rows with these values; None stands for any value, and without a state for all of which
    something is left.
    """
    query = rows.matching(state=state, **wanted)
    return query.where(rows.is_left) if state is None else query


def holding(conn: Connection, rows: Rows[Any], account: str) -> Holding:
    table = rows.table
    size = table.c.size_bytes if "size_bytes" in table.c else table.c.size_mb * MB
    query = select(func.count(), func.coalesce(func.sum(size), 0)).where(
        table.c.account == account, rows.is_left
    )
    count, size_bytes = conn.execute(query).one()
    return Holding(count=int(count), size_bytes=int(size_bytes))
