"""Snapshots as rows: the value, its tables, and the few queries on them. They decide nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Index,
    Integer,
    Row,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
    type_coerce,
    update,
)

from sandboxer.artifacts.snapshots.lifecycle import OVER, State
from sandboxer.artifacts.snapshots.policy import Holding
from sandboxer.backends.contract import Content, Resources
from sandboxer.store.metadata import JsonValue, UtcDateTime, metadata
from sandboxer.store.paging import newest_first, next_cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    id: str
    # Grows by one with every write; a write from an older version is refused.
    version: int
    account: str
    created_by: str
    name: str | None
    state: State
    reason: str
    # The sandbox it was taken of, and the snapshot its disk descended from then.
    sandbox_id: str
    parent_id: str | None
    backend: str
    # What clones of it are made as, unless they ask for something else.
    image: str
    profile: str
    resources: Resources
    content: Content = Content.FILES
    labels: Mapping[str, str] = field(default_factory=dict)
    size_bytes: int = 0
    # False: `size_bytes` is at most that much, nobody has looked at every file yet.
    is_measured: bool = False
    # What keeping it costs, in msats a second; fixed by its size.
    rate_msats: int = 0
    created_at: datetime
    state_since: datetime
    # When it is dropped; while unpaid, unless somebody pays before.
    expires_at: datetime | None = None
    # While unpaid: when it would be dropped otherwise.
    paid_expires_at: datetime | None = None
    ended_at: datetime | None = None
    locked_at: datetime | None = None
    took_ms: Mapping[str, float] = field(default_factory=dict)


snapshots = Table(
    "snapshots",
    metadata,
    Column("id", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("account", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("name", Text),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("sandbox_id", Text, nullable=False),
    Column("parent_id", Text),
    Column("backend", Text, nullable=False),
    Column("image", Text, nullable=False),
    Column("profile", Text, nullable=False),
    Column("resources", JsonValue, nullable=False),
    Column("content", Text, nullable=False),
    Column("labels", JsonValue, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("is_measured", Boolean, nullable=False),
    Column("rate_msats", BigInteger, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("state_since", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime),
    Column("paid_expires_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("locked_at", UtcDateTime),
    Column("took_ms", JsonValue, nullable=False),
    Index(None, "account", "created_at", "id"),
    Index(None, "state"),
    Index(None, "sandbox_id"),
    Index(None, "parent_id"),
)

# Which snapshot the present disk of a sandbox descends from: the last one taken of it or restored to it.
disk_heads = Table(
    "disk_heads",
    metadata,
    Column("sandbox_id", Text, primary_key=True),
    Column("snapshot_id", Text, nullable=False),
)

_FIELDS = tuple(f.name for f in fields(Snapshot))
_RESOURCES = tuple(f.name for f in fields(Resources))


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPage:
    snapshots: Sequence[Snapshot]
    next_cursor: str | None


def insert_record(conn: Connection, snapshot: Snapshot) -> None:
    conn.execute(insert(snapshots).inline(), _to_row(snapshot))


def replace_record(conn: Connection, before: Snapshot, after: Snapshot) -> bool:
    """Unless someone wrote first; False then, and nothing is changed."""
    fenced = update(snapshots).where(snapshots.c.id == before.id, snapshots.c.version == before.version)
    return conn.execute(fenced.values(**_to_row(after))).rowcount == 1


def load(conn: Connection, snapshot_id: str) -> Snapshot | None:
    row = conn.execute(select(snapshots).where(snapshots.c.id == snapshot_id)).one_or_none()
    return None if row is None else _from_row(row)


def load_living(conn: Connection, account: str | None = None) -> list[Snapshot]:
    """All of which something may be left."""
    query = select(snapshots).where(snapshots.c.state.not_in([state.value for state in OVER]))
    if account is not None:
        query = query.where(snapshots.c.account == account)
    return [_from_row(row) for row in conn.execute(query)]


def load_tree(conn: Connection, account: str, *, limit: int) -> list[Snapshot]:
    """Everything an account ever kept, newest first: what is gone may lie between what is not."""
    query = (
        select(snapshots)
        .where(snapshots.c.account == account, snapshots.c.state != State.FAILED.value)
        .order_by(snapshots.c.created_at.desc(), snapshots.c.id.desc())
        .limit(limit)
    )
    return [_from_row(row) for row in conn.execute(query)]


def holding(conn: Connection, account: str) -> Holding:
    query = select(func.count(), func.coalesce(func.sum(snapshots.c.size_bytes), 0)).where(
        snapshots.c.account == account, snapshots.c.state.not_in([state.value for state in OVER])
    )
    count, size = conn.execute(query).one()
    return Holding(count=int(count), size_bytes=int(size))


def head_of(conn: Connection, sandbox_id: str) -> str | None:
    query = select(disk_heads.c.snapshot_id).where(disk_heads.c.sandbox_id == sandbox_id)
    return conn.execute(query).scalar()


def set_head(conn: Connection, sandbox_id: str, snapshot_id: str) -> None:
    conn.execute(delete(disk_heads).where(disk_heads.c.sandbox_id == sandbox_id))
    conn.execute(insert(disk_heads).inline(), {"sandbox_id": sandbox_id, "snapshot_id": snapshot_id})


def owners_of_snapshots(conn: Connection, subjects: Iterable[str]) -> dict[str, str]:
    """The account of each subject that is a snapshot."""
    wanted = [subject for subject in subjects if subject.startswith("snp_")]
    if not wanted:
        return {}
    rows = conn.execute(select(snapshots.c.id, snapshots.c.account).where(snapshots.c.id.in_(wanted)))
    return {row.id: row.account for row in rows}


def load_page(
    conn: Connection,
    *,
    account: str | None,
    sandbox_id: str | None,
    states: Sequence[State],
    labels: Mapping[str, str],
    cursor: str | None,
    limit: int,
) -> SnapshotPage:
    """Newest first. `account` None: everyone's. No states: all of which something is left."""
    query = select(snapshots)
    if account is not None:
        query = query.where(snapshots.c.account == account)
    if sandbox_id is not None:
        query = query.where(snapshots.c.sandbox_id == sandbox_id)
    if states:
        query = query.where(snapshots.c.state.in_([state.value for state in states]))
    else:
        query = query.where(snapshots.c.state.not_in([state.value for state in OVER]))
    for key, value in labels.items():
        # An account keeps few: no table of its own, as sandboxes have.
        query = query.where(type_coerce(snapshots.c.labels, JSON)[key].as_string() == value)
    query = newest_first(query, snapshots, cursor=cursor, limit=limit)
    found = [_from_row(row) for row in conn.execute(query)]
    return SnapshotPage(snapshots=found[:limit], next_cursor=next_cursor(found, limit))


def _to_row(snapshot: Snapshot) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(snapshot, name) for name in _FIELDS}
    row["state"] = snapshot.state.value
    row["content"] = snapshot.content.value
    row["labels"] = dict(snapshot.labels)
    row["took_ms"] = dict(snapshot.took_ms)
    row["resources"] = {name: getattr(snapshot.resources, name) for name in _RESOURCES}
    return row


def _from_row(row: Row[Any]) -> Snapshot:
    cells = {name: row._mapping[name] for name in _FIELDS}
    return Snapshot(
        **{
            **cells,
            "state": State(cells["state"]),
            "content": Content(cells["content"]),
            "resources": Resources(**cells["resources"]),
        }
    )
