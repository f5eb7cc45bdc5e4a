"""A delegated key is cut from a parent: it gets a budget, scopes, depth, slots and an end within its
parent's.

A child has an account and a bucket of its own. The ledger moves its budget there, so neither can spend the
other's sats. A parent that gave everything away is not dry, as nothing of its own runs unpaid.

`tree` returns a key, everything below it, and what each has spent, as `GET /v1/keys/tree` shows it.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, insert, select

from sandboxer.accounts import audit, caps, records
from sandboxer.accounts.authority import (
    Authority,
    KeyState,
    demand,
    load_authority,
    parse_scopes,
    scopes_to_json,
)
from sandboxer.accounts.caps import NO_CAPS, Caps
from sandboxer.accounts.limits import LIMITS, MAX_DEPTH, LimitPolicy
from sandboxer.accounts.records import Kind, delegated_keys
from sandboxer.accounts.sums import GIVEN, Totals, spent_by, totals
from sandboxer.identity.keys import is_public_key, keys
from sandboxer.kernel.errors import (
    Conflict,
    Forbidden,
    InsufficientCredit,
    InvalidRequest,
    NotFound,
    TooLarge,
    or_not_found,
)
from sandboxer.kernel.values import new_id, value_class
from sandboxer.money.amounts import MAX_AMOUNT, Sats, checked_amount
from sandboxer.money.buckets import open_bucket, settle_account, spend
from sandboxer.money.ledger import find_transfer
from sandboxer.money.records import bucket_id
from sandboxer.money.segments import count_move
from sandboxer.observe.events import record
from sandboxer.store.rows import from_row
from sandboxer.store.workers import announce
from sandboxer.wire.operations.declaration import Scope

# How many delegated keys of one account may live at once.
MAX_CHILDREN = 1000
MAX_SLOTS = 1_000_000
MAX_NAME = 200
# Living keys below one account that nobody delegated, however deep: they end in one transaction.
MAX_NODES = 10_000
_REVOKE_ONE = "Revoke one first: GET /v1/keys/tree, then DELETE /v1/keys/{public_key}."
_CHUNK = 500


@value_class
class Cut:
    """What is asked for a new key.

    The defaults ask for little; `expires_at` None asks for the parent's end.
    """

    name: str = ""
    budget_sats: Sats = 0
    scopes: frozenset[Scope]
    depth: int = 0
    # None: no limit, which only a parent without a limit can give.
    slots: int | None = None
    expires_at: datetime | None = None
    caps: Caps = NO_CAPS


@value_class
class Allowance:
    """What a parent may still give to a child."""

    scopes: frozenset[Scope]
    depth: int
    slots: int | None
    expires_at: datetime | None
    caps: Caps
    # By the tier of the account at the top, whatever its own key says.
    tier_depth: int = MAX_DEPTH


@value_class
class DelegatedKey:
    account: str
    public_key: str
    name: str
    parent: str
    root: str
    path: str
    generation: int
    cut_by: str
    scopes: frozenset[Scope]
    depth: int
    slots: int | None
    expires_at: datetime | None
    state: KeyState
    reason: str
    created_at: datetime
    ended_at: datetime | None
    returned_sats: Sats | None
    kept_sats: Sats | None

    @property
    def ancestry(self) -> tuple[str, ...]:
        """From the root to itself."""
        return tuple(self.path.split("/"))


@value_class
class Node:
    account: str
    # None for an account that nobody delegated.
    key: DelegatedKey | None
    totals: Totals
    # Its own spending and that of all below it.
    subtree_spent: Sats
    children: tuple[Node, ...]


def attenuate(allowance: Allowance, wish: Cut, *, now: datetime) -> Cut:
    """Return the wish as it can be granted. Raises Forbidden naming the axis on which it exceeds its parent.

    Pure; whether the budget can be paid is seen later.
    """
    _check_form(wish)
    if beyond := wish.scopes - allowance.scopes:
        raise _grows("scopes", f"this key has no {', '.join(scopes_to_json(beyond))} to give")
    if allowance.depth < 1:
        raise _grows("depth", "no further generation may be delegated below this key")
    if wish.depth > allowance.depth - 1:
        raise _grows("depth", f"a child of this key has a depth of at most {allowance.depth - 1}")
    if wish.depth >= allowance.tier_depth:
        raise _too_deep(allowance.tier_depth)
    slots = wish.slots
    if allowance.slots is not None:
        if slots is None:
            raise _grows("slots", f"this key has {allowance.slots} slots left: say how many of them")
        if slots > allowance.slots:
            raise _grows("slots", f"this key has {allowance.slots} slots left")
    expires_at = allowance.expires_at if wish.expires_at is None else wish.expires_at
    if expires_at is not None and expires_at <= now:
        raise InvalidRequest(field="expires_at", why="it has passed")
    if allowance.expires_at is not None and expires_at is not None and expires_at > allowance.expires_at:
        raise _grows("expires_at", f"this key itself ends at {allowance.expires_at.isoformat()}")
    return Cut(
        name=wish.name,
        budget_sats=wish.budget_sats,
        scopes=wish.scopes,
        depth=wish.depth,
        slots=slots,
        expires_at=expires_at,
        caps=caps.attenuate(allowance.caps, wish.caps),
    )


def cut(
    conn: Connection,
    parent: str,
    wish: Cut,
    *,
    public_key: str,
    cut_by: str,
    now: datetime,
    account: str | None = None,
    slots_in_use: int = 0,
    policy: LimitPolicy = LIMITS,
) -> DelegatedKey:
    """Make a child of `parent` and move its budget, in one transaction; insert the key itself in the same
    one.

    `cut_by` is the caller's public key, `slots_in_use` how many sandboxes the parent has itself. Raises
    Forbidden (exceeds its parent, may not act), InsufficientCredit, Conflict (id or key taken, too many).
    """
    if not is_public_key(public_key):
        raise InvalidRequest(field="public_key", why="it is not a public key")
    # The lock on the parent's row makes two cuts at once wait for each other.
    records.load(conn, parent, lock=True)
    open_bucket(conn, parent, now=now)
    authority = load_authority(conn, parent)
    demand(authority, Scope.KEYS_DELEGATE, now=now)
    granted = attenuate(_allowance(conn, authority, cut_by, slots_in_use, policy, now), wish, now=now)
    if _living_children(conn, parent) >= MAX_CHILDREN:
        why = f"an account has at most {MAX_CHILDREN} living delegated keys"
        raise Conflict(why=why, limit=MAX_CHILDREN, hint=_REVOKE_ONE)
    if living_below(conn, authority.root) >= MAX_NODES:
        why = f"an account has at most {MAX_NODES} living delegated keys below it, of all generations"
        raise Conflict(why=why, limit=MAX_NODES, hint=_REVOKE_ONE)
    child = account or new_id("acc")
    if child in authority.ancestry:
        raise Conflict(why="a key cannot be its own ancestor", hint="Name another account for it, or none.")
    _insert(conn, authority, child, public_key, cut_by, granted, now)
    if granted.budget_sats:
        give(conn, parent, child, granted.budget_sats, id=f"{GIVEN}:{child}", key=cut_by, now=now)
    facts = {
        "child": child,
        "public_key": public_key,
        "budget_sats": granted.budget_sats,
        "scopes": scopes_to_json(granted.scopes),
        "depth": granted.depth,
        "slots": granted.slots,
        "expires_at": None if granted.expires_at is None else granted.expires_at.isoformat(),
    }
    actor = f"key:{cut_by}"
    for subject in (parent, child):
        record(conn, subject=subject, kind="delegation.cut", actor=actor, reason="asked", at=now, data=facts)
    audit.append(
        conn, actor=actor, action="delegation.cut", subject=parent, reason="asked", data=facts, now=now
    )
    return load_key(conn, child)


def top_up(
    conn: Connection, parent: str, child: str, sats: Sats, *, id: str, cut_by: str, now: datetime
) -> None:
    """Give a living child more sats. Only its own parent may; the same id gives once and succeeds again."""
    records.load(conn, parent, lock=True)
    authority = load_authority(conn, parent)
    demand(authority, Scope.KEYS_DELEGATE, now=now)
    if (key := find_key(conn, child)) is None or key.parent != parent:
        raise NotFound(what="delegated key", id=child)
    transfer_id = f"{GIVEN}:{child}:{id}"
    if (known := find_transfer(conn, transfer_id)) is not None:
        # It was given before; a cap or a revocation that came later does not change that.
        if known.amount != sats:
            why = f"the id {id} was already used to give {known.amount} sats"
            raise Conflict(why=why, hint="Take another id: what bears the same one is given once.")
        return
    if key.state is not KeyState.ACTIVE:
        raise Conflict(why="this key has been revoked", hint="Make another: POST /v1/keys/delegated.")
    give(conn, parent, child, sats, id=transfer_id, key=cut_by, now=now)
    audit.append(
        conn,
        actor=f"key:{cut_by}",
        action="delegation.top_up",
        subject=parent,
        reason="asked",
        data={"child": child, "sats": sats, "id": id},
        now=now,
    )


def give(conn: Connection, parent: str, child: str, sats: Sats, *, id: str, key: str, now: datetime) -> None:
    """Move sats to a child, within the caps of the parent and its key.

    Raises InsufficientCredit, Forbidden.
    """
    checked_amount(sats, field="budget_sats")
    bounds = records.load(conn, parent).caps
    caps.check(bounds, spent_by(conn, parent, bounds, key=key, now=now), wanted=sats)
    try:
        spend(
            conn,
            parent,
            sats,
            id=id,
            to=bucket_id(child),
            kind=GIVEN,
            reason="budget of a delegated key",
            now=now,
            data={"parent": parent, "child": child},
        )
    except InsufficientCredit as error:
        facts = {**error.facts, "hint": "Give less, or add credit to this account first."}
        raise InsufficientCredit(**facts) from None
    count_move(conn, parent, key, sats, at=now)
    settle_account(conn, child, now=now)
    announce(conn, child)


def find_key(conn: Connection, account: str) -> DelegatedKey | None:
    row = conn.execute(select(delegated_keys).where(delegated_keys.c.account == account)).one_or_none()
    return None if row is None else key_of(row)


def load_key(conn: Connection, account: str) -> DelegatedKey:
    return or_not_found(find_key(conn, account), what="delegated key", id=account)


def is_delegated(conn: Connection, public_key: str) -> bool:
    """Say whether a key was cut from another."""
    query = select(delegated_keys.c.account).where(delegated_keys.c.public_key == public_key)
    return conn.execute(query).first() is not None


def find_below(conn: Connection, ancestor: str | None, public_key: str) -> DelegatedKey:
    """Find a key below an account (None: any) by its public key. Raises NotFound also if it is elsewhere."""
    row = conn.execute(select(delegated_keys).where(delegated_keys.c.public_key == public_key)).one_or_none()
    if row is None or (ancestor is not None and ancestor not in row.path.split("/")[:-1]):
        raise NotFound(what="delegated key", id=public_key)
    return key_of(row)


def children(
    conn: Connection, parent: str, *, after: str | None = None, limit: int = 100, living_only: bool = False
) -> list[DelegatedKey]:
    """Return the keys delegated directly by an account, by account id; `after` is the last one seen."""
    columns = delegated_keys.c
    query = select(delegated_keys).where(columns.parent == parent).order_by(columns.account)
    if after is not None:
        query = query.where(columns.account > after)
    if living_only:
        query = query.where(columns.state != KeyState.ENDED.value)
    return [key_of(row) for row in conn.execute(query.limit(max(1, min(limit, MAX_CHILDREN))))]


def below(conn: Connection, account: str, *, living_only: bool = False) -> list[DelegatedKey]:
    """Return every key below an account, without itself, parents before children."""
    columns = delegated_keys.c
    if (mine := find_key(conn, account)) is None:
        query = select(delegated_keys).where(columns.root == account)
    else:
        query = select(delegated_keys).where(
            columns.root == mine.root, columns.path.startswith(f"{mine.path}/", autoescape=True)
        )
    if living_only:
        query = query.where(columns.state != KeyState.ENDED.value)
    return [key_of(row) for row in conn.execute(query.order_by(columns.generation, columns.account))]


def living_below(conn: Connection, root: str) -> int:
    """Keys below an account that nobody delegated, of all generations."""
    columns = delegated_keys.c
    query = select(func.count()).where(columns.root == root, columns.state != KeyState.ENDED.value)
    return int(conn.execute(query).scalar() or 0)


def slots_left(conn: Connection, authority: Authority, slots_in_use: int) -> int | None:
    """Return how many sandboxes an account may still have or give: its slots less those used or given."""
    if authority.slots is None:
        return None
    given = conn.execute(
        select(func.sum(delegated_keys.c.slots)).where(
            delegated_keys.c.parent == authority.account.id, delegated_keys.c.state != KeyState.ENDED.value
        )
    ).scalar()
    return max(0, authority.slots - int(given or 0) - slots_in_use)


def _allowance(
    conn: Connection,
    authority: Authority,
    cut_by: str,
    slots_in_use: int,
    policy: LimitPolicy,
    now: datetime,
) -> Allowance:
    own_end = conn.execute(select(keys.c.expires_at).where(keys.c.public_key == cut_by)).scalar()
    ends = [moment for moment in (authority.expires_at, own_end) if moment is not None]
    return Allowance(
        scopes=authority.scopes,
        depth=authority.depth,
        slots=slots_left(conn, authority, slots_in_use),
        expires_at=min(ends, default=None),
        caps=authority.caps,
        tier_depth=authority.tier_depth(now=now, policy=policy),
    )


def _check_form(wish: Cut) -> None:
    for name, value, most in (
        ("budget_sats", wish.budget_sats, MAX_AMOUNT),
        ("depth", wish.depth, MAX_DEPTH),
        ("slots", 0 if wish.slots is None else wish.slots, MAX_SLOTS),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise InvalidRequest(field=name, why=f"it is a whole number between 0 and {most}")
    if len(wish.name) > MAX_NAME:
        raise InvalidRequest(field="name", why=f"it has more than {MAX_NAME} characters")
    if wish.expires_at is not None and wish.expires_at.tzinfo is None:
        raise InvalidRequest(field="expires_at", why="it needs a time zone")


def _grows(axis: str, why: str) -> Forbidden:
    return Forbidden(
        why=f"{axis}: {why}",
        reason="attenuation_only",
        axis=axis,
        hint="Ask for no more than this key has itself.",
    )


def _too_deep(left: int) -> Forbidden:
    return Forbidden(
        why=f"depth: the tier of the account at the top lets {left} more generations follow below this key",
        reason="tier_depth",
        axis="depth",
        depth_left=left,
        hint="Ask for less depth, or for a higher tier: GET /v1/pricing says what each allows.",
    )


def _living_children(conn: Connection, parent: str) -> int:
    query = select(func.count()).where(
        delegated_keys.c.parent == parent, delegated_keys.c.state != KeyState.ENDED.value
    )
    return int(conn.execute(query).scalar() or 0)


def _insert(
    conn: Connection,
    parent: Authority,
    child: str,
    public_key: str,
    cut_by: str,
    granted: Cut,
    now: datetime,
) -> None:
    taken = select(delegated_keys.c.account).where(delegated_keys.c.public_key == public_key)
    if conn.execute(taken).one_or_none() is not None:
        raise Conflict(why="this key is delegated already", hint="See where it is: GET /v1/keys/tree.")
    records.create(
        conn,
        id=child,
        kind=Kind.DELEGATED,
        name=granted.name,
        caps=granted.caps,
        actor=f"key:{cut_by}",
        reason="delegated",
        now=now,
    )
    conn.execute(
        insert(delegated_keys).values(
            account=child,
            public_key=public_key,
            name=granted.name,
            parent=parent.account.id,
            root=parent.root,
            path="/".join((*parent.ancestry, child)),
            generation=len(parent.ancestry),
            cut_by=cut_by,
            scopes=scopes_to_json(granted.scopes),
            depth=granted.depth,
            slots=granted.slots,
            expires_at=granted.expires_at,
            state=KeyState.ACTIVE.value,
            reason="cut",
            created_at=now,
        )
    )


def key_of(row: Row[Any]) -> DelegatedKey:
    return from_row(DelegatedKey, row, scopes=parse_scopes(row.scopes), state=KeyState(row.state))


def tree(conn: Connection, account: str, *, now: datetime, living_only: bool = False) -> Node:
    """Return the tree below an account, with itself at the top. Its ancestors are not shown, and where those
    that ended would be too many, only those that live: what ended is never deleted.
    """
    found = below(conn, account, living_only=living_only)
    if len(found) > MAX_NODES:
        found = [key for key in found if key.state is not KeyState.ENDED]
    if len(found) > MAX_NODES:
        raise TooLarge(what="This tree of keys", limit=f"{MAX_NODES} keys")
    sums = totals(conn, [account, *(key.account for key in found)], now=now)
    made: dict[str, list[Node]] = {}
    # Parents come before children, so from the end every node's children are made before it.
    for key in reversed(found):
        node = _node(key.account, key, sums, made.pop(key.account, []))
        made.setdefault(key.parent, []).append(node)
    return _node(account, find_key(conn, account), sums, made.pop(account, []))


_PATHS = select(delegated_keys.c.account, delegated_keys.c.path).where(
    delegated_keys.c.account.in_(bindparam("some", expanding=True))
)


def accounts_above(conn: Connection, accounts: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the ancestors of the delegated ones among these accounts; their events go to those as well."""
    found: dict[str, tuple[str, ...]] = {}
    names = sorted(accounts)
    for start in range(0, len(names), _CHUNK):
        paths = conn.execute(_PATHS, {"some": names[start : start + _CHUNK]})
        found |= {account: tuple(path.split("/")[:-1]) for account, path in paths}
    return found


def _node(account: str, key: DelegatedKey | None, sums: dict[str, Totals], children: list[Node]) -> Node:
    ordered = tuple(sorted(children, key=lambda node: node.account))
    return Node(
        account=account,
        key=key,
        totals=sums[account],
        subtree_spent=sums[account].spent + sum(child.subtree_spent for child in ordered),
        children=ordered,
    )
