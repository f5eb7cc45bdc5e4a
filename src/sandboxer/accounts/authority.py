"""An authority says what a caller may do now: its account, its ancestry and its scopes. Every request asks
it.

A delegated key may do no more than the accounts above it: if any ancestor is suspended, ending, expired or
closed, so is the key. The repository answers from memory, and every commit that touches an account or one of
its ancestors makes it read again.

`demand_may` checks for every actor whether its account may act, in the transaction of the act itself. A key,
a wallet's session, a wallet that only paid, an invoice, a gift card and our own loops all pass it: where a
sandbox is made or started, where money is asked for, and where it is given away.

A child's scopes are a part of its parent's.

Money that arrives all the same (a deposit that was under way, a payment settled by somebody else) is never
refused, but credited. What a suspended or closed account has stays in its bucket, and only the operator can
take it out (`adjust`) to hand it back.

Users of this machine who come by the platform's socket: who they are, and which account is theirs.

The kernel says who opened a connection (SO_PEERCRED), and the socket's mode says who may: root and its group.
Nobody is the owner by this way, root included. A user's account is `uid-N`, unless the operator named one.
"""

from __future__ import annotations

import asyncio
import pwd
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select

from sandboxer.accounts import records
from sandboxer.accounts.caps import Caps, from_json
from sandboxer.accounts.limits import LIMITS, MAX_DEPTH, LimitPolicy, Sender, generations
from sandboxer.accounts.records import (
    Account,
    Kind,
    Status,
    accounts,
    delegated_keys,
    ensure,
    find,
    has_bucket,
)
from sandboxer.identity.keys import OWNER_ACCOUNT, Caller, keys
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Forbidden, InvalidRequest, NotFound, Unauthenticated
from sandboxer.kernel.values import value_class
from sandboxer.store.engine import Store
from sandboxer.wire.operations.declaration import Needs, Scope

ALL_SCOPES = frozenset(Scope)


def parse_scopes(words: Iterable[str]) -> frozenset[Scope]:
    """Read the scopes of a key. Raises InvalidRequest naming those that are unknown."""
    known = {scope.value for scope in Scope}
    given = list(words)
    if unknown := sorted({str(word) for word in given} - known):
        raise InvalidRequest(
            field="scopes", why=f"no such scope: {', '.join(unknown)}; known are {', '.join(sorted(known))}"
        )
    return frozenset(Scope(word) for word in given)


# What makes, uses and ends sandboxes.
_USUAL = frozenset(
    {
        Scope.SANDBOXES_READ,
        Scope.SANDBOXES_CREATE,
        Scope.SANDBOXES_MANAGE,
        Scope.SANDBOXES_DESTROY,
        Scope.EXEC,
        Scope.FILES_READ,
        Scope.FILES_WRITE,
        Scope.ACCOUNT_READ,
    }
)


def usual_scopes(depth: int) -> frozenset[Scope]:
    """Return what a sandbox may do from inside unless it is said otherwise; to grant as much in turn only
    where a generation may follow.
    """
    return _USUAL | {Scope.KEYS_DELEGATE} if depth else _USUAL


def scopes_to_json(scopes: Iterable[Scope]) -> list[str]:
    return sorted(scope.value for scope in scopes)


CACHED = 10_000
# A change by another process on the same database takes hold within this.
CACHED_FOR = timedelta(seconds=15)
_HELD_ABOVE = "a key or account above this one may not act"


class KeyState(StrEnum):
    ACTIVE = "active"
    # Revoked or expired: it may do nothing more, and its sandboxes are being destroyed and settled.
    ENDING = "ending"
    ENDED = "ended"


