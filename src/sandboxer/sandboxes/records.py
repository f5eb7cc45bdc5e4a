"""What the platform remembers of a sandbox: the value, its tables, and the few queries on them.

Queries are plain functions of a connection: the caller owns the transaction. They decide nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Float,
    ForeignKey,
    Index,
    Integer,
    Row,
    Select,
    Table,
    Text,
    bindparam,
    exists,
    func,
    insert,
    select,
    update,
)

from sandboxer.backends.contract import Handle, Order, Resources, Trust, VolumeMount
from sandboxer.kernel.errors import Broken
from sandboxer.sandboxes import terms as money_terms
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.terms import PAYS_NOTHING, Terms
from sandboxer.store.metadata import JsonValue, UtcDateTime, metadata
from sandboxer.store.paging import newest_first, next_cursor
from sandboxer.store.sealed import SealedJson


@dataclass(frozen=True, slots=True, kw_only=True)
class Unboosted:
    resources: Resources
    terms: Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    id: str
    # Grows by one with every write; a write from an older version is refused.
    version: int
    # Who may see it, and the key that asked for it.
    account: str
    created_by: str
    name: str | None
    state: State
    # Why it is in this state: the reason of its last step.
    reason: str
    profile: str
    profile_version: str
    backend: str
    image: str
    trust: Trust
    resources: Resources
    # For every command in it; a command's own win.
    env: Mapping[str, str]
    labels: Mapping[str, str]
    inputs: Mapping[str, object]
    consumer: Mapping[str, object]
    # Granted running time in all, extensions included; counts from ready_at, frozen included, stopped not.
    ttl: timedelta
    # As the profile allowed when it was created: a later change of the profile does not touch it.
    ttl_max: timedelta
    idle_timeout: timedelta | None
    created_at: datetime
    # When its present state began.
    state_since: datetime
    ready_at: datetime | None = None
    # While it lives: the end of its TTL. While stopped or failed: the end of what is kept of it.
    expires_at: datetime | None = None
    ended_at: datetime | None = None
    # What is left of the TTL while it is stopped.
    ttl_left: timedelta | None = None
    handle: Handle | None = None
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    # What the profile's report command said of the host, seen from inside.
    report: Mapping[str, object] | None = None
    # What it pays, decided when it was created.
    terms: Terms = PAYS_NOTHING
    # Since when it is destroyed or wiped only with a second proof; see `locks`.
    locked_at: datetime | None = None
    # What it has, and pays, when its boost ends; None: it is not boosted.
    boosted_from: Unboosted | None = None
    # The kept disk that its own began as a copy of.
    origin: str | None = None
    # What it has attached, from its creation until it is destroyed.
    volumes: tuple[VolumeMount, ...] = ()

    def order(self) -> Order:
        # The host name stays the default: a warm sandbox must not differ from one made to order.
        return Order(
            sandbox_id=self.id,
            image=self.image,
            resources=self.resources,
            trust=self.trust,
            origin=self.origin,
            volumes=self.volumes,
        )

    def environment(self) -> dict[str, str]:
        """What every command in it finds in its environment, beneath the command's own."""
        inputs = {
            "SANDBOXER_INPUT_" + re.sub("[^A-Za-z0-9_]", "_", name).upper(): value
            if isinstance(value, str)
            else json.dumps(value)
            for name, value in self.inputs.items()
        }
        return {"SANDBOXER_SANDBOX_ID": self.id, **inputs, **self.env}


