"""The record of a sandbox: the value, its tables, and the queries on them.

Queries are plain functions of a connection: the caller owns the transaction. They decide nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Float,
    ForeignKey,
    Index,
    Integer,
    Select,
    Table,
    Text,
    delete,
    exists,
    insert,
)

from sandboxer.backends.contract import Handle, Order, Resources, Trust, VolumeMount
from sandboxer.hosts.routes import records as kept_routes
from sandboxer.hosts.routes.records import UNROUTED, Route
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes import promises as kept_promises
from sandboxer.sandboxes import terms as money_terms
from sandboxer.sandboxes.lifecycle import FINAL, OVER, State
from sandboxer.sandboxes.promises import NOTHING, Promises
from sandboxer.sandboxes.terms import PAYS_NOTHING, Terms
from sandboxer.store.metadata import JsonValue, UtcDateTime, index_of, metadata, nullable, required
from sandboxer.store.rows import Cell, Record, Rows, enumerated, optional, parts, seconds
from sandboxer.store.sealed import SealedJson


@value_class
class Unboosted:
    resources: Resources
    terms: Terms


class AtEnd(StrEnum):
    """What becomes of a sandbox whose TTL is over."""

    DESTROY = "destroy"
    # It is stopped, and its disk is kept for the retention time.
    STOP = "stop"
    # The same, until somebody uses it: that starts it again.
    SLEEP = "sleep"


class OnParentEnd(StrEnum):
    """What becomes of the sandboxes that were made from inside one, when that ends."""

    END = "end"
    # They go on with what they were given; the account of whoever made their parent can end them.
    ADOPT = "adopt"


@value_class
class Inception:
    """What a sandbox was granted: to make others from inside, within these bounds."""

    # Moved from the balance of whoever made it.
    budget_sats: int
    # How many generations may follow below those that it makes.
    depth: int
    # How many sandboxes there may be at once, all generations together; None: no limit.
    slots: int | None
    scopes: tuple[str, ...]
    on_parent_end: OnParentEnd


@value_class
class Sandbox(Record):
    name: str | None
    state: State
    profile: str
    profile_version: str
    backend: str
    image: str
    trust: Trust
    # What it was asked to reach, in the caller's words; None: what its profile says.
    network: str | None = None
    resources: Resources
    # The environment of every command in it; a command's own variables override it.
    env: Mapping[str, str]
    labels: Mapping[str, str]
    inputs: Mapping[str, object]
    consumer: Mapping[str, object]
    # All running time that was granted, extensions included. It counts from ready_at, but not while stopped.
    ttl: timedelta
    # As the profile allowed when it was created: a later change of the profile does not touch it.
    ttl_max: timedelta
    idle_timeout: timedelta | None
    # When its present state began.
    state_since: datetime
    ready_at: datetime | None = None
    # While it lives, the end of its TTL; while stopped or failed, the end of its retention.
    expires_at: datetime | None = None
    ended_at: datetime | None = None
    # What is left of the TTL while it is stopped.
    ttl_left: timedelta | None = None
    handle: Handle | None = None
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    # What the profile's report command printed.
    report: Mapping[str, object] | None = None
    # What it pays, decided when it was created.
    terms: Terms = PAYS_NOTHING
    # Since when it is locked; see `locks`.
    locked_at: datetime | None = None
    # The resources and terms it has when its boost ends; None: it is not boosted.
    boosted_from: Unboosted | None = None
    # The kept disk that its own began as a copy of.
    origin: str | None = None
    # What it has attached, from its creation until it is destroyed.
    volumes: tuple[VolumeMount, ...] = ()
    at_end: AtEnd = AtEnd.DESTROY
    # None: it may not speak to the platform. A copy of its disk has none of it.
    inception: Inception | None = None
    promises: Promises = NOTHING
    # How its backend was chosen.
    route: Route = UNROUTED

    def order(self) -> Order:
        # The host name stays the default: a warm sandbox must not differ from one made to order.
        return Order(
            sandbox_id=self.id,
            image=self.image,
            resources=self.resources,
            trust=self.trust,
            origin=self.origin,
            volumes=self.volumes,
            folders=self.promises.folders(),
            gpus=self.route.basis.gpus,
        )

    def environment(self) -> dict[str, str]:
        """Return the environment of every command in it; a command's own variables override it."""
        inputs = {
            "SANDBOXER_INPUT_" + re.sub("[^A-Za-z0-9_]", "_", name).upper(): value
            if isinstance(value, str)
            else json.dumps(value)
            for name, value in self.inputs.items()
        }
        reference = self.promises.instructions_ref
        handed_on = {} if reference is None else {"SANDBOXER_SETUP_INSTRUCTIONS_REF": reference}
        return {"SANDBOXER_SANDBOX_ID": self.id, **handed_on, **inputs, **self.env}