@value_class
class Authority:
    account: Account
    # From the root to the account itself.
    ancestry: tuple[str, ...]
    scopes: frozenset[Scope]
    # How many generations its own key lets follow, and how many sandboxes it may have at once, its
    # children's included (None: no limit).
    depth: int
    slots: int | None
    # The first moment at which it, an ancestor, or a key that delegated one of them expires.
    expires_at: datetime | None
    # Its own caps; a child's are never wider than its parent's were when it was delegated.
    caps: Caps
    # Why it may not act at all, in words for the caller; None: it may act.
    refused_why: str | None
    root_tier: int | None
    root_entitled_until: datetime | None
    is_root_owner: bool
    # The operator opened the account at the top.
    is_invited: bool = False

    @property
    def is_delegated(self) -> bool:
        return len(self.ancestry) > 1

    @property
    def root(self) -> str:
        return self.ancestry[0]

    def tier_depth(self, *, now: datetime, policy: LimitPolicy = LIMITS) -> int:
        """Return how many generations may follow by the tier of the account at the top."""
        until = self.root_entitled_until
        tier = self.root_tier if until is not None and now < until else None
        most = generations(tier, is_owner=self.is_root_owner, policy=policy)
        return max(0, most - len(self.ancestry) + 1)

    def depth_left(self, *, now: datetime, policy: LimitPolicy = LIMITS) -> int:
        """Return how many generations may still follow."""
        return min(self.depth, self.tier_depth(now=now, policy=policy))

    def sender(self, caller: Caller, *, now: datetime) -> Sender:
        """Return what the rate limits need to know of the caller."""
        until = self.root_entitled_until
        return Sender(
            public_key=caller.public_key,
            root=self.root,
            is_owner=caller.is_owner,
            is_root_owner=self.is_root_owner,
            is_inside=caller.public_key.startswith(INSIDE),
            tier=self.account.tier_at(now),
            root_tier=self.root_tier if until is not None and now < until else None,
        )


class Act(StrEnum):
    # A sandbox is made or started, whoever pays for it.
    RUN = "run"
    # Something is kept on a disk.
    KEEP = "keep"
    # Somebody is asked for money that this account would get.
    FUND = "fund"
    # Its sats are given to others: a gift, a gift card, a budget.
    SPEND = "spend"


_REFUSED = {
    Act.RUN: "Use another key, or ask whoever gave you this one.",
    Act.KEEP: "Use another key, or ask whoever gave you this one.",
    Act.FUND: "Nothing was taken. Ask the operator, or pay for another account.",
    Act.SPEND: "Use another key, or ask whoever gave you this one.",
}


def why_not_active(authority: Authority, *, now: datetime) -> str | None:
    """Return why the account may not act now, or None if it may. Pure."""
    if authority.refused_why is not None:
        return authority.refused_why
    has_expired = authority.expires_at is not None and authority.expires_at <= now
    return "this delegated key, or one above it, has expired" if has_expired else None


def demand_active(authority: Authority, *, now: datetime) -> None:
    """Raise Forbidden unless the account and all above it may act."""
    if (why := why_not_active(authority, now=now)) is not None:
        raise Forbidden(
            why=why, reason="not_active", hint="Use another key, or ask whoever gave you this one."
        )


def demand(authority: Authority, scope: Scope, *, now: datetime) -> None:
    """Raise Forbidden unless the caller may act and has this scope."""
    demand_active(authority, now=now)
    if scope not in authority.scopes:
        raise Forbidden(
            why=f"this key has no scope {scope.value}",
            reason="missing_scope",
            scope=scope.value,
            scopes=scopes_to_json(authority.scopes),
            hint="Use a key that has it; whoever delegated this one makes such a key:"
            f" sandboxer key delegate NAME --scope {scope.value}.",
        )


def demand_invited(authority: Authority) -> None:
    """Raise Forbidden for an account that came by itself. Where nobody pays, it could take all there is."""
    if not authority.is_invited:
        raise Forbidden(
            why="nothing is for sale on this platform, so only accounts that its operator opened may"
            " create anything",
            reason="not_invited",
            account=authority.root,
            hint=f"Ask the operator to open yours: sandboxer account create --id {authority.root} --reason …",
        )


def demand_needs(authority: Authority, needs: Needs | None, *, now: datetime) -> None:
    """Raise Forbidden for a delegated key that lacks a scope, and for what no delegated key may do.

    `needs` is None for a route that does not exist.
    """
    if needs is None or needs.is_never_delegated:
        raise Forbidden(
            why="delegated keys may not do this, or there is no such route",
            reason="missing_scope",
            hint="Use a key of the account itself.",
        )
    for scope in sorted(needs.all_of):
        demand(authority, scope, now=now)


def load_authority(conn: Connection, account: str) -> Authority:
    """Load an account's authority as of the last commit. Raises NotFound for an account without a record."""
    if (found := find_authority(conn, account)) is None:
        raise NotFound(what="account", id=account)
    return found


_FIND_KEY = select(delegated_keys).where(delegated_keys.c.account == bindparam("wanted_account"))


