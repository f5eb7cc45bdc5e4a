"""Revocation ends a delegated key and everything below it, bottom-up: stop, destroy, settle, then release.

    active ──revoke, expire──> ending ──its sandboxes are gone, its children have ended──> ended

`revoke` shuts the whole subtree at once (no key of it may act or delegate any more) and records an event for
each account, deepest first. The sandboxes package reacts to `delegation.ending` by destroying what is left,
and then calls `finish` for the account. `finish` settles and releases: unspent budget flows to the parent,
and what outsiders paid stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Select, bindparam, exists, select, update

from sandboxer.accounts import audit, records
from sandboxer.accounts.authority import KeyState
from sandboxer.accounts.delegation import DelegatedKey, key_of, load_key
from sandboxer.accounts.records import Change, Status, delegated_keys, open_meters
from sandboxer.accounts.sums import RETURNED, paid_by_outsiders, returnable
from sandboxer.identity.keys import keys
from sandboxer.kernel.errors import Conflict
from sandboxer.kernel.values import brief_value_class, value_class
from sandboxer.money.amounts import NSATS_PER_MSAT, Nsats
from sandboxer.money.buckets import settle_account, spend, write_off
from sandboxer.money.metering import charge_once, open_holds
from sandboxer.money.policy import Use
from sandboxer.money.records import bucket_id
from sandboxer.money.segments import count_move
from sandboxer.observe.events import Told, record, record_all
from sandboxer.store.steps import Lifecycle

ENDING = "delegation.ending"
ENDED = "delegation.ended"
ACTOR = "system:delegation"
# Expired keys are ended so many at a time.
AT_ONCE = 50
_CHUNK = 500


class Signal(StrEnum):
    REVOKE = "revoke"
    FINISH = "finish"


TRANSITIONS: Mapping[tuple[KeyState, Signal], KeyState] = {
    (KeyState.ACTIVE, Signal.REVOKE): KeyState.ENDING,
    (KeyState.ENDING, Signal.FINISH): KeyState.ENDED,
}


class Act(StrEnum):
    """The acts that end an account, in this order, and only after all accounts below it have ended."""

    STOP = "stop"
    DESTROY = "destroy"
    SETTLE = "settle"
    RELEASE = "release"


@brief_value_class
class Step:
    act: Act
    account: str


@value_class
class Revocation:
    """What is to be done, in order, and the public keys that must be removed from caches."""

    steps: tuple[Step, ...]
    public_keys: tuple[str, ...]


@value_class
class Release:
    account: str
    parent: str
    returned_sats: int
    kept_sats: int
    lost_sats: int
    is_new: bool


next_state = Lifecycle(TRANSITIONS).next_state


def plan_revocation(tree: Iterable[DelegatedKey]) -> tuple[Step, ...]:
    """Return the steps that end these keys, children before parents. Pure."""
    living = [key for key in tree if key.state is not KeyState.ENDED]
    deepest_first = sorted(living, key=lambda key: (-key.generation, key.account))
    return tuple(Step(act, key.account) for key in deepest_first for act in Act)


def revoke(conn: Connection, account: str, *, actor: str, reason: str, now: datetime) -> Revocation:
    """Shut a key and all below it, and return what is to be destroyed. Repeating it returns only what is
    left.

    The caller must check with `find_below` that the key lies below the account that asks.
    """
    load_key(conn, account)
    return revoke_all(conn, [account], actor=actor, reason=reason, now=now)[0]


def revoke_all(
    conn: Connection, accounts: Sequence[str], *, actor: str, reason: str, now: datetime
) -> list[Revocation]:
    """The same for several keys, in few statements: there may be thousands below them, and others wait for
    this transaction to end."""
    trees = _by_top(accounts, _lock_subtrees(conn, accounts))
    found: list[Revocation] = []
    for account, tree in trees.items():
        shut = [key for key in tree if key.state is KeyState.ACTIVE]
        _shut(conn, shut, top=account, actor=actor, reason=reason, now=now)
        if shut:
            top = next(key for key in tree if key.account == account)
            data = {"key": top.public_key, "accounts": len(shut)}
            audit.append(
                conn,
                actor=actor,
                action="delegation.revoke",
                subject=account,
                reason=reason,
                data=data,
                now=now,
            )
        public_keys = tuple(key.public_key for key in tree)
        found.append(Revocation(steps=plan_revocation(tree), public_keys=public_keys))
    return found


def revoke_cut_by(
    conn: Connection, public_key: str, *, actor: str, reason: str, now: datetime
) -> list[Revocation]:
    """Revoke all keys that an ordinary key delegated, because that key is revoked."""
    columns = delegated_keys.c
    query = select(columns.account).where(
        columns.cut_by == public_key, columns.state == KeyState.ACTIVE.value
    )
    found = list(conn.execute(query.order_by(columns.generation, columns.account)).scalars())
    return revoke_all(conn, found, actor=actor, reason=reason, now=now)


class CutKeys:
    """Revokes what a key or wallet delegated, in the transaction that ends the key or wallet."""

    def __init__(self, cutter: str, *, actor: str, now: datetime) -> None:
        self._cutter = cutter
        self._actor = actor
        self._now = now
        # Public keys that must be removed from caches after the commit.
        self.ended: list[str] = []

    def end(self, conn: Connection) -> None:
        done = revoke_cut_by(conn, self._cutter, actor=self._actor, reason="asked", now=self._now)
        # Assigned and not extended, because a transaction may be run again.
        self.ended = [gone for one in done for gone in one.public_keys]


def expire_due(conn: Connection, *, now: datetime) -> list[Revocation]:
    """Revoke some of the expired keys. Returns an empty list when none is left."""
    found: dict[str, None] = {}
    for moment, query in _living_by_end():
        due = query.where(moment <= now).order_by(moment, delegated_keys.c.generation).limit(AT_ONCE)
        found |= dict.fromkeys(row.account for row in conn.execute(due))
    return revoke_all(conn, list(found), actor=ACTOR, reason="expired", now=now)


def next_expiry(conn: Connection) -> datetime | None:
    firsts = [
        conn.execute(query.where(moment.is_not(None)).order_by(moment).limit(1)).first()
        for moment, query in _living_by_end()
    ]
    return min((first.ends for first in firsts if first is not None), default=None)


def _living_by_end() -> Iterator[tuple[Column[Any], Select[Any]]]:
    """Yield, for each moment that ends a key, the query for the active keys that have it.

    A key ends with its delegation, with its own expiry, and with the expiry of the key that delegated it; an
    operator may set the last two later.
    """
    columns = delegated_keys.c
    active = columns.state == KeyState.ACTIVE.value
    yield columns.expires_at, select(columns.account, columns.expires_at.label("ends")).where(active)
    for name in (columns.public_key, columns.cut_by):
        named = select(columns.account, keys.c.expires_at.label("ends")).join(keys, keys.c.public_key == name)
        yield keys.c.expires_at, named.where(active)


def ending(conn: Connection, *, limit: int = 500) -> list[DelegatedKey]:
    """Return the keys that are ending, deepest first."""
    columns = delegated_keys.c
    query = (
        select(delegated_keys)
        .where(columns.state == KeyState.ENDING.value)
        .order_by(columns.generation.desc(), columns.account)
        .limit(limit)
    )
    return [key_of(row) for row in conn.execute(query)]


def finish(conn: Connection, account: str, *, now: datetime) -> Release:
    """Settle and release an ending key that has no sandboxes left. Finishing again changes nothing.

    Raises Conflict while a child has not ended, a meter runs or a hold is open: destroy first.
    """
    key = load_key(conn, account)
    records.load(conn, key.parent, lock=True)
    key = load_key(conn, account)
    if key.state is KeyState.ENDED:
        return _released(key, lost=0, is_new=False)
    next_state(key.state, Signal.FINISH)
    _refuse_unfinished(conn, account)
    lost = write_off(conn, account, reason="the delegated key ended", now=now)
    bucket = settle_account(conn, account, now=now)
    if returned := returnable(balance=bucket.posted, outside=paid_by_outsiders(conn, account)):
        spend(
            conn,
            account,
            returned,
            id=f"{RETURNED}:{account}",
            to=bucket_id(key.parent),
            kind=RETURNED,
            reason="unspent budget of a delegated key",
            now=now,
            data={"parent": key.parent, "child": account},
        )
        count_move(conn, key.parent, key.cut_by, -returned, at=now)
        settle_account(conn, key.parent, now=now)
        _pass_up_fraction(conn, key, bucket.flow.carried, now=now)
    values = {
        "state": KeyState.ENDED.value,
        "ended_at": now,
        "returned_sats": returned,
        "kept_sats": bucket.posted - returned,
    }
    conn.execute(update(delegated_keys).where(delegated_keys.c.account == account).values(**values))
    ended = load_key(conn, account)
    if records.load(conn, account).status is not Status.CLOSED:
        records.change_status(conn, account, Change.CLOSE, actor=ACTOR, reason=key.reason, now=now)
    data = {"parent": key.parent, "returned_sats": returned, "kept_sats": bucket.posted - returned}
    for subject in (account, key.parent):
        record(
            conn,
            subject=subject,
            kind=ENDED,
            actor=ACTOR,
            reason=key.reason,
            at=now,
            data={**data, "child": account},
        )
    return _released(ended, lost=lost, is_new=True)


def _lock_subtrees(conn: Connection, tops: Sequence[str]) -> list[DelegatedKey]:
    """Return these keys and all below them that have not ended; each account is locked before its children
    are read. `cut` takes the same lock, so no new key can appear below. Parents come before children, so that
    two revocations at once do not deadlock."""
    columns = delegated_keys.c
    records.lock(conn, {key.parent for key in _load_all(conn, columns.account, tops)})
    tree: dict[str, DelegatedKey] = {}
    level = list(tops)
    while level:
        records.lock(conn, level)
        found = {key.account: key for key in _load_all(conn, columns.account, level)}
        tree |= found
        living = columns.state != KeyState.ENDED.value
        below = {key.account for key in _load_all(conn, columns.parent, list(found), living)}
        level = sorted(below - tree.keys())
    return list(tree.values())


def _load_all(
    conn: Connection, column: Column[Any], names: Sequence[str], *such: ColumnElement[bool]
) -> list[DelegatedKey]:
    found: list[DelegatedKey] = []
    for start in range(0, len(names), _CHUNK):
        query = select(delegated_keys).where(column.in_(names[start : start + _CHUNK]), *such)
        rows = conn.execute(query.order_by(delegated_keys.c.generation, delegated_keys.c.account))
        found += [key_of(row) for row in rows]
    return found


def _by_top(tops: Sequence[str], tree: Iterable[DelegatedKey]) -> dict[str, list[DelegatedKey]]:
    """Each key with the uppermost of these that it lies below."""
    found: dict[str, list[DelegatedKey]] = {}
    wanted = frozenset(tops)
    for key in tree:
        found.setdefault(next(one for one in key.ancestry if one in wanted), []).append(key)
    return found


def _shut(
    conn: Connection, keys_: Sequence[DelegatedKey], *, top: str, actor: str, reason: str, now: datetime
) -> None:
    """Told deepest first."""
    if not keys_:
        return
    shut = sorted(keys_, key=lambda key: (-key.generation, key.account))
    below = f"{reason} (with {top})"
    changed = [
        {
            "of": key.account,
            "to": next_state(key.state, Signal.REVOKE).value,
            "why": reason if key.account == top else below,
        }
        for key in shut
    ]
    columns = delegated_keys.c
    conn.execute(
        update(delegated_keys)
        .where(columns.account == bindparam("of"))
        .values(state=bindparam("to"), reason=bindparam("why")),
        changed,
    )
    standing = (keys.c.account == bindparam("of"), keys.c.revoked_at.is_(None))
    conn.execute(update(keys).where(*standing).values(revoked_at=now), [{"of": key.account} for key in shut])
    acts = [act.value for act in Act]
    told = [
        Told(
            subject=key.account,
            reason=change["why"],
            data={"key": key.public_key, "top": top, "generation": key.generation, "acts": acts},
        )
        for key, change in zip(shut, changed, strict=True)
    ]
    record_all(conn, told, kind=ENDING, actor=actor, at=now)


def _pass_up_fraction(conn: Connection, key: DelegatedKey, carried: Nsats, *, now: datetime) -> None:
    """Charge the parent for the fraction of a sat that the child still owed.

    Otherwise a parent could run everything in short-lived children and never owe a whole sat.
    """
    if msats := carried // NSATS_PER_MSAT:
        charge_once(
            conn,
            key.parent,
            id=f"fraction:{key.account}",
            subject=key.account,
            use=Use.RUNNING,
            msats=msats,
            now=now,
            key=key.cut_by,
        )


def _refuse_unfinished(conn: Connection, account: str) -> None:
    columns = delegated_keys.c
    living = exists().where(columns.parent == account, columns.state != KeyState.ENDED.value)
    if conn.execute(select(living)).scalar():
        raise Conflict(why="a key below it has not ended", account=account)
    if running := open_meters(conn, account):
        raise Conflict(why=f"{running} meters still run", account=account)
    if holds := open_holds(conn, account):
        raise Conflict(why=f"{len(holds)} holds are open", account=account)


def _released(key: DelegatedKey, *, lost: int, is_new: bool) -> Release:
    return Release(
        account=key.account,
        parent=key.parent,
        returned_sats=key.returned_sats or 0,
        kept_sats=key.kept_sats or 0,
        lost_sats=lost,
        is_new=is_new,
    )


def finish_all(conn: Connection, accounts: Sequence[str], *, now: datetime) -> list[Release]:
    """Finish those of these accounts that can be finished, deepest first, and leave the others for later."""
    found = sorted((load_key(conn, id) for id in accounts), key=lambda k: (-k.generation, k.account))
    done = []
    for key in found:
        try:
            done.append(finish(conn, key.account, now=now))
        except Conflict:
            continue
    return done
