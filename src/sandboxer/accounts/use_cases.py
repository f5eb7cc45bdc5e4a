"""The acts of callers on accounts and their keys, gifts included. Each is one transaction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection

from sandboxer.accounts import audit, caps, delegation, records, revocation
from sandboxer.accounts.authority import Act, demand_may
from sandboxer.accounts.limits import LIMITS, LimitPolicy
from sandboxer.accounts.records import Status
from sandboxer.accounts.storage import demand_funds_for_rows
from sandboxer.accounts.sums import GIFT, spent_by
from sandboxer.identity.keys import OWNER_ACCOUNT, Also, Caller, Keys, NewKey, generate
from sandboxer.kernel.errors import InsufficientCredit, InvalidRequest, NotFound
from sandboxer.kernel.values import new_id
from sandboxer.money.amounts import Sats, checked_amount
from sandboxer.money.buckets import credit, open_bucket, spend
from sandboxer.money.ledger import find_transfer, open_account
from sandboxer.money.segments import count_move
from sandboxer.money.transfers import AccountKind
from sandboxer.store.engine import Store

P = ParamSpec("P")
T = TypeVar("T")


class Slots(Protocol):
    """Counts the sandboxes of an account, and lets one caller at a time give its slots away."""

    def in_use(self, account: str) -> int: ...
    def alone(self, account: str) -> AbstractAsyncContextManager[None]: ...


async def get(store: Store, account: str) -> records.Account:
    """Return an account. Raises NotFound."""
    return await store.read(lambda conn: records.load(conn, account))


async def operate(
    store: Store, act: Callable[Concatenate[Connection, P], T], *words: P.args, **more: P.kwargs
) -> T:
    """Carry out one act of the operator (`operators.py`) in a transaction."""
    return await store.write(lambda conn: act(conn, *words, **more))


async def create_key(
    keys: Keys,
    account: str,
    name: str,
    accepts_v1: bool,
    *,
    who: Caller,
    now: datetime,
    bind: Also | None = None,
) -> NewKey:
    """Create a further key of an account; the account is created with it if it is new."""
    actor = f"key:{who.public_key}"
    write_down = audit.by_owner(who, "key.create", data={"account": account, "name": name}, now=now)

    def also(conn: Connection, public_key: str) -> None:
        # The account exists at once, so that it can be given sats before the key is first used.
        records.ensure(conn, account, actor=actor, now=now)
        if who.is_owner:
            records.invite(conn, account, actor=actor, reason="was given a key", now=now)
        write_down(conn, public_key)
        if bind is not None:
            bind(conn, public_key)

    return await keys.create(account, name, accepts_v1, actor=actor, also=also)


async def revoke_key(store: Store, keys: Keys, who: Caller, public_key: str, *, now: datetime) -> None:
    """Revoke a key of the caller's account, or one delegated below it, with all that it delegated.

    The owner may revoke anybody's. Raises NotFound.
    """
    actor = f"key:{who.public_key}"
    write_down = audit.by_owner(who, "key.revoke", now=now)
    cut = revocation.CutKeys(public_key, actor=actor, now=now)

    def with_those_it_cut(conn: Connection, revoked: str) -> None:
        cut.end(conn)
        write_down(conn, revoked)

    whose = None if who.is_owner else who.account

    def delegated(conn: Connection) -> list[str]:
        found = delegation.find_below(conn, whose, public_key)
        ended = revocation.revoke(conn, found.account, actor=actor, reason="asked", now=now)
        write_down(conn, public_key)
        return list(ended.public_keys)

    known = {key.public_key for key in await keys.list(whose)}
    # The owner's list has delegated keys too. The account of one has no other key, and ends with it.
    if who.is_owner and await store.read(lambda conn: delegation.is_delegated(conn, public_key)):
        known.discard(public_key)
    if public_key in known:
        await keys.revoke(public_key, actor=actor, also=with_those_it_cut)
        gone = cut.ended
    else:
        gone = await store.write(delegated)
    for one in gone:
        keys.forget(one)


async def cut_key(
    store: Store,
    keys: Keys,
    slots: Slots,
    who: Caller,
    wish: delegation.Cut,
    *,
    now: datetime,
    bind: Also | None = None,
    is_charged: bool = False,
    policy: LimitPolicy = LIMITS,
) -> tuple[delegation.DelegatedKey, NewKey]:
    """Create a child of the caller's account with a key of its own and what `wish` asks for.

    `is_charged` says that people pay here: an account that has not paid may have only a few. Raises
    InsufficientCredit.
    """
    new = generate(new_id("acc"), wish.name, accepts_v1=False)

    def write(conn: Connection) -> delegation.DelegatedKey:
        made = delegation.cut(
            conn,
            who.account,
            wish,
            public_key=new.public_key,
            cut_by=who.public_key,
            account=new.account,
            slots_in_use=slots.in_use(who.account),
            policy=policy,
            now=now,
        )
        if is_charged and not wish.budget_sats and made.root != OWNER_ACCOUNT:
            demand_funds_for_key(conn, made, now=now)
        keys.insert(conn, new, actor=f"key:{who.public_key}", expires_at=made.expires_at)
        if bind is not None:
            # The budget has moved with it: a repeated request must not move another.
            bind(conn, new.public_key)
        return made

    async with slots.alone(who.account):
        return await store.write(write), new


def demand_funds_for_key(conn: Connection, made: delegation.DelegatedKey, *, now: datetime) -> None:
    """Each key has an account, which may keep a little for nothing: so nobody has many of them so."""
    count = delegation.living_below(conn, made.root)
    try:
        demand_funds_for_rows(conn, made.root, what="delegated keys", count=count, size_bytes=0, now=now)
    except InsufficientCredit:
        # The account above all others may have given its sats away.
        if made.parent == made.root:
            raise
        demand_funds_for_rows(conn, made.parent, what="delegated keys", count=count, size_bytes=0, now=now)


async def top_up_key(
    store: Store, who: Caller, public_key: str, sats: int, *, id: str, now: datetime
) -> delegation.DelegatedKey:
    """Give a key below the caller's account more of the account's sats. Raises NotFound."""

    def write(conn: Connection) -> delegation.DelegatedKey:
        child = delegation.find_below(conn, who.account, public_key)
        delegation.top_up(conn, who.account, child.account, sats, id=id, cut_by=who.public_key, now=now)
        return child

    return await store.write(write)


# Gifts pass through this account, so that neither's statement names the other's account.
CLEARING = "external:gifts"


def give_sats(
    conn: Connection, giver: str, public_id: str, sats: Sats, *, id: str, reason: str, key: str, now: datetime
) -> bool:
    """Give sats to another account, known only by its public id, within the caps of the giver and its key.

    The same id gives once, and returns False then. A closed account takes nothing.

    Raises NotFound, InsufficientCredit, Forbidden (a cap, one of both may not act), Conflict (the id was used
    for something else).
    """
    checked_amount(sats, field="sats")
    if (to := records.find_public(conn, public_id)) is None or to.status is Status.CLOSED:
        raise NotFound(what="account", id=public_id)
    if to.id == giver:
        raise InvalidRequest(field="to", why="this is your own account")
    # Locked in a fixed order, so that two accounts that give to each other at once do not deadlock.
    for account in sorted((giver, to.id)):
        records.load(conn, account, lock=True)
    demand_may(conn, giver, Act.SPEND, now=now)
    demand_may(conn, to.id, Act.FUND, now=now)
    open_bucket(conn, to.id, now=now)
    open_account(conn, id=CLEARING, kind=AccountKind.EXTERNAL, now=now)
    giving = records.load(conn, giver)
    transfer_id = f"{GIFT}:{giving.public_id}:{id}"
    is_new = find_transfer(conn, transfer_id) is None
    if is_new:
        caps.check(giving.caps, spent_by(conn, giver, giving.caps, key=key, now=now), wanted=sats)
    common: dict[str, Any] = {"kind": GIFT, "reason": reason, "now": now, "data": {"to": public_id}}
    spend(conn, giver, sats, id=transfer_id, to=CLEARING, **common)
    credit(conn, to.id, sats, id=f"{transfer_id}:in", debit=CLEARING, **common)
    if is_new:
        count_move(conn, giver, key, sats, at=now)
        data = {"to": public_id, "sats": sats, "id": id}
        audit.append(
            conn, actor=giver, action="account.gift", subject=giver, reason=reason, data=data, now=now
        )
    return is_new