def find_authority(conn: Connection, account: str) -> Authority | None:
    if (mine := find(conn, account)) is None:
        return None
    key = conn.execute(_FIND_KEY, {"wanted_account": account}).one_or_none()
    if key is None:
        # An account marked as delegated without a delegated key is a forgery and may do nothing.
        is_orphan = mine.kind is Kind.DELEGATED
        return Authority(
            account=mine,
            ancestry=(account,),
            scopes=frozenset() if is_orphan else ALL_SCOPES,
            depth=0 if is_orphan else MAX_DEPTH,
            slots=0 if is_orphan else None,
            expires_at=None,
            caps=mine.caps,
            refused_why="this key belongs to nobody"
            if is_orphan
            else _why_not(mine.status.value, None, True),
            root_tier=mine.tier,
            root_entitled_until=mine.entitled_until,
            is_root_owner=mine.kind is Kind.OWNER,
            is_invited=mine.is_invited,
        )
    return _delegated(conn, mine, key)


def _delegated(conn: Connection, mine: Account, key: Row[Any]) -> Authority:
    ancestry = tuple(key.path.split("/"))
    above = {
        row.id: row
        for row in conn.execute(
            select(
                accounts.c.id,
                accounts.c.kind,
                accounts.c.is_invited,
                accounts.c.status,
                accounts.c.tier,
                accounts.c.entitled_until,
                accounts.c.caps,
                delegated_keys.c.state,
                delegated_keys.c.expires_at,
                # Of the key that delegated it: a child does not outlive that key.
                keys.c.expires_at.label("cutter_ends"),
                keys.c.suspended_at.label("cutter_suspended"),
            )
            .outerjoin(delegated_keys, delegated_keys.c.account == accounts.c.id)
            .outerjoin(keys, keys.c.public_key == delegated_keys.c.cut_by)
            .where(accounts.c.id.in_(ancestry))
        )
    }
    whys = [
        _why_not(above[id].status, above[id].state, id == mine.id) if id in above else "an ancestor is gone"
        for id in reversed(ancestry)
    ]
    whys += [_HELD_ABOVE for row in above.values() if row.cutter_suspended is not None]
    moments = [moment for row in above.values() for moment in (row.expires_at, row.cutter_ends)]
    ends = [moment for moment in moments if moment is not None]
    root = above.get(ancestry[0])
    return Authority(
        account=mine,
        ancestry=ancestry,
        scopes=parse_scopes(key.scopes),
        depth=key.depth,
        slots=key.slots,
        expires_at=min(ends, default=None),
        caps=from_json(above[mine.id].caps),
        refused_why=next((why for why in whys if why is not None), None),
        root_tier=None if root is None else root.tier,
        root_entitled_until=None if root is None else root.entitled_until,
        is_root_owner=root is not None and root.kind == Kind.OWNER.value,
        is_invited=root is not None and (root.is_invited or root.kind == Kind.OWNER.value),
    )


def _why_not(status: str, state: str | None, is_self: bool) -> str | None:
    # The caller learns only that an ancestor is the reason, not why.
    if status == Status.ACTIVE.value and state in (None, KeyState.ACTIVE.value):
        return None
    if not is_self:
        return _HELD_ABOVE
    if state in (KeyState.ENDING.value, KeyState.ENDED.value):
        return "this key was revoked"
    return f"this account is {status}"


