"""Published images as rows: the value, its tables, and the few queries on them. They decide nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    Row,
    Table,
    Text,
    and_,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from sandboxer.artifacts.images.published.scanning import Finding
from sandboxer.artifacts.snapshots.lifecycle import OVER, USABLE, State
from sandboxer.artifacts.snapshots.policy import Holding
from sandboxer.backends.contract import Resources
from sandboxer.store.metadata import JsonValue, UtcDateTime, metadata
from sandboxer.store.paging import newest_first, next_cursor


class Visibility(StrEnum):
    # Whom it is granted to; whoever knows its id; everyone.
    PRIVATE = "private"
    UNLISTED = "unlisted"
    PUBLIC = "public"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedImage:
    id: str
    # Grows by one with every write; a write from an older version is refused.
    version: int
    account: str
    created_by: str
    name: str
    description: str
    visibility: Visibility
    # Of the life of any kept disk: taking, kept, unpaid, …
    state: State
    reason: str
    # What it was made of: a snapshot's id, another image's, or "import".
    source: str
    backend: str
    # The tree it is a layer over.
    base: str
    # What sandboxes of it are made as, unless they ask for something else.
    profile: str
    resources: Resources
    # As in the config of an OCI image: Env, Entrypoint, Cmd, WorkingDir, User, Labels, ExposedPorts.
    config: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""
    size_bytes: int = 0
    files: int = 0
    # The first of what looks like a secret, and how many there are.
    findings: tuple[Finding, ...] = ()
    findings_count: int = 0
    # How many files were left out of it, and the first of them.
    stripped: tuple[str, ...] = ()
    stripped_count: int = 0
    rate_msats: int = 0
    # Grows with every change of hands: each has a meter of its own.
    hands: int = 0
    offered_to: str | None = None
    created_at: datetime
    state_since: datetime
    verified_at: datetime | None = None
    # While unpaid: when it is dropped.
    expires_at: datetime | None = None
    ended_at: datetime | None = None
    locked_at: datetime | None = None


published_images = Table(
    "published_images",
    metadata,
    Column("id", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("account", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("visibility", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("backend", Text, nullable=False),
    Column("base", Text, nullable=False),
    Column("profile", Text, nullable=False),
    Column("resources", JsonValue, nullable=False),
    Column("config", JsonValue, nullable=False),
    Column("digest", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("files", BigInteger, nullable=False),
    Column("findings", JsonValue, nullable=False),
    Column("findings_count", Integer, nullable=False),
    Column("stripped", JsonValue, nullable=False),
    Column("stripped_count", Integer, nullable=False),
    Column("rate_msats", BigInteger, nullable=False),
    Column("hands", Integer, nullable=False),
    Column("offered_to", Text),
    Column("created_at", UtcDateTime, nullable=False),
    Column("state_since", UtcDateTime, nullable=False),
    Column("verified_at", UtcDateTime),
    Column("expires_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("locked_at", UtcDateTime),
    Index(None, "account", "created_at", "id"),
    Index(None, "visibility", "created_at", "id"),
    Index(None, "state"),
)

image_grants = Table(
    "image_grants",
    metadata,
    Column("image_id", Text, primary_key=True),
    Column("account", Text, primary_key=True),
    Column("granted_at", UtcDateTime, nullable=False),
    Index(None, "account"),
)

_FIELDS = tuple(f.name for f in fields(PublishedImage))
_RESOURCES = tuple(f.name for f in fields(Resources))


class Filter(StrEnum):
    ALL = "all"
    OWNED = "owned"
    SHARED = "shared"
    PUBLIC = "public"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePage:
    images: Sequence[PublishedImage]
    next_cursor: str | None


def insert_record(conn: Connection, image: PublishedImage) -> None:
    conn.execute(insert(published_images).inline(), _to_row(image))


def replace_record(conn: Connection, before: PublishedImage, after: PublishedImage) -> bool:
    """Unless someone wrote first; False then, and nothing is changed."""
    table = published_images
    fenced = update(table).where(table.c.id == before.id, table.c.version == before.version)
    return conn.execute(fenced.values(**_to_row(after))).rowcount == 1


def load(conn: Connection, image_id: str) -> PublishedImage | None:
    row = conn.execute(select(published_images).where(published_images.c.id == image_id)).one_or_none()
    return None if row is None else _from_row(row)


def load_living(conn: Connection) -> list[PublishedImage]:
    """All of which something may be left."""
    query = select(published_images).where(published_images.c.state.not_in([one.value for one in OVER]))
    return [_from_row(row) for row in conn.execute(query)]


def holding(conn: Connection, account: str) -> Holding:
    table = published_images
    query = select(func.count(), func.coalesce(func.sum(table.c.size_bytes), 0)).where(
        table.c.account == account, table.c.state.not_in([state.value for state in OVER])
    )
    count, size = conn.execute(query).one()
    return Holding(count=int(count), size_bytes=int(size))


def has_locked(conn: Connection, account: str) -> bool:
    table = published_images
    query = select(func.count()).where(
        table.c.account == account,
        table.c.locked_at.is_not(None),
        table.c.state.not_in([one.value for one in OVER]),
    )
    return bool(conn.execute(query).scalar())


def grantees(conn: Connection, image_id: str) -> list[str]:
    query = select(image_grants.c.account).where(image_grants.c.image_id == image_id)
    return sorted(conn.execute(query).scalars())


def add_grant(conn: Connection, image_id: str, account: str, *, now: datetime) -> None:
    """Granted already is success."""
    drop_grant(conn, image_id, account)
    conn.execute(insert(image_grants).inline(), {"image_id": image_id, "account": account, "granted_at": now})


def drop_grant(conn: Connection, image_id: str, account: str) -> None:
    conn.execute(
        delete(image_grants).where(image_grants.c.image_id == image_id, image_grants.c.account == account)
    )


def drop_grants(conn: Connection, image_id: str) -> None:
    conn.execute(delete(image_grants).where(image_grants.c.image_id == image_id))


def owners_of_images(conn: Connection, subjects: Iterable[str]) -> dict[str, str]:
    """The account of each subject that is a published image."""
    wanted = [subject for subject in subjects if subject.startswith("img_")]
    if not wanted:
        return {}
    table = published_images
    rows = conn.execute(select(table.c.id, table.c.account).where(table.c.id.in_(wanted)))
    return {row.id: row.account for row in rows}


def load_page(conn: Connection, *, account: str, which: Filter, cursor: str | None, limit: int) -> ImagePage:
    """Newest first: one's own whatever became of them short of gone, and of others' what can be used."""
    table = published_images
    usable = table.c.state.in_([one.value for one in USABLE])
    granted = select(image_grants.c.image_id).where(image_grants.c.account == account)
    owned = and_(table.c.account == account, table.c.state.not_in([one.value for one in OVER]))
    shared = and_(table.c.id.in_(granted), usable)
    public = and_(table.c.visibility == Visibility.PUBLIC.value, usable)
    wanted = {
        Filter.ALL: or_(owned, shared, public),
        Filter.OWNED: owned,
        Filter.SHARED: shared,
        Filter.PUBLIC: public,
    }[which]
    query = select(table).where(wanted)
    query = newest_first(query, table, cursor=cursor, limit=limit)
    found = [_from_row(row) for row in conn.execute(query)]
    return ImagePage(images=found[:limit], next_cursor=next_cursor(found, limit))


def _to_row(image: PublishedImage) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(image, name) for name in _FIELDS}
    row["state"] = image.state.value
    row["visibility"] = image.visibility.value
    row["config"] = dict(image.config)
    row["findings"] = [[one.path, one.kind] for one in image.findings]
    row["stripped"] = list(image.stripped)
    row["resources"] = {name: getattr(image.resources, name) for name in _RESOURCES}
    return row


def _from_row(row: Row[Any]) -> PublishedImage:
    cells = {name: row._mapping[name] for name in _FIELDS}
    return PublishedImage(
        **{
            **cells,
            "state": State(cells["state"]),
            "visibility": Visibility(cells["visibility"]),
            "findings": tuple(Finding(*each) for each in cells["findings"]),
            "stripped": tuple(cells["stripped"]),
            "resources": Resources(**cells["resources"]),
        }
    )
