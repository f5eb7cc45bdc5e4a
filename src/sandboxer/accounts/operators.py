"""Acts of the operator on accounts and money. Each has a reason and a line in the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import Connection, func, select

from sandboxer.accounts import audit, records
from sandboxer.accounts.caps import NO_CAPS, Caps, as_json
from sandboxer.accounts.records import Account, Change, Kind, has_bucket
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Forbidden, InsufficientCredit, InvalidRequest
from sandboxer.kernel.values import value_class
from sandboxer.money.amounts import Sats, checked_amount
from sandboxer.money.buckets import credit, open_bucket, settle_account, spend
from sandboxer.money.ledger import (
    EXTERNAL,
    INCOME,
    balance,
    find_transfer,
    open_account,
    open_platform_accounts,
    post_transfer,
)
from sandboxer.money.statements import AccountView, account_view
from sandboxer.money.tables import ledger_accounts
from sandboxer.money.transfers import AccountKind, Transfer

ADJUSTMENTS = "adjustments:operator"


class Act(Protocol):
    """A change of an account that needs nothing but a reason."""

    def __call__(
        self, conn: Connection, operator: Caller, account: str, /, *, reason: str, now: datetime
    ) -> Account: ...


@value_class
class Overview:
    """An account with its money, as the operator sees it."""

    account: Account
    # None: it has no bucket.
    money: AccountView | None


def demand_operator(caller: Caller) -> str:
    """Return the operator's name for the audit log. Raises Forbidden for anyone but the owner's key."""
    if not caller.is_owner:
        raise Forbidden(
            why="only the platform's operator may do this",
            reason="operator_only",
            hint="Use the operator's key: as root on the machine of the platform it is found by itself.",
        )
    return f"key:{caller.public_key}"


def create_account(
    conn: Connection,
    operator: Caller,
    *,
    reason: str,
    now: datetime,
    id: str | None = None,
    name: str = "",
    caps: Caps = NO_CAPS,
) -> Account:
    """Open an account, or one that has come by itself: a wallet that signed in, to which nobody said yes.

    Raises Conflict if the id is taken otherwise.
    """
    actor = demand_operator(operator)
    _demand_reason(reason)
    if id is not None and _has_come_by_itself(conn, id):
        if caps != NO_CAPS:
            records.set_caps(conn, id, caps, actor=actor, reason=reason, now=now)
    else:
        id = records.create(conn, id=id, name=name, caps=caps, actor=actor, reason=reason, now=now).id
    account = records.invite(conn, id, actor=actor, reason=reason, now=now)
    _write_down(conn, actor, "account.create", account.id, reason, {"name": name, "caps": as_json(caps)}, now)
    return account


def _has_come_by_itself(conn: Connection, id: str) -> bool:
    found = records.find(conn, id, lock=True)
    return found is not None and found.kind is Kind.CUSTOMER and not found.is_invited


def suspend_account(
    conn: Connection, operator: Caller, account: str, *, reason: str, now: datetime
) -> Account:
    """Suspend an account and all below it. What runs is stopped (`sandboxes/loops/suspension.py`), nothing is
    destroyed. `reinstate` lets them act, and resume it, again.
    """
    return _change(conn, operator, account, Change.SUSPEND, reason, now)


def reinstate_account(
    conn: Connection, operator: Caller, account: str, *, reason: str, now: datetime
) -> Account:
    return _change(conn, operator, account, Change.REINSTATE, reason, now)


def close_account(conn: Connection, operator: Caller, account: str, *, reason: str, now: datetime) -> Account:
    """Close an account for good; its record and ledger stay. Raises Conflict while anything of it is left."""
    return _change(conn, operator, account, Change.CLOSE, reason, now)


def entitle_account(
    conn: Connection,
    operator: Caller,
    account: str,
    *,
    tier: int | None,
    until: datetime | None,
    reason: str,
    now: datetime,
) -> Account:
    actor = demand_operator(operator)
    _demand_reason(reason)
    changed = records.entitle(conn, account, tier=tier, until=until, actor=actor, reason=reason, now=now)
    data = {"tier": tier, "until": None if until is None else until.isoformat()}
    _write_down(conn, actor, "account.entitle", account, reason, data, now)
    return changed


def cap_account(
    conn: Connection, operator: Caller, account: str, caps: Caps, *, reason: str, now: datetime
) -> Account:
    actor = demand_operator(operator)
    _demand_reason(reason)
    changed = records.set_caps(conn, account, caps, actor=actor, reason=reason, now=now)
    _write_down(conn, actor, "account.cap", account, reason, as_json(caps), now)
    return changed


def adjust(
    conn: Connection, operator: Caller, account: str, sats: Sats, *, id: str, reason: str, now: datetime
) -> bool:
    """Give sats (above zero) or take them (below zero). The same id adjusts once, and returns False then.

    The reserve of what runs cannot be taken. Raises InsufficientCredit if there is too little.
    """
    actor = demand_operator(operator)
    _demand_reason(reason)
    checked_amount(abs(sats) if isinstance(sats, int) else sats, field="sats")
    records.load(conn, account, lock=True)
    open_bucket(conn, account, now=now)
    open_account(conn, id=ADJUSTMENTS, kind=AccountKind.EXTERNAL, now=now)
    transfer_id = f"adjust:{id}"
    is_new = find_transfer(conn, transfer_id) is None
    common: dict[str, Any] = {"id": transfer_id, "kind": "adjust", "reason": reason, "now": now}
    if sats > 0:
        credit(conn, account, sats, debit=ADJUSTMENTS, **common)
    else:
        spend(conn, account, -sats, to=ADJUSTMENTS, **common)
    if is_new:
        _write_down(conn, actor, "account.adjust", account, reason, {"sats": sats, "id": id}, now)
    return is_new


def pay_out(conn: Connection, operator: Caller, sats: Sats, *, id: str, reason: str, now: datetime) -> bool:
    """Take income out of the platform, at most what was earned. The same id pays out once, False then."""
    actor = demand_operator(operator)
    _demand_reason(reason)
    checked_amount(sats, field="sats")
    open_platform_accounts(conn, now=now)
    transfer_id = f"payout:{id}"
    earned = balance(conn, INCOME).posted
    if sats > earned and find_transfer(conn, transfer_id) is None:
        raise InsufficientCredit(required=sats, available=max(0, earned), account=INCOME)
    transfer = Transfer(
        id=transfer_id, debit=INCOME, credit=EXTERNAL, amount=sats, kind="payout", reason=reason, at=now
    )
    if not post_transfer(conn, transfer):
        return False
    _write_down(conn, actor, "income.pay_out", INCOME, reason, {"sats": sats, "id": id}, now)
    return True


def view_account(conn: Connection, operator: Caller, account: str, *, now: datetime) -> Overview:
    """Return an account with its money. It writes nothing, so it may run in `store.read`."""
    demand_operator(operator)
    found = records.load(conn, account)
    money = account_view(conn, account, now=now) if has_bucket(conn, account) else None
    return Overview(account=found, money=money)


def list_accounts(
    conn: Connection, operator: Caller, *, after: str | None = None, limit: int = 100
) -> list[Account]:
    demand_operator(operator)
    return records.page(conn, after=after, limit=limit)


def totals(conn: Connection, operator: Caller) -> dict[str, dict[str, int]]:
    """Return what all ledger accounts of each kind hold, by asset; each asset adds up to zero."""
    demand_operator(operator)
    columns = ledger_accounts.c
    query = select(
        columns.asset, columns.kind, func.sum(columns.credits_posted - columns.debits_posted)
    ).group_by(columns.asset, columns.kind)
    found: dict[str, dict[str, int]] = {}
    for asset, kind, value in conn.execute(query):
        found.setdefault(asset, {})[kind] = int(value)
    return found


def _change(
    conn: Connection, operator: Caller, account: str, change: Change, reason: str, now: datetime
) -> Account:
    actor = demand_operator(operator)
    before = records.load(conn, account, lock=True)
    open_bucket(conn, account, now=now)
    after = records.change_status(conn, account, change, actor=actor, reason=reason, now=now)
    if after.status is not before.status:
        settle_account(conn, account, now=now)
        _write_down(conn, actor, f"account.{change.value}", account, reason, {}, now)
    return after


def _demand_reason(reason: str) -> None:
    if not reason.strip():
        raise InvalidRequest(field="reason", why="say why")


def _write_down(
    conn: Connection,
    actor: str,
    action: str,
    subject: str,
    reason: str,
    data: Mapping[str, Any],
    now: datetime,
) -> None:
    audit.append(conn, actor=actor, action=action, subject=subject, reason=reason, data=data, now=now)
