"""Volumes as rows: the values, their tables, and the few queries on them, which decide nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    func,
    insert,
    select,
)

from sandboxer.artifacts.policy import Holding
from sandboxer.artifacts.volumes.lifecycle import OVER, State
from sandboxer.sandboxes.lifecycle import State as SandboxState
from sandboxer.sandboxes.records import sandboxes
from sandboxer.store.metadata import JsonValue, UtcDateTime, metadata
from sandboxer.store.rows import MAPPING, Page, Rows, enumerated

MB = 1 << 20
# A sandbox in one of these states has nothing attached: it has no processes and will have none.
_LET_GO = (SandboxState.DESTROYED.value, SandboxState.FAILED.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    id: str
    # Grows by one with every write; a write from an older version is refused.
    version: int
    account: str
    created_by: str
    # Unique within its account.
    name: str
    state: State
    reason: str
    backend: str
    size_mb: int
    # The snapshot that it was copied from.
    origin: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    # What it costs, in msats a second; its size decides.
    rate_msats: int = 0
    created_at: datetime
    state_since: datetime
    # While it is unpaid: when it is dropped unless somebody pays before.
    expires_at: datetime | None = None
    ended_at: datetime | None = None
    locked_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    volume_id: str
    sandbox_id: str
    path: str
    is_read_only: bool
    attached_at: datetime


volumes = Table(
    "volumes",
    metadata,
    Column("id", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("account", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("name", Text, nullable=False),
    # Account and name of a volume that still exists; no two have the same.
    Column("taken_name", Text),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("backend", Text, nullable=False),
    Column("size_mb", BigInteger, nullable=False),
    Column("origin", Text),
    Column("labels", JsonValue, nullable=False),
    Column("rate_msats", BigInteger, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("state_since", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("locked_at", UtcDateTime),
    UniqueConstraint("taken_name"),
    Index(None, "account", "created_at", "id"),
    Index(None, "state"),
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


def holding(conn: Connection, account: str) -> Holding:
    query = select(func.count(), func.coalesce(func.sum(volumes.c.size_mb), 0)).where(
        volumes.c.account == account, rows.is_left
    )
    count, size_mb = conn.execute(query).one()
    return Holding(count=int(count), size_bytes=int(size_mb) * MB)


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
    states: Sequence[State],
    cursor: str | None,
    limit: int,
) -> Page[Volume]:
    """Returns volumes, newest first. `account` None means everyone's. No `states` means all of which
    something is left.
    """
    query = select(volumes)
    if account is not None:
        query = query.where(volumes.c.account == account)
    if states:
        query = query.where(volumes.c.state.in_([state.value for state in states]))
    else:
        query = query.where(rows.is_left)
    return rows.page(conn, query, cursor=cursor, limit=limit)
