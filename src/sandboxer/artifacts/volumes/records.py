"""Volumes as rows: the values, their tables, and the few queries on them, which decide nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields
from datetime import datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Table,
    Text,
    UniqueConstraint,
    insert,
    select,
)

from sandboxer.artifacts.records import MB, OVER, KeptRecord, State, kept_table, matching
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.lifecycle import State as SandboxState
from sandboxer.sandboxes.records import sandboxes
from sandboxer.store.metadata import JsonValue, UtcDateTime, metadata
from sandboxer.store.rows import MAPPING, Page, Rows, enumerated

# A sandbox in one of these states has nothing attached: it has no processes and will have none.
_LET_GO = (SandboxState.DESTROYED.value, SandboxState.FAILED.value)


@value_class
class Volume(KeptRecord):
    # Unique within its account.
    name: str
    size_mb: int
    # The snapshot that it was copied from.
    origin: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def priced(self) -> tuple[str, int]:
        """Returns no profile: none makes storage outside a sandbox free."""
        return "", self.size_mb * MB


@value_class
class Attachment:
    volume_id: str
    sandbox_id: str
    path: str
    is_read_only: bool
    attached_at: datetime


volumes = kept_table(
    "volumes",
    Column("name", Text, nullable=False),
    # Account and name of a volume that still exists; no two have the same.
    Column("taken_name", Text),
    Column("size_mb", BigInteger, nullable=False),
    Column("origin", Text),
    Column("labels", JsonValue, nullable=False),
    UniqueConstraint("taken_name"),
)

volume_attachments = Table(
    "volume_attachments",
    metadata,
    Column("volume_id", Text, primary_key=True),
    Column("sandbox_id", Text, primary_key=True),
    Column("path", Text, nullable=False),
    Column("is_read_only", Boolean, nullable=False),
    Column("attached_at", UtcDateTime, nullable=False),
)


def taken_name(account: str, name: str) -> str:
    return f"{account}/{name}"


rows = Rows(
    volumes,
    Volume,
    prefix="vol_",
    over=OVER,
    cells={"state": enumerated(State), "labels": MAPPING},
    derived={"taken_name": lambda one: None if one.state in OVER else taken_name(one.account, one.name)},
)


def load_named(conn: Connection, account: str, name: str) -> Volume | None:
    return rows.one(conn, volumes.c.taken_name == taken_name(account, name))


def attachments_of(
    conn: Connection, volume_ids: Iterable[str], *, without: Sequence[SandboxState] = ()
) -> dict[str, list[Attachment]]:
    """Returns attachments of these volumes to sandboxes that have processes or may have them again, and are
    in no state of `without`.
    """
    wanted, states = list(volume_ids), [*_LET_GO, *(state.value for state in without)]
    query = (
        select(volume_attachments)
        .join(sandboxes, sandboxes.c.id == volume_attachments.c.sandbox_id)
        .where(volume_attachments.c.volume_id.in_(wanted), sandboxes.c.state.not_in(states))
        .order_by(volume_attachments.c.attached_at, volume_attachments.c.sandbox_id)
    )
    found: dict[str, list[Attachment]] = {one: [] for one in wanted}
    for row in conn.execute(query):
        found[row.volume_id].append(Attachment(**row._mapping))
    return found


def insert_attachment(conn: Connection, attachment: Attachment) -> None:
    values = {f.name: getattr(attachment, f.name) for f in fields(Attachment)}
    conn.execute(insert(volume_attachments).inline(), values)


def load_page(
    conn: Connection,
    *,
    account: str | None,
    state: State | None,
    cursor: str | None,
    limit: int,
) -> Page[Volume]:
    """Returns volumes, newest first. `account` None means everyone's. No `state` means all of which
    something is left.
    """
    return rows.page(conn, matching(rows, state, account=account), cursor=cursor, limit=limit)