class AuthorityRepository:
    """Keeps authorities in memory. It lives on one event loop; close it before the store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: OrderedDict[str, tuple[Authority, datetime]] = OrderedDict()
        # For each account, the cached accounts that depend on it: itself and those below it.
        self._hanging: dict[str, set[str]] = {}
        # For each read under way, the commits since it began: its answer must not be cached then.
        self._missed: list[set[str]] = []
        self._leave: Callable[[], None] = store.on_commit(self._hear)

    async def of(self, caller: Caller, *, now: datetime | None = None) -> Authority:
        """Return the authority of an authenticated caller; an account seen for the first time gets its
        record. `now` is for who has read the clock already.
        """
        now = now or self._clock.now()
        if (cached := self._known.get(caller.account)) is not None and cached[1] > now:
            return cached[0]
        missed: set[str] = set()
        self._missed.append(missed)
        try:
            found = await self._store.read(lambda conn: self._find(conn, caller.account))
        finally:
            # Compared by identity, because two reads may have missed the same commits.
            self._missed = [other for other in self._missed if other is not missed]
        if found is None:
            return await self._store.write(lambda conn: self._ensure(conn, caller, now))
        if missed.isdisjoint(found.ancestry):
            self._remember(found, until=now + CACHED_FOR)
        return found

    def close(self) -> None:
        self._leave()

    def _find(self, conn: Connection, account: str) -> Authority | None:
        if find(conn, account) is None or not has_bucket(conn, account):
            return None
        return load_authority(conn, account)

    def _ensure(self, conn: Connection, caller: Caller, now: datetime) -> Authority:
        ensure(conn, caller.account, actor=f"key:{caller.public_key}", now=now)
        return load_authority(conn, caller.account)

    def _remember(self, authority: Authority, *, until: datetime) -> None:
        self._drop(authority.account.id)
        self._known[authority.account.id] = (authority, until)
        for ancestor in authority.ancestry:
            self._hanging.setdefault(ancestor, set()).add(authority.account.id)
        if len(self._known) > CACHED:
            self._drop(next(iter(self._known)))

    def _drop(self, account: str) -> None:
        known = self._known.pop(account, None)
        for ancestor in () if known is None else known[0].ancestry:
            hanging = self._hanging[ancestor]
            hanging.discard(account)
            if not hanging:
                del self._hanging[ancestor]

    def _hear(self, topics: frozenset[str]) -> None:
        for missed in self._missed:
            missed |= topics
        for topic in topics:
            for account in tuple(self._hanging.get(topic, ())):
                self._drop(account)


def refusal(authority: Authority, act: Act, *, now: datetime) -> Forbidden | None:
    """Return the error if an account may not do this, or None if it may. Pure."""
    if (why := why_not_active(authority, now=now)) is None:
        return None
    if act is Act.FUND:
        # Anybody may pay for an account, and must not learn what its operator did.
        why = "this account takes no payments"
    return Forbidden(why=why, reason="not_active", hint=_REFUSED[act])


def demand_may(
    conn: Connection, account: str, act: Act, *, now: datetime, is_by_invitation: bool = False
) -> Authority | None:
    """Raise Forbidden unless the account and all above it may act; return its authority. An account without a
    record may, and the owner: they have None.

    `is_by_invitation`: the account at the top must be one that the operator opened.
    """
    authority = None if account == OWNER_ACCOUNT else find_authority(conn, account)
    if authority is None:
        return None
    if (error := refusal(authority, act, now=now)) is not None:
        raise error
    if is_by_invitation:
        demand_invited(authority)
    return authority


PREFIX = "unix:"
# What the kernel says of a user whom this machine's user namespace does not know.
_NOBODY = 65534


# Programs in a sandbox that may speak to the platform, by the id of the sandbox.
INSIDE = "inside:"


def is_local(caller: Caller) -> bool:
    """Says whether a caller is known by the socket alone: a user of this machine, or a sandbox. Such a caller
    has nothing that could be stolen, and makes nothing that would outlive what he is known by.
    """
    return caller.public_key.startswith((PREFIX, INSIDE))


@value_class
class LocalUsers:
    store: Store
    clock: Clock
    # Accounts by name of user, as the operator set them.
    accounts: Mapping[str, str]
    # Uids from here on are sandboxes'.
    sandboxes_from: int
    _known: dict[int, Caller] = field(default_factory=dict)

    async def caller(self, uid: int) -> Caller:
        """Returns the user as a caller; his account is opened the first time. Raises Unauthenticated."""
        if (known := self._known.get(uid)) is not None:
            return known
        # Names may be asked for over the network.
        name = await asyncio.to_thread(_name_of, uid)
        # A member may be any of his subordinate uids, too, and keep his groups: they have no names.
        if not name or uid == _NOBODY or uid >= self.sandboxes_from:
            raise Unauthenticated(
                why=f"there is no user {uid} on this machine", reason="not_a_user", hint="Use a key."
            )
        caller = Caller(public_key=f"{PREFIX}{uid}", account=self.accounts.get(name, f"uid-{uid}"))
        await self.store.write(lambda conn: self._open(conn, caller, name))
        self._known[uid] = caller
        return caller

    def _open(self, conn: Connection, caller: Caller, name: str) -> None:
        now = self.clock.now()
        records.ensure(conn, caller.account, actor=caller.public_key, now=now)
        # The operator opened the socket to the group that this user is in.
        why = f"{name} came by the socket"
        records.invite(conn, caller.account, actor=caller.public_key, reason=why, now=now)


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""
