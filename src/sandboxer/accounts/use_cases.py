"""What callers do with accounts and their keys. Each act is one transaction; edges only name it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection

from sandboxer.accounts import audit, delegation, records, revocation
from sandboxer.accounts.storage import demand_funds_for_rows
from sandboxer.identity.keys import OWNER_ACCOUNT, Also, Caller, Keys, NewKey, generate
from sandboxer.kernel.errors import InsufficientCredit
from sandboxer.kernel.ids import new_id
from sandboxer.store.engine import Store

P = ParamSpec("P")
T = TypeVar("T")


class Slots(Protocol):
    """How many sandboxes an account has; whoever gives slots away does it alone."""

    def in_use(self, account: str) -> int: ...
    def alone(self, account: str) -> AbstractAsyncContextManager[None]: ...


async def get(store: Store, account: str) -> records.Account:
    """Raises NotFound."""
    return await store.read(lambda conn: records.load(conn, account))


async def operate(
    store: Store, act: Callable[Concatenate[Connection, P], T], *words: P.args, **more: P.kwargs
) -> T:
    """One act of the operator (`operators.py`)."""
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
    """A further key of an account, which is made with it if it is new."""
    actor = f"key:{who.public_key}"
    write_down = audit.by_owner(who, "key.create", data={"account": account, "name": name}, now=now)

    def also(conn: Connection, public_key: str) -> None:
        # So that it can be given sats before it is first used.
        records.ensure(conn, account, actor=actor, now=now)
        write_down(conn, public_key)
        if bind is not None:
            bind(conn, public_key)

    return await keys.create(account, name, accepts_v1, actor=actor, also=also)


async def revoke_key(store: Store, keys: Keys, who: Caller, public_key: str, *, now: datetime) -> None:
    """End a key of the caller's account, or one that was cut below it, with all that was cut by it.

    The owner ends anybody's. Raises NotFound.
    """
    actor = f"key:{who.public_key}"
    write_down = audit.by_owner(who, "key.revoke", now=now)
    cut = revocation.CutKeys(public_key, actor=actor, now=now)

    def with_those_it_cut(conn: Connection, revoked: str) -> None:
        cut.end(conn)
        write_down(conn, revoked)

    def delegated(conn: Connection) -> list[str]:
        found = delegation.find_below(conn, who.account, public_key)
        ended = revocation.revoke(conn, found.account, actor=actor, reason="asked", now=now)
        write_down(conn, public_key)
        return list(ended.public_keys)

    known = await keys.list(None if who.is_owner else who.account)
    if public_key in {key.public_key for key in known}:
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
) -> tuple[delegation.DelegatedKey, NewKey]:
    """A child of the caller's account with a key of its own and what `wish` gives it.

    `is_charged`: people pay here, so whoever has not yet has few. Raises InsufficientCredit.
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
            now=now,
        )
        if is_charged and not wish.budget_sats and made.root != OWNER_ACCOUNT:
            _demand_funds(conn, made, now=now)
        keys.insert(conn, new, actor=f"key:{who.public_key}", expires_at=made.expires_at)
        if bind is not None:
            # The budget has moved with it: whoever asks again must not move another.
            bind(conn, new.public_key)
        return made

    async with slots.alone(who.account):
        return await store.write(write), new


def _demand_funds(conn: Connection, made: delegation.DelegatedKey, *, now: datetime) -> None:
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
    """Give a key below the caller's account more of its sats. Raises NotFound."""

    def write(conn: Connection) -> delegation.DelegatedKey:
        child = delegation.find_below(conn, who.account, public_key)
        delegation.top_up(conn, who.account, child.account, sats, id=id, cut_by=who.public_key, now=now)
        return child

    return await store.write(write)
