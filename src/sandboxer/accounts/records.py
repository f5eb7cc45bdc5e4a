"""Account records: who they are, whether they may act, what they are entitled to, and every change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, exists, select, tuple_, update

from sandboxer.accounts import caps as spending_caps
from sandboxer.accounts.caps import NO_CAPS, Caps
from sandboxer.accounts.tables import accounts, delegated_keys
from sandboxer.identity.keys import OWNER_ACCOUNT
from sandboxer.kernel.errors import Conflict, IllegalTransition, InvalidRequest, NotFound
from sandboxer.kernel.ids import new_id
from sandboxer.money.buckets import look_at_once, open_bucket
from sandboxer.money.holds import open_holds
from sandboxer.money.ledger import insert_once
from sandboxer.money.pricing import TIERS
from sandboxer.money.tables import meters, money_buckets
from sandboxer.observe.events import record

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


@dataclass(frozen=True, slots=True, kw_only=True)
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

    def tier_at(self, now: datetime) -> int | None:
        """The tier it is entitled to at this moment."""
        return self.tier if self.entitled_until is not None and now < self.entitled_until else None


def next_status(status: Status, change: Change) -> Status:
    """Return the status after a change. Raises IllegalTransition for a step that is not in the table."""
    try:
        return TRANSITIONS[status, change]
    except KeyError:
        raise IllegalTransition(signal=change.value, state=status.value) from None


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
        raise Conflict(why=f"there is an account {id} already")
    return load(conn, id)


def ensure(conn: Connection, id: str, *, actor: str, now: datetime) -> Account:
    """Return the account of an authenticated caller; its record is made the first time it is seen."""
    found = find(conn, id)
    if found is None:
        kind = Kind.OWNER if id == OWNER_ACCOUNT else Kind.CUSTOMER
        _insert(conn, id, kind, "", NO_CAPS, actor=actor, reason="first seen", now=now)
        found = load(conn, id)
    # Accounts from before there was money have no bucket yet.
    open_bucket(conn, id, now=now)
    return found


def find(conn: Connection, id: str, *, lock: bool = False) -> Account | None:
    """Find an account. With `lock`, nobody else changes it or its children before the transaction ends."""
    query = select(accounts).where(accounts.c.id == id)
    row = conn.execute(query.with_for_update() if lock else query).one_or_none()
    return None if row is None else _account(row)


def lock(conn: Connection, ids: Iterable[str]) -> None:
    """As `find` locks one: many, in the order of their ids."""
    names = sorted(ids)
    for start in range(0, len(names), _CHUNK):
        some = accounts.c.id.in_(names[start : start + _CHUNK])
        conn.execute(select(accounts.c.id).where(some).order_by(accounts.c.id).with_for_update()).all()


def load(conn: Connection, id: str, *, lock: bool = False) -> Account:
    found = find(conn, id, lock=lock)
    if found is None:
        raise NotFound(what="account", id=id)
    return found


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
        raise Conflict(why="the owner's account stays: nobody could undo it")
    if account.status in {to for (_, by), to in TRANSITIONS.items() if by is change}:
        return account
    status = next_status(account.status, change)
    if status is Status.CLOSED:
        _refuse_unfinished(conn, account)
    values = {"status": status.value, "status_reason": reason, "status_since": now}
    conn.execute(update(accounts).where(accounts.c.id == id).values(**values))
    record(conn, subject=id, kind=_EVENTS[change], actor=actor, reason=reason, at=now)
    return load(conn, id)


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


def _refuse_unfinished(conn: Connection, account: Account) -> None:
    """Raise Conflict while the account has open holds, running meters or living delegated keys."""
    if holds := open_holds(conn, account.id):
        held = sum(hold.sats for hold in holds)
        raise Conflict(why=f"{len(holds)} holds of together {held} sats are open", holds=len(holds))
    if running := open_meters(conn, account.id):
        raise Conflict(why=f"{running} meters still run", meters=running)
    child = delegated_keys.c
    if conn.execute(select(exists().where(child.parent == account.id, child.state != "ended"))).scalar():
        raise Conflict(why="it has delegated keys that have not ended; revoke them first")


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
    )
