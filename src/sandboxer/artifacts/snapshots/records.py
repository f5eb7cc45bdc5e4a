"""Snapshots as rows: the values, their tables, and the few queries on them, which decide nothing. `grow`
shows snapshots and the sandboxes made from them as a tree of descent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from datetime import datetime

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Index,
    Table,
    Text,
    delete,
    insert,
    select,
    type_coerce,
)

from sandboxer.artifacts.records import OVER, USABLE, DiskRecord, State, kept_table, matching
from sandboxer.backends.contract import Content, Resources
from sandboxer.kernel.values import brief_value_class, is_volume_id, value_class
from sandboxer.store.metadata import JsonValue, UtcDateTime, metadata, nullable, required
from sandboxer.store.rows import MAPPING, Page, Rows, enumerated, parts


@value_class
class Snapshot(DiskRecord):
    name: str | None
    # The sandbox it was taken of, and the snapshot that its disk descended from at that time.
    sandbox_id: str
    parent_id: str | None
    image: str
    content: Content = Content.FILES
    labels: Mapping[str, str] = field(default_factory=dict)
    # False while `size_bytes` is only an upper bound, because not every file was measured yet.
    is_measured: bool = False
    # While it is unpaid: when it would be dropped if it were paid.
    paid_expires_at: datetime | None = None
    took_ms: Mapping[str, float] = field(default_factory=dict)


snapshots = kept_table(
    "snapshots",
    *nullable(Text, "name", "parent_id"),
    *required(Text, "sandbox_id", "image", "profile", "content"),
    *required(JsonValue, "resources", "labels", "took_ms"),
    Column("size_bytes", BigInteger, nullable=False),
    Column("is_measured", Boolean, nullable=False),
    Column("paid_expires_at", UtcDateTime),
    Index(None, "sandbox_id"),
    Index(None, "parent_id"),
)

# The snapshot that the present disk of a sandbox descends from: the last one taken of it or restored to it.
disk_heads = Table(
    "disk_heads",
    metadata,
    Column("sandbox_id", Text, primary_key=True),
    Column("snapshot_id", Text, nullable=False),
)

rows = Rows(
    snapshots,
    Snapshot,
    prefix="snp_",
    over=OVER,
    cells={
        "state": enumerated(State),
        "content": enumerated(Content),
        "labels": MAPPING,
        "took_ms": MAPPING,
        "resources": parts(Resources),
    },
)


def load_tree(conn: Connection, account: str, *, limit: int) -> list[Snapshot]:
    """Returns everything an account ever kept, newest first: a dropped one may have descendants that still
    exist.
    """
    query = (
        select(snapshots)
        .where(snapshots.c.account == account, snapshots.c.state != State.FAILED.value)
        .order_by(snapshots.c.created_at.desc(), snapshots.c.id.desc())
        .limit(limit)
    )
    return rows.all(conn, query)


def head_of(conn: Connection, sandbox_id: str) -> str | None:
    query = select(disk_heads.c.snapshot_id).where(disk_heads.c.sandbox_id == sandbox_id)
    return conn.execute(query).scalar()


def set_head(conn: Connection, sandbox_id: str, snapshot_id: str) -> None:
    conn.execute(delete(disk_heads).where(disk_heads.c.sandbox_id == sandbox_id))
    conn.execute(insert(disk_heads).inline(), {"sandbox_id": sandbox_id, "snapshot_id": snapshot_id})


def load_page(
    conn: Connection,
    *,
    account: str | None,
    sandbox_id: str | None,
    name: str | None,
    state: State | None,
    labels: Mapping[str, str],
    cursor: str | None,
    limit: int,
) -> Page[Snapshot]:
    """Returns snapshots, newest first. `account` None means everyone's. No `state` means all of which
    something is left.
    """
    query = matching(rows, state, account=account, sandbox_id=sandbox_id, name=name)
    for key, value in labels.items():
        # An account has few of them, so labels need no table of their own, unlike those of sandboxes.
        query = query.where(type_coerce(snapshots.c.labels, JSON)[key].as_string() == value)
    return rows.page(conn, query, cursor=cursor, limit=limit)


@brief_value_class
class Branch:
    snapshot: Snapshot
    # Sandboxes whose disk began as a copy of it, or that were last snapshotted as it or restored to it.
    sandbox_ids: tuple[str, ...] = ()
    # The same for volumes.
    volume_ids: tuple[str, ...] = ()
    branches: tuple[Branch, ...] = field(default_factory=tuple)


def grow(snapshots: Iterable[Snapshot], disks: Iterable[tuple[str, str]]) -> Sequence[Branch]:
    """Returns the trees of descent. `disks` are pairs: the id of a sandbox or volume, and of the snapshot its
    disk descends from.

    Dropped snapshots are left out, unless something that exists descends from them.
    """
    known = {one.id: one for one in snapshots}
    children: dict[str | None, list[Snapshot]] = {}
    for one in sorted(known.values(), key=lambda each: (each.created_at, each.id)):
        children.setdefault(one.parent_id if one.parent_id in known else None, []).append(one)
    living: dict[str, list[str]] = {}
    for id_, snapshot_id in disks:
        living.setdefault(snapshot_id, []).append(id_)
    # From the leaves up, without recursion: a lineage may be a thousand deep.
    grown: dict[str, Branch | None] = {}
    for one in _leaves_first(children):
        below = tuple(b for child in children.get(one.id, ()) if (b := grown[child.id]) is not None)
        held = sorted(living.get(one.id, ()))
        volumes = tuple(id_ for id_ in held if is_volume_id(id_))
        others = tuple(id_ for id_ in held if not is_volume_id(id_))
        is_shown = bool(below or held) or one.state in USABLE
        grown[one.id] = Branch(one, others, volumes, below) if is_shown else None
    return [b for root in children.get(None, ()) if (b := grown[root.id]) is not None]


def _leaves_first(children: dict[str | None, list[Snapshot]]) -> list[Snapshot]:
    order: list[Snapshot] = []
    waiting = list(children.get(None, ()))
    while waiting:
        one = waiting.pop()
        order.append(one)
        waiting.extend(children.get(one.id, ()))
    return order[::-1]


def flattened(branches: Sequence[Branch]) -> list[tuple[int, Branch]]:
    """Returns the branches line by line, parents before children, each with its depth."""
    lines: list[tuple[int, Branch]] = []
    waiting = [(0, branch) for branch in reversed(branches)]
    while waiting:
        depth, branch = waiting.pop()
        lines.append((depth, branch))
        waiting.extend((depth + 1, below) for below in reversed(branch.branches))
    return lines
