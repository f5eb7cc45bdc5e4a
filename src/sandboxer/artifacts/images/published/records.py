"""Published images as rows: the values, their tables, and the few queries on them, which decide nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    Table,
    Text,
    and_,
    delete,
    func,
    insert,
    or_,
    select,
)

from sandboxer.artifacts.images.published.scan import Finding
from sandboxer.artifacts.policy import Holding
from sandboxer.artifacts.snapshots.lifecycle import OVER, USABLE, State
from sandboxer.backends.contract import Resources
from sandboxer.store.metadata import JsonValue, UtcDateTime, metadata
from sandboxer.store.rows import MAPPING, TUPLE, Cell, Page, Rows, enumerated, parts


class Visibility(StrEnum):
    # Visible to accounts with a grant; to whoever knows its id; to everyone.
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
    # A state of the lifecycle of kept disks: taking, kept, unpaid, …
    state: State
    reason: str
    # What it was made of: a snapshot's id, another image's, or "import".
    source: str
    backend: str
    # The tree it is a layer over.
    base: str
    # The defaults for sandboxes that do not ask for something else.
    profile: str
    resources: Resources
    # As in the config of an OCI image: Env, Entrypoint, Cmd, WorkingDir, User, Labels, ExposedPorts.
    config: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""
    size_bytes: int = 0
    files: int = 0
    # The first findings that look like secrets, and how many there are in all.
    findings: tuple[Finding, ...] = ()
    findings_count: int = 0
    # The first files that were left out of it, and how many there are in all.
    stripped: tuple[str, ...] = ()
    stripped_count: int = 0
    rate_msats: int = 0
    # How often it changed hands; each owner has a meter of its own.
    hands: int = 0
    offered_to: str | None = None
    created_at: datetime
    state_since: datetime
    verified_at: datetime | None = None
    # While it is unpaid: when it is dropped.
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

rows = Rows(
    published_images,
    PublishedImage,
    prefix="img_",
    over=OVER,
    cells={
        "state": enumerated(State),
        "visibility": enumerated(Visibility),
        "config": MAPPING,
        "findings": Cell(
            write=lambda found: [[one.path, one.kind] for one in found],
            read=lambda kept: tuple(Finding(*each) for each in kept),
        ),
        "stripped": TUPLE,
        "resources": parts(Resources),
    },
)


class Filter(StrEnum):
    ALL = "all"
    OWNED = "owned"
    SHARED = "shared"
    PUBLIC = "public"


def holding(conn: Connection, account: str) -> Holding:
    table = published_images
    query = select(func.count(), func.coalesce(func.sum(table.c.size_bytes), 0)).where(
        table.c.account == account, rows.is_left
    )
    count, size = conn.execute(query).one()
    return Holding(count=int(count), size_bytes=int(size))


def grantees(conn: Connection, image_id: str) -> list[str]:
    query = select(image_grants.c.account).where(image_grants.c.image_id == image_id)
    return sorted(conn.execute(query).scalars())


def add_grant(conn: Connection, image_id: str, account: str, *, now: datetime) -> None:
    """Adds a grant. Granted already counts as success."""
    drop_grant(conn, image_id, account)
    conn.execute(insert(image_grants).inline(), {"image_id": image_id, "account": account, "granted_at": now})


def drop_grant(conn: Connection, image_id: str, account: str) -> None:
    conn.execute(
        delete(image_grants).where(image_grants.c.image_id == image_id, image_grants.c.account == account)
    )


def drop_grants(conn: Connection, image_id: str) -> None:
    conn.execute(delete(image_grants).where(image_grants.c.image_id == image_id))


def load_page(
    conn: Connection, *, account: str, which: Filter, cursor: str | None, limit: int
) -> Page[PublishedImage]:
    """Returns images, newest first: the account's own unless they are gone, and others' if they
    can be used.
    """
    table = published_images
    usable = table.c.state.in_([one.value for one in USABLE])
    granted = select(image_grants.c.image_id).where(image_grants.c.account == account)
    owned = and_(table.c.account == account, rows.is_left)
    shared = and_(table.c.id.in_(granted), usable)
    public = and_(table.c.visibility == Visibility.PUBLIC.value, usable)
    wanted = {
        Filter.ALL: or_(owned, shared, public),
        Filter.OWNED: owned,
        Filter.SHARED: shared,
        Filter.PUBLIC: public,
    }[which]
    query = select(table).where(wanted)
    return rows.page(conn, query, cursor=cursor, limit=limit)
