"""Services as rows: the values, their tables, and the few queries on them.

Queries are plain functions of a connection: the caller owns the transaction. They decide nothing.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    delete,
    insert,
    select,
)

from sandboxer.kernel.values import value_class
from sandboxer.store.metadata import JsonValue, UtcDateTime, index_of, metadata, required
from sandboxer.store.rows import TUPLE, Cell, Record, Rows, enumerated
from sandboxer.store.sealed import SealedJson
from sandboxer.work.services.lifecycle import FINAL, Spec, State, spec_from_json


@value_class
class Service(Record):
    # Unique in its account; `slug` is unique on the platform, and its name in host names.
    name: str
    slug: str
    sandbox_id: str
    state: State
    state_since: datetime
    # Whether it should run, as its owner last said.
    is_wanted: bool
    spec: Spec
    # Sealed values; only their names are ever shown.
    vault: bytes | None
    vault_names: tuple[str, ...]
    vault_at: datetime | None
    # The id of its process, chosen before the start, so that it can be found again and is never started
    # twice.
    process_id: str | None = None
    port: int | None = None
    launched_at: datetime | None = None
    # How many processes it has had.
    run: int = 0
    # When its processes ended, as far as that still counts towards a crash loop.
    crashes: tuple[datetime, ...] = ()
    restart_at: datetime | None = None
    # When the program it runs was last changed.
    deployed_at: datetime


@value_class
class Domain:
    domain: str
    service_id: str
    # Whoever controls the domain must serve this token.
    token: str
    verified_at: datetime | None
    created_at: datetime
    # Since when the proof of a proven domain is missing.
    failing_since: datetime | None = None


services = Table(
    "services",
    metadata,
    Column("id", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    *required(Text, "account", "created_by", "name"),
    Column("slug", Text, nullable=False, unique=True),
    Column("sandbox_id", Text, nullable=False, unique=True),
    *required(Text, "state", "reason"),
    Column("state_since", UtcDateTime, nullable=False),
    Column("is_wanted", Boolean, nullable=False),
    Column("spec", SealedJson("services.spec"), nullable=False),
    Column("vault", LargeBinary),
    Column("vault_names", JsonValue, nullable=False),
    Column("vault_at", UtcDateTime),
    Column("process_id", Text),
    Column("port", Integer),
    Column("launched_at", UtcDateTime),
    Column("run", Integer, nullable=False),
    Column("crashes", JsonValue, nullable=False),
    Column("restart_at", UtcDateTime),
    *required(UtcDateTime, "created_at", "deployed_at"),
    index_of(None, "account", "name", where="state <> 'removed'", unique=True),
)

service_domains = Table(
    "service_domains",
    metadata,
    Column("domain", Text, primary_key=True),
    Column("service_id", Text, ForeignKey("services.id"), primary_key=True),
    Column("token", Text, nullable=False),
    Column("verified_at", UtcDateTime),
    Column("created_at", UtcDateTime, nullable=False),
    Column("failing_since", UtcDateTime),
    # Any number of services may claim a domain; only one may have it.
    index_of("ix_service_domains_verified", "domain", where="verified_at IS NOT NULL", unique=True),
    Index(None, "service_id"),
)


rows = Rows(
    services,
    Service,
    prefix="svc_",
    over=FINAL,
    cells={
        "state": enumerated(State),
        "spec": Cell(write=asdict, read=spec_from_json),
        "vault_names": TUPLE,
        "crashes": Cell(
            write=lambda moments: [one.isoformat() for one in moments],
            read=lambda kept: tuple(datetime.fromisoformat(one) for one in kept),
        ),
    },
)


def find_named(conn: Connection, account: str, name: str) -> str | None:
    wanted = select(services.c.id).where(services.c.account == account, services.c.name == name, rows.is_left)
    found: str | None = conn.execute(wanted).scalar_one_or_none()
    return found


def load_domains(conn: Connection) -> list[Domain]:
    return [Domain(**row._mapping) for row in conn.execute(select(service_domains))]


def domain_holder(conn: Connection, domain: str) -> str | None:
    """Returns the id of the service that has proven the domain, if any."""
    wanted = select(service_domains.c.service_id).where(
        service_domains.c.domain == domain, service_domains.c.verified_at.is_not(None)
    )
    found: str | None = conn.execute(wanted).scalar_one_or_none()
    return found


def put_domain(conn: Connection, domain: Domain) -> None:
    drop_domain(conn, domain.service_id, domain.domain)
    conn.execute(insert(service_domains), asdict(domain))


def drop_domain(conn: Connection, service_id: str, domain: str | None = None) -> None:
    """Of one service: this one, or all."""
    wanted = delete(service_domains).where(service_domains.c.service_id == service_id)
    conn.execute(wanted if domain is None else wanted.where(service_domains.c.domain == domain))
