"""Account records: who they are, whether they may act, what they are entitled to, and every change.

Offers connect an answer that asks for money (402) with the ways to pay: payments adds what it takes. A
platform without a way to be paid uses `NO_OFFERS`; the payments package brings its own.

The tables of the accounts package. `audit_log` only ever grows; money itself lies in the money package.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Index,
    Integer,
    Row,
    Table,
    Text,
    bindparam,
    exists,
    false,
    or_,
    select,
    tuple_,
    update,
)

from sandboxer.accounts import caps as spending_caps
from sandboxer.accounts.caps import NO_CAPS, Caps
from sandboxer.identity.keys import OWNER_ACCOUNT, keys
from sandboxer.kernel.errors import Conflict, InvalidRequest, NotFound, or_not_found
from sandboxer.kernel.values import new_id, value_class
from sandboxer.money.buckets import look_at_once, open_bucket
from sandboxer.money.ledger import insert_once
from sandboxer.money.metering import open_holds
from sandboxer.money.pricing import TIERS
from sandboxer.money.tables import meters, money_buckets
from sandboxer.observe.events import record
from sandboxer.store.metadata import JsonValue, UtcDateTime, metadata, nullable, required
from sandboxer.store.steps import Lifecycle

accounts = Table(
    "accounts",
    metadata,
    Column("id", Text, primary_key=True),
    # The id that others may know: with it they can pay for the account, but not call in its name.
    Column("public_id", Text, nullable=False, unique=True),
    # owner, customer or delegated.
    *required(Text, "kind", "name", "status", "status_reason"),
    Column("tier", Integer),
    Column("entitled_until", UtcDateTime),
    # By the operator, who opened it or gave it a key; a wallet that only signed in was not.
    Column("is_invited", Boolean, nullable=False, server_default=false()),
    Column("caps", JsonValue, nullable=False),
    *required(UtcDateTime, "created_at", "status_since"),
    Index(None, "created_at", "id"),
)

# A child key and the account it acts for. Each child has an account and a bucket of its own, so the walls
# between tenants are the walls between parent and child.
delegated_keys = Table(
    "delegated_keys",
    metadata,
    Column("account", Text, primary_key=True),
    Column("public_key", Text, nullable=False, unique=True),
    *required(Text, "name", "parent", "root"),
    # `root/…/parent/account`: the ancestry, for finding a subtree without walking it.
    Column("path", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    # The key that cut it: when that one is revoked, so is this.
    Column("cut_by", Text, nullable=False),
    Column("scopes", JsonValue, nullable=False),
    # How many generations may still follow; how many sandboxes at once, its own and its children's.
    Column("depth", Integer, nullable=False),
    Column("slots", Integer),
    Column("expires_at", UtcDateTime),
    # active, ending, ended.
    *required(Text, "state", "reason"),
    Column("created_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    # Written once, at the end: what flowed back up, and what outsiders had paid and stayed.
    *nullable(BigInteger, "returned_sats", "kept_sats"),
    Index(None, "parent", "state"),
    Index(None, "root"),
    Index(None, "cut_by"),
    Index(None, "state", "expires_at"),
)

audit_log = Table(
    "audit_log",
    metadata,
    # Counted by the chain itself, without gaps.
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", UtcDateTime, nullable=False),
    *required(Text, "actor", "action", "subject", "reason"),
    Column("data", JsonValue, nullable=False),
    # No two rows may follow the same one: even a wrong program cannot fork the chain.
    Column("previous", Text, nullable=False, unique=True),
    Column("hash", Text, nullable=False),
    Index(None, "subject", "seq"),
)

# One row: the newest link, locked by whoever appends, and the first witness against a cut tail.
audit_head = Table(
    "audit_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
    Column("hash", Text, nullable=False),
)


MAX_PAGE = 500
_CHUNK = 500
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_PUBLIC = "pub_"


class Kind(StrEnum):
    OWNER = "owner"
    CUSTOMER = "customer"
    # The account of a delegated key; its parent decides when it ends.
    DELEGATED = "delegated"


class Status(StrEnum):
    ACTIVE = "active"
    # It may not act, but what it has is kept.
    SUSPENDED = "suspended"
    CLOSED = "closed"


class Change(StrEnum):
    SUSPEND = "suspend"
    REINSTATE = "reinstate"
    CLOSE = "close"


TRANSITIONS: Mapping[tuple[Status, Change], Status] = {
    (Status.ACTIVE, Change.SUSPEND): Status.SUSPENDED,
    (Status.SUSPENDED, Change.REINSTATE): Status.ACTIVE,
    (Status.ACTIVE, Change.CLOSE): Status.CLOSED,
    (Status.SUSPENDED, Change.CLOSE): Status.CLOSED,
}
_EVENTS = {
    Change.SUSPEND: "account.suspended",
    Change.REINSTATE: "account.reinstated",
    Change.CLOSE: "account.closed",
}


@value_class
class Account:
    id: str
    public_id: str
    kind: Kind
    name: str
    status: Status
    status_reason: str
    tier: int | None
    entitled_until: datetime | None
    caps: Caps
    created_at: datetime
    # By the operator; others are known because they signed in or paid.
    is_invited: bool = False

    def tier_at(self, now: datetime) -> int | None:
        """The tier it is entitled to at this moment."""
        return self.tier if self.entitled_until is not None and now < self.entitled_until else None


next_status = Lifecycle(TRANSITIONS).next_state


def create(
    conn: Connection,
    *,
    actor: str,
    reason: str,
    now: datetime,
    id: str | None = None,
    kind: Kind = Kind.CUSTOMER,
    name: str = "",
    caps: Caps = NO_CAPS,
) -> Account:
    """Create an account with an empty bucket. Raises Conflict if the id is taken."""
    id = id or new_id("acc")
    if _ID.fullmatch(id) is None:
        raise InvalidRequest(field="account", why="an account's id is made of a-z, 0-9 and . _ -")
    if not _insert(conn, id, kind, name, caps, actor=actor, reason=reason, now=now):
        raise Conflict(
            why=f"there is an account {id} already",
            hint="Use it, or take another id; GET /v1/accounts lists those there are.",
        )
    return load(conn, id)


def ensure(conn: Connection, id: str, *, actor: str, now: datetime) -> Account:
    """Return the account of an authenticated caller; its record is made the first time it is seen."""
    if (found := find(conn, id)) is None:
        kind = Kind.OWNER if id == OWNER_ACCOUNT else Kind.CUSTOMER
        _insert(conn, id, kind, "", NO_CAPS, actor=actor, reason="first seen", now=now)
        found = load(conn, id)
    # Accounts from before there was money have no bucket yet.
    open_bucket(conn, id, now=now)
    return found


def invite(conn: Connection, id: str, *, actor: str, reason: str, now: datetime) -> Account:
    """Write down that the operator wants this account here. Repeating it does nothing."""
    if not load(conn, id, lock=True).is_invited:
        conn.execute(update(accounts).where(accounts.c.id == id).values(is_invited=True))
        record(conn, subject=id, kind="account.invited", actor=actor, reason=reason, at=now)
    return load(conn, id)


# Built once: every request that makes something asks, and building it costs more than the answer.
_FIND = select(accounts).where(accounts.c.id == bindparam("wanted_id"))


def find(conn: Connection, id: str, *, lock: bool = False) -> Account | None:
    """Find an account. With `lock`, nobody else changes it or its children before the transaction ends."""
    row = conn.execute(_FIND.with_for_update() if lock else _FIND, {"wanted_id": id}).one_or_none()
    return None if row is None else _account(row)


def lock(conn: Connection, ids: Iterable[str]) -> None:
    """As `find` locks one: many, in the order of their ids."""
    names = sorted(ids)
    for start in range(0, len(names), _CHUNK):
        some = accounts.c.id.in_(names[start : start + _CHUNK])
        conn.execute(select(accounts.c.id).where(some).order_by(accounts.c.id).with_for_update()).all()


def load(conn: Connection, id: str, *, lock: bool = False) -> Account:
    return or_not_found(find(conn, id, lock=lock), what="account", id=id)


def find_public(conn: Connection, public_id: str) -> Account | None:
    """Find an account by its public id, by which others may pay for it."""
    row = conn.execute(select(accounts).where(accounts.c.public_id == public_id)).one_or_none()
    return None if row is None else _account(row)


def resolve(conn: Connection, name: str) -> Account:
    """Return the account of this id or public id, to share something with it.

    Raises NotFound for one that does not exist or is closed.
    """
    found = find_public(conn, name) if name.startswith(_PUBLIC) else find(conn, name)
    if found is None or found.status is Status.CLOSED:
        raise NotFound(what="account", id=name)
    return found


def page(conn: Connection, *, after: str | None = None, limit: int = 100) -> list[Account]:
    """Return a page of all accounts, oldest first; `after` is the id of the last one seen."""
    query = (
        select(accounts).order_by(accounts.c.created_at, accounts.c.id).limit(max(1, min(limit, MAX_PAGE)))
    )
    if after is not None:
        last = load(conn, after)
        query = query.where(tuple_(accounts.c.created_at, accounts.c.id) > (last.created_at, last.id))
    return [_account(row) for row in conn.execute(query)]


def change_status(
    conn: Connection, id: str, change: Change, *, actor: str, reason: str, now: datetime
) -> Account:
    """Suspend, reinstate or close an account. Repeating a change does nothing."""
    if not reason.strip():
        raise InvalidRequest(field="reason", why="say why")
    account = load(conn, id, lock=True)
    if account.kind is Kind.OWNER:
        raise Conflict(
            why="the owner's account stays: nobody could undo it",
            hint="To lock out who holds its key, rotate it: POST /v1/keys/{public_key}/regenerate.",
        )
    if account.status in {to for (_, by), to in TRANSITIONS.items() if by is change}:
        return account
    if (status := next_status(account.status, change)) is Status.CLOSED:
        _refuse_unfinished(conn, account)
    values = {"status": status.value, "status_reason": reason, "status_since": now}
    conn.execute(update(accounts).where(accounts.c.id == id).values(**values))
    record(conn, subject=id, kind=_EVENTS[change], actor=actor, reason=reason, at=now)
    return load(conn, id)


def find_suspended(conn: Connection, among: Collection[str] | None = None) -> dict[str, str]:
    """Return which accounts are suspended, each with the account that it was done to: itself, or whoever
    has the suspended key that it was delegated by. Of all, or of what was done to some.

    The account of a delegated key is suspended with that key, too: it has no other.
    """
    query = select(accounts.c.id).where(accounts.c.status == Status.SUSPENDED.value)
    held = select(keys.c.public_key, keys.c.account).where(keys.c.suspended_at.is_not(None))
    if among is not None:
        query, held = query.where(accounts.c.id.in_(among)), held.where(keys.c.account.in_(among))
    found = {id: id for id in conn.execute(query).scalars()}
    if holders := {row.public_key: row.account for row in conn.execute(held)}:
        cut = delegated_keys.c
        below = or_(cut.cut_by.in_(holders), cut.public_key.in_(holders))
        for account, public_key, cut_by in conn.execute(
            select(cut.account, cut.public_key, cut.cut_by).where(below)
        ):
            found[account] = holders[cut_by if cut_by in holders else public_key]
    return found


def held_by(conn: Connection, suspended: Collection[str]) -> set[str]:
    """Return these suspended accounts, and all that were delegated from one of them."""
    cut, names, held = delegated_keys.c, sorted(suspended), set(suspended)
    for start in range(0, len(names), _CHUNK):
        some = names[start : start + _CHUNK]
        roots = {*some, *conn.execute(select(cut.root).where(cut.account.in_(some))).scalars()}
        below = select(cut.account, cut.path).where(cut.root.in_(roots))
        held |= {id for id, path in conn.execute(below) if not held.isdisjoint(path.split("/"))}
    return held


def entitle(
    conn: Connection,
    id: str,
    *,
    tier: int | None,
    until: datetime | None,
    actor: str,
    reason: str,
    now: datetime,
) -> Account:
    """Give a tier until a date, or take it away (both None). The event tells the sandboxes package."""
    if (tier is None) is not (until is None):
        raise InvalidRequest(field="until", why="a tier and its end come together")
    if tier is not None and not 1 <= tier <= TIERS:
        raise InvalidRequest(field="tier", why=f"tiers go from 1 to {TIERS}")
    load(conn, id, lock=True)
    conn.execute(update(accounts).where(accounts.c.id == id).values(tier=tier, entitled_until=until))
    data = {"tier": tier, "until": None if until is None else until.isoformat()}
    record(conn, subject=id, kind="account.entitled", actor=actor, reason=reason, at=now, data=data)
    return load(conn, id)


def set_caps(conn: Connection, id: str, caps: Caps, *, actor: str, reason: str, now: datetime) -> Account:
    load(conn, id, lock=True)
    values = spending_caps.as_json(caps)
    conn.execute(update(accounts).where(accounts.c.id == id).values(caps=values))
    if caps != NO_CAPS:
        # A server that dies before it has computed when the cap is reached must look at it after a restart.
        look_at_once(conn, id, now=now)
    record(conn, subject=id, kind="account.capped", actor=actor, reason=reason, at=now, data=values)
    return load(conn, id)


def has_bucket(conn: Connection, id: str) -> bool:
    """Return whether it has a bucket; accounts from before there was money get theirs when next seen."""
    return conn.execute(select(money_buckets.c.owner).where(money_buckets.c.owner == id)).first() is not None


def open_meters(conn: Connection, id: str) -> int:
    query = select(meters.c.id).where(meters.c.owner == id, meters.c.closed_at.is_(None))
    return len(conn.execute(query).all())


_END_ITS_THINGS = (
    "Remove its sandboxes (GET /v1/sandboxes), snapshots and volumes first, or wait until they are over."
)


def _refuse_unfinished(conn: Connection, account: Account) -> None:
    """Raise Conflict while the account has open holds, running meters or living delegated keys."""
    if holds := open_holds(conn, account.id):
        held = sum(hold.sats for hold in holds)
        raise Conflict(
            why=f"{len(holds)} holds of together {held} sats are open", holds=len(holds), hint=_END_ITS_THINGS
        )
    if running := open_meters(conn, account.id):
        raise Conflict(why=f"{running} meters still run", meters=running, hint=_END_ITS_THINGS)
    child = delegated_keys.c
    if conn.execute(select(exists().where(child.parent == account.id, child.state != "ended"))).scalar():
        hint = "Revoke them first: GET /v1/keys/tree, then DELETE /v1/keys/{public_key}."
        raise Conflict(why="it has delegated keys that have not ended", hint=hint)


def _insert(
    conn: Connection, id: str, kind: Kind, name: str, caps: Caps, *, actor: str, reason: str, now: datetime
) -> bool:
    if id.startswith(_PUBLIC):
        raise InvalidRequest(field="account", why="a public id says whom to pay; it is no account's own id")
    row = {
        "id": id,
        "public_id": new_id("pub"),
        "kind": kind.value,
        "name": name,
        "status": Status.ACTIVE.value,
        "status_reason": reason,
        "caps": spending_caps.as_json(caps),
        "created_at": now,
        "status_since": now,
    }
    if not insert_once(conn, accounts, row):
        return False
    open_bucket(conn, id, now=now, is_budget=kind is Kind.DELEGATED)
    record(
        conn,
        subject=id,
        kind="account.created",
        actor=actor,
        reason=reason,
        at=now,
        data={"kind": kind.value, "name": name},
    )
    return True


def _account(row: Row[Any]) -> Account:
    # Spelled out, since every paid request reads several.
    return Account(
        id=row.id,
        public_id=row.public_id,
        kind=Kind(row.kind),
        name=row.name,
        status=Status(row.status),
        status_reason=row.status_reason,
        tier=row.tier,
        entitled_until=row.entitled_until,
        caps=spending_caps.from_json(row.caps),
        created_at=row.created_at,
        is_invited=row.is_invited or row.kind == Kind.OWNER,
    )


@value_class
class Payable:
    """Something that was asked for and costs money."""

    # The operation as the document names it (`createSandbox`), and its path.
    operation: str
    path: str
    # The account whose bucket would pay; None: the caller is unknown.
    account: str | None
    # What it costs in all, and the least with which it can begin; None where that is not known yet.
    sats: int | None
    least_sats: int | None
    description: str


@value_class
class Offer:
    """What is added to the 402: members of its problem document, and headers."""

    facts: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


class PaymentOffers(Protocol):
    async def offer(self, wanted: Payable) -> Offer:
        """Return how this could be paid now. Quick, and never raises: a 402 shows prices in any case."""


class NoOffers:
    async def offer(self, wanted: Payable) -> Offer:
        return Offer()


NO_OFFERS = NoOffers()
