"""Published images as rows: the values, their tables, and the few queries on them, which decide nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Index,
    Integer,
    Table,
    Text,
    and_,
    delete,
    insert,
    or_,
    select,
)

from sandboxer.artifacts.images.published.scan import Finding
from sandboxer.artifacts.records import OVER, USABLE, DiskRecord, State, kept_table
from sandboxer.backends.contract import Resources
from sandboxer.kernel.values import value_class
from sandboxer.store.metadata import JsonValue, UtcDateTime, metadata, required
from sandboxer.store.rows import MAPPING, TUPLE, Cell, Page, Rows, enumerated, parts


class Visibility(StrEnum):
    # Visible to accounts with a grant; to whoever knows its id; to everyone.
    PRIVATE = "private"
    UNLISTED = "unlisted"
    PUBLIC = "public"


@value_class
class Tag:
    """Says that an image is what a template of its name means by a tag."""

    # The build that made it.
    build_id: str
    at: datetime


@value_class
class PublishedImage(DiskRecord):
    name: str
    description: str
    visibility: Visibility
    # What it was made of: a snapshot's id, another image's, "import", "build", or a reference to a registry.
    source: str
    # The tree it is a layer over.
    base: str
    # As in the config of an OCI image: Env, Entrypoint, Cmd, WorkingDir, User, Labels, ExposedPorts.
    config: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""
    files: int = 0
    # The first findings that look like secrets, and how many there are in all.
    findings: tuple[Finding, ...] = ()
    findings_count: int = 0
    # The first files that were left out of it, and how many there are in all.
    stripped: tuple[str, ...] = ()
    stripped_count: int = 0
    # How often it changed hands; each owner has a meter of its own.
    hands: int = 0
    offered_to: str | None = None
    verified_at: datetime | None = None
    tags: Mapping[str, Tag] = field(default_factory=dict)


published_images = kept_table(
    "published_images",
    *required(Text, "name", "description", "visibility", "source", "base", "profile", "digest"),
    *required(JsonValue, "resources", "config", "findings", "stripped"),
    *required(BigInteger, "size_bytes", "files"),
    *required(Integer, "findings_count", "stripped_count", "hands"),
    Column("offered_to", Text),
    Column("verified_at", UtcDateTime),
    Column("tags", JsonValue),
    Index(None, "visibility", "created_at", "id"),
)

image_grants = Table(
    "image_grants",
    metadata,
    Column("image_id", Text, primary_key=True),
    Column("account", Text, primary_key=True),
    Column("granted_at", UtcDateTime, nullable=False),
    Index(None, "account"),
)


class ImageRows(Rows[PublishedImage]):
    def usable_by(self, account: str) -> Sequence[ColumnElement[bool]]:
        """Those granted to it, and those for everyone; an unlisted one is found by its whole id only."""
        table, usable = self.table.c, self.table.c.state.in_([one.value for one in USABLE])
        granted = select(image_grants.c.image_id).where(image_grants.c.account == account)
        return (
            and_(table.id.in_(granted), usable),
            and_(table.visibility == Visibility.PUBLIC.value, usable),
        )


rows = ImageRows(
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
        "tags": Cell(
            write=lambda tags: (
                {name: [one.build_id, one.at.isoformat()] for name, one in tags.items()} or None
            ),
            read=lambda kept: {
                name: Tag(build_id=id_, at=datetime.fromisoformat(at))
                for name, (id_, at) in (kept or {}).items()
            },
        ),
        "resources": parts(Resources),
    },
)


class Filter(StrEnum):
    ALL = "all"
    OWNED = "owned"
    SHARED = "shared"
    PUBLIC = "public"


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


def find_fetched(conn: Connection, accounts: Sequence[str], named: str) -> PublishedImage | None:
    """Returns the newest usable image that was fetched by this reference, with or without its digest, of
    the first of these accounts that has one.
    """
    table = published_images
    is_it = or_(table.c.source == named, table.c.source.startswith(f"{named}@", autoescape=True))
    usable = table.c.state.in_([one.value for one in USABLE])
    for account in accounts:
        query = select(table).where(table.c.account == account, is_it, usable)
        if found := rows.page(conn, query, cursor=None, limit=1).records:
            return found[0]
    return None


def load_tagged(conn: Connection, account: str, name: str) -> list[PublishedImage]:
    """Returns the account's images of this name, newest first."""
    table = published_images
    query = select(table).where(table.c.account == account, table.c.name == name, rows.is_left)
    return list(rows.page(conn, query, cursor=None, limit=500).records)


def load_page(
    conn: Connection, *, account: str, which: Filter, cursor: str | None, limit: int
) -> Page[PublishedImage]:
    """Returns images, newest first: the account's own unless they are gone, and others' if they
    can be used.
    """
    table = published_images
    owned = and_(table.c.account == account, rows.is_left)
    shared, public = rows.usable_by(account)
    wanted = {
        Filter.ALL: or_(owned, shared, public),
        Filter.OWNED: owned,
        Filter.SHARED: shared,
        Filter.PUBLIC: public,
    }[which]
    query = select(table).where(wanted)
    return rows.page(conn, query, cursor=cursor, limit=limit)