_OVER = ", ".join(repr(state.value) for state in sorted(OVER))
sandboxes = Table(
    "sandboxes",
    metadata,
    Column("id", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    *required(Text, "account", "created_by"),
    Column("name", Text),
    *required(Text, "state", "reason", "profile", "profile_version", "backend", "image", "trust"),
    Column("network", Text),
    Column("resources", JsonValue, nullable=False),
    Column("env", SealedJson("sandboxes.env"), nullable=False),
    Column("labels", JsonValue, nullable=False),
    Column("inputs", SealedJson("sandboxes.inputs"), nullable=False),
    Column("consumer", JsonValue, nullable=False),
    *required(Float, "ttl_s", "ttl_max_s"),
    Column("idle_timeout_s", Float),
    *required(UtcDateTime, "created_at", "state_since"),
    *nullable(UtcDateTime, "ready_at", "expires_at", "ended_at"),
    Column("ttl_left_s", Float),
    Column("handle", JsonValue),
    Column("timings_ms", JsonValue, nullable=False),
    *nullable(JsonValue, "report", "terms"),
    Column("locked_at", UtcDateTime),
    Column("boosted_from", JsonValue),
    Column("origin", Text),
    Column("volumes", JsonValue),
    Column("at_end", Text),
    Column("inception", JsonValue),
    Column("promises", SealedJson("sandboxes.promises")),
    Column("route", JsonValue),
    Index(None, "account", "created_at", "id"),
    Index(None, "state"),
    # No two that an account could still use have the same name.
    index_of(None, "account", "name", where=f"name IS NOT NULL AND state NOT IN ({_OVER})", unique=True),
)

# Labels a second time, one row each, because SQLite and PostgreSQL index JSON differently.
sandbox_labels = Table(
    "sandbox_labels",
    metadata,
    Column("sandbox_id", Text, ForeignKey("sandboxes.id"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Index(None, "key", "value"),
)


_RESOURCES = parts(Resources)


def _unboosted(kept: Mapping[str, Any]) -> Unboosted:
    return Unboosted(resources=_RESOURCES.read(kept["resources"]), terms=money_terms.from_json(kept["terms"]))


def _inception(kept: Mapping[str, Any]) -> Inception:
    return Inception(
        budget_sats=kept["budget_sats"],
        depth=kept["depth"],
        slots=kept["slots"],
        scopes=tuple(kept["scopes"]),
        on_parent_end=OnParentEnd(kept["on_parent_end"]),
    )


class SandboxRows(Rows[Sandbox]):
    def has_name(self) -> ColumnElement[bool]:
        return sandboxes.c.state.not_in([state.value for state in OVER])

    def insert(self, conn: Connection, record: Sandbox) -> None:
        super().insert(conn, record)
        _insert_labels(conn, record)


def relabel(conn: Connection, record: Sandbox) -> None:
    """Write the labels of a record whose labels have changed."""
    conn.execute(delete(sandbox_labels).where(sandbox_labels.c.sandbox_id == record.id))
    _insert_labels(conn, record)


def _insert_labels(conn: Connection, record: Sandbox) -> None:
    if record.labels:
        marks = [{"sandbox_id": record.id, "key": k, "value": v} for k, v in record.labels.items()]
        conn.execute(insert(sandbox_labels), marks)


rows = SandboxRows(
    sandboxes,
    Sandbox,
    prefix="sbx_",
    over=FINAL,
    cells={
        "state": enumerated(State),
        "trust": enumerated(Trust),
        "resources": _RESOURCES,
        "ttl": seconds("ttl_s"),
        "ttl_max": seconds("ttl_max_s"),
        "idle_timeout": optional(seconds("idle_timeout_s")),
        "ttl_left": optional(seconds("ttl_left_s")),
        "handle": optional(
            Cell(
                write=lambda handle: {
                    "sandbox_id": handle.sandbox_id,
                    "backend": handle.backend,
                    "version": handle.version,
                    "data": dict(handle.data),
                },
                read=lambda kept: Handle(**kept),
            )
        ),
        "terms": Cell(write=money_terms.to_json, read=money_terms.from_json),
        "at_end": Cell(write=lambda at: at.value, read=lambda kept: AtEnd(kept or AtEnd.DESTROY)),
        "inception": optional(
            Cell(
                write=lambda one: {
                    "budget_sats": one.budget_sats,
                    "depth": one.depth,
                    "slots": one.slots,
                    "scopes": list(one.scopes),
                    "on_parent_end": one.on_parent_end.value,
                },
                read=_inception,
            )
        ),
        "boosted_from": optional(
            Cell(
                write=lambda kept: {
                    "resources": _RESOURCES.write(kept.resources),
                    "terms": money_terms.to_json(kept.terms),
                },
                read=_unboosted,
            )
        ),
        "route": Cell(write=kept_routes.to_json, read=kept_routes.from_json),
        "promises": Cell(write=kept_promises.to_json, read=kept_promises.from_json),
        "volumes": Cell(
            write=lambda mounts: [[one.volume_id, one.path, one.is_read_only] for one in mounts] or None,
            read=lambda kept: tuple(
                VolumeMount(volume_id=id_, path=path, is_read_only=only) for id_, path, only in kept or ()
            ),
        ),
    },
)


def load_account(conn: Connection, account: str, states: Iterable[State]) -> list[Sandbox]:
    """Load the sandboxes of one account that are in one of these states."""
    wanted = sandboxes.c.state.in_([one.value for one in states])
    return rows.where(conn, sandboxes.c.account == account, wanted)


def listed(
    account: str | None,
    labels: Mapping[str, str],
    states: Collection[State],
    *,
    image: str | None = None,
    ready_since: datetime | None = None,
) -> Select[Any]:
    """Asks for the sandboxes of an account; None: everyone's. Without states, all but destroyed ones."""
    words = [state.value for state in states]
    query = rows.matching(account=account, image=image)
    query = query.where(sandboxes.c.state.in_(words) if words else rows.is_left)
    if ready_since is not None:
        query = query.where(sandboxes.c.ready_at >= ready_since)
    for key, value in labels.items():
        mark = sandbox_labels.alias()
        query = query.where(
            exists().where(mark.c.sandbox_id == sandboxes.c.id, mark.c.key == key, mark.c.value == value)
        )
    return query