sandboxes = Table(
    "sandboxes",
    metadata,
    Column("id", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("account", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("name", Text),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("profile", Text, nullable=False),
    Column("profile_version", Text, nullable=False),
    Column("backend", Text, nullable=False),
    Column("image", Text, nullable=False),
    Column("trust", Text, nullable=False),
    Column("resources", JsonValue, nullable=False),
    Column("env", SealedJson("sandboxes.env"), nullable=False),
    Column("labels", JsonValue, nullable=False),
    Column("inputs", SealedJson("sandboxes.inputs"), nullable=False),
    Column("consumer", JsonValue, nullable=False),
    Column("ttl_s", Float, nullable=False),
    Column("ttl_max_s", Float, nullable=False),
    Column("idle_timeout_s", Float),
    Column("created_at", UtcDateTime, nullable=False),
    Column("state_since", UtcDateTime, nullable=False),
    Column("ready_at", UtcDateTime),
    Column("expires_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("ttl_left_s", Float),
    Column("handle", JsonValue),
    Column("timings_ms", JsonValue, nullable=False),
    Column("report", JsonValue),
    Column("terms", JsonValue),
    Column("locked_at", UtcDateTime),
    Column("boosted_from", JsonValue),
    Column("origin", Text),
    Column("volumes", JsonValue),
    Index(None, "account", "created_at", "id"),
    Index(None, "state"),
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


# All else stays as it was requested.
CHANGES = (
    "version",
    "state",
    "reason",
    "env",
    "ttl_s",
    "state_since",
    "ready_at",
    "expires_at",
    "ended_at",
    "ttl_left_s",
    "handle",
    "timings_ms",
    "report",
    "terms",
    "locked_at",
    "resources",
    "boosted_from",
)
# One statement for every change: building and compiling another each time costs more than the write.
_INSERT = insert(sandboxes).inline()
_UPDATE = (
    update(sandboxes)
    .where(sandboxes.c.id == bindparam("fence_id"), sandboxes.c.version == bindparam("fence_version"))
    .values({name: bindparam(f"new_{name}", type_=sandboxes.c[name].type) for name in CHANGES})
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    sandboxes: Sequence[Sandbox]
    # Give it back to see what follows; None at the end.
    next_cursor: str | None


def insert_record(conn: Connection, sandbox: Sandbox) -> None:
    conn.execute(_INSERT, _to_row(sandbox))
    if sandbox.labels:
        rows = [{"sandbox_id": sandbox.id, "key": k, "value": v} for k, v in sandbox.labels.items()]
        conn.execute(insert(sandbox_labels), rows)


def replace_record(conn: Connection, before: Sandbox, after: Sandbox) -> bool:
    """Write what may change in a life, unless someone wrote first; False then, and nothing is changed."""
    row = _to_row(after)
    values = {f"new_{name}": row[name] for name in CHANGES}
    return (
        conn.execute(_UPDATE, {"fence_id": before.id, "fence_version": before.version, **values}).rowcount
        == 1
    )


def load_record(conn: Connection, sandbox_id: str) -> Sandbox | None:
    row = conn.execute(select(sandboxes).where(sandboxes.c.id == sandbox_id)).one_or_none()
    return None if row is None else _from_row(row)


def load_all_but(conn: Connection, states: Iterable[State]) -> list[Sandbox]:
    wanted = select(sandboxes).where(sandboxes.c.state.not_in([s.value for s in states]))
    return [_from_row(row) for row in conn.execute(wanted)]


def load_account(conn: Connection, account: str, states: Iterable[State]) -> list[Sandbox]:
    """Those of one account that are in one of these states."""
    wanted = select(sandboxes).where(
        sandboxes.c.account == account, sandboxes.c.state.in_([s.value for s in states])
    )
    return [_from_row(row) for row in conn.execute(wanted)]


def count_by_state(conn: Connection, account: str | None = None) -> dict[str, int]:
    """`account` None: everyone's."""
    counts = select(sandboxes.c.state, func.count()).group_by(sandboxes.c.state)
    if account is not None:
        counts = counts.where(sandboxes.c.account == account)
    return {state: int(number) for state, number in conn.execute(counts)}


def load_page(
    conn: Connection,
    *,
    account: str | None,
    labels: Mapping[str, str],
    states: Sequence[State],
    cursor: str | None,
    limit: int,
) -> Page:
    """Newest first. `account` None: everyone's. No states: all but destroyed ones."""
    query = _filtered(account, labels, states)
    query = newest_first(query, sandboxes, cursor=cursor, limit=limit)
    found = [_from_row(row) for row in conn.execute(query)]
    return Page(sandboxes=found[:limit], next_cursor=next_cursor(found, limit))


def _filtered(
    account: str | None, labels: Mapping[str, str], states: Sequence[State]
) -> Select[tuple[object, ...]]:
    query = select(sandboxes)
    if account is not None:
        query = query.where(sandboxes.c.account == account)
    if states:
        query = query.where(sandboxes.c.state.in_([s.value for s in states]))
    else:
        query = query.where(sandboxes.c.state != State.DESTROYED.value)
    for key, value in labels.items():
        mark = sandbox_labels.alias()
        query = query.where(
            exists().where(mark.c.sandbox_id == sandboxes.c.id, mark.c.key == key, mark.c.value == value)
        )
    return query


# Kept in another shape than the value's: plain numbers and JSON instead of types of ours.
_SPECIAL = (
    "state",
    "trust",
    "resources",
    "handle",
    "ttl",
    "ttl_max",
    "idle_timeout",
    "ttl_left",
    "terms",
    "boosted_from",
    "volumes",
)
_MAY_CHANGE = frozenset(name.removesuffix("_s") for name in CHANGES)
_RESOURCES = tuple(f.name for f in fields(Resources))
_PLAIN = tuple(f.name for f in fields(Sandbox) if f.name not in _SPECIAL)


def _to_row(sandbox: Sandbox) -> dict[str, object]:
    row: dict[str, object] = {name: getattr(sandbox, name) for name in _PLAIN}
    row["state"] = sandbox.state.value
    row["trust"] = sandbox.trust.value
    row["resources"] = _resources_to_json(sandbox.resources)
    row["boosted_from"] = None if sandbox.boosted_from is None else _unboosted_to_json(sandbox.boosted_from)
    row["handle"] = None if sandbox.handle is None else _handle_to_json(sandbox.handle)
    row["ttl_s"] = sandbox.ttl.total_seconds()
    row["ttl_max_s"] = sandbox.ttl_max.total_seconds()
    row["idle_timeout_s"] = _seconds(sandbox.idle_timeout)
    row["ttl_left_s"] = _seconds(sandbox.ttl_left)
    row["terms"] = money_terms.to_json(sandbox.terms)
    row["volumes"] = [[one.volume_id, one.path, one.is_read_only] for one in sandbox.volumes] or None
    return row


def _from_row(row: Row[tuple[object, ...]]) -> Sandbox:
    cells = row._mapping
    handle = cells["handle"]
    return Sandbox(
        **{name: cells[name] for name in _PLAIN},
        state=State(cells["state"]),
        trust=Trust(cells["trust"]),
        resources=Resources(**cells["resources"]),
        boosted_from=_unboosted(cells["boosted_from"]),
        handle=None if handle is None else Handle(**handle),
        ttl=timedelta(seconds=cells["ttl_s"]),
        ttl_max=timedelta(seconds=cells["ttl_max_s"]),
        idle_timeout=_duration(cells["idle_timeout_s"]),
        ttl_left=_duration(cells["ttl_left_s"]),
        terms=money_terms.from_json(cells["terms"]),
        volumes=tuple(
            VolumeMount(volume_id=id_, path=path, is_read_only=only)
            for id_, path, only in cells["volumes"] or ()
        ),
    )


def _resources_to_json(resources: Resources) -> dict[str, object]:
    return {name: getattr(resources, name) for name in _RESOURCES}


def _unboosted_to_json(kept: Unboosted) -> dict[str, object]:
    return {"resources": _resources_to_json(kept.resources), "terms": money_terms.to_json(kept.terms)}


def _unboosted(stored: Mapping[str, Any] | None) -> Unboosted | None:
    if stored is None:
        return None
    return Unboosted(resources=Resources(**stored["resources"]), terms=money_terms.from_json(stored["terms"]))


def _handle_to_json(handle: Handle) -> dict[str, object]:
    return {
        "sandbox_id": handle.sandbox_id,
        "backend": handle.backend,
        "version": handle.version,
        "data": dict(handle.data),
    }


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def stepped(
    sandbox: Sandbox, state: State, *, reason: str, now: datetime, changes: Mapping[str, object]
) -> Sandbox:
    """The record after one step of its life. Raises Broken for a change that would not be written."""
    if not changes.keys() <= _MAY_CHANGE:
        raise Broken(why=f"{sorted(changes.keys() - _MAY_CHANGE)} cannot change in a sandbox's life")
    since = sandbox.state_since if state is sandbox.state else now
    return replace(
        sandbox,
        version=sandbox.version + 1,
        state=state,
        reason=reason,
        state_since=since,
        **changes,  # type: ignore[arg-type]
    )
