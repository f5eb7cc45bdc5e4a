"""Outside money is credited to buckets here, finally or until it is confirmed.

    final:    external ──> bucket                                  reversed: bucket, then debt ──> external
    pending:  unconfirmed:<account> ──> bucket                     usable for meters, not to be given away
              confirmed:  external ──> unconfirmed:<account>       what was beyond the limit: to the bucket
              failed:     bucket, then debt ──> unconfirmed:<account>
    in doubt: frozen:<account> ──> external                        for meters, not for anything new
              there:      external ──> frozen:<account>
              gone:       bucket, then debt ──> frozen:<account>

What an account has unconfirmed is the balance of its own ledger account, so `money.buckets.spend` (gifts,
budgets of delegated keys, refunds, payouts) can leave it alone while meters and creates use it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from sandboxer.accounts import records
from sandboxer.accounts.authority import Act, demand_may
from sandboxer.accounts.records import Account, Status
from sandboxer.identity.sessions import wallets
from sandboxer.identity.signatures.wallets import Wallet
from sandboxer.kernel.errors import NotFound
from sandboxer.money.amounts import Sats, checked_amount
from sandboxer.money.buckets import charge, conclude, credit, open_bucket, receipt, settle_account
from sandboxer.money.ledger import find_transfer, open_account, post_transfer
from sandboxer.money.records import bucket_id, debt_id, frozen_id, unconfirmed_id
from sandboxer.money.transfers import AccountKind, Transfer

PAYMENT = "payment"
REVERSAL = "reversal"


def external(source: str) -> str:
    """Name the ledger account for outside money, by the way it came: x402, invoice, gift_card."""
    return f"external:{source}"


def credit_final(
    conn: Connection,
    account: str,
    sats: Sats,
    *,
    id: str,
    source: str,
    now: datetime,
    reason: str = "paid",
) -> bool:
    """Credit a payment that is final; a debt is paid first.

    The same id credits once, and returns False then.
    """
    is_new = find_transfer(conn, id) is None
    _open(conn, account, source, now)
    credit(
        conn,
        account,
        sats,
        id=id,
        debit=external(source),
        kind=PAYMENT,
        reason=reason,
        now=now,
    )
    return is_new


def reverse_final(
    conn: Connection,
    account: str,
    sats: Sats,
    *,
    id: str,
    reason: str,
    now: datetime,
    source: str = "invoice",
) -> bool:
    """Take back a credited payment that its chain undid; what was spent meanwhile becomes a debt."""
    _open(conn, account, source, now)
    return _take_back(conn, account, sats, to=external(source), id=id, reason=reason, now=now)


def freeze(conn: Connection, account: str, sats: Sats, *, id: str, source: str, now: datetime) -> bool:
    """Freeze a final payment that is in doubt: what runs on it goes on, but it buys nothing new."""
    _open(conn, account, source, now)
    open_account(conn, id=frozen_id(account), kind=AccountKind.EXTERNAL, now=now)
    return _between(conn, frozen_id(account), external(source), sats, id, "frozen", "in doubt", now)


def thaw(conn: Connection, account: str, sats: Sats, *, id: str, source: str, now: datetime) -> bool:
    """Release a frozen payment, because it was found again."""
    return _between(conn, external(source), frozen_id(account), sats, id, "thawed", "found again", now)


def reverse_frozen(
    conn: Connection, account: str, sats: Sats, *, id: str, reason: str, now: datetime
) -> bool:
    """Take back a frozen payment that is gone; what was spent of it becomes a debt."""
    return _take_back(conn, account, sats, to=frozen_id(account), id=id, reason=reason, now=now)


def pending_begin(
    conn: Connection,
    account: str,
    sats: Sats,
    *,
    payment_id: str,
    at_most: Sats,
    source: str,
    now: datetime,
) -> Sats:
    """Credit a payment that was seen but is not final, up to what the payer may still have pending. Returns
    what it gave now; the rest comes when it is confirmed.

    It counts as a receipt too: the window of an account in grace starts again. The same payment begins once.
    """
    checked_amount(sats, field="sats")
    _open(conn, account, source, now)
    id = _pending_transfer(payment_id)
    if (known := find_transfer(conn, id)) is not None:
        return known.amount
    granted = min(sats, max(0, at_most))
    receipt(conn, account, sats, now=now)
    if granted:
        credit(
            conn,
            account,
            granted,
            id=id,
            debit=unconfirmed_id(account),
            kind=PAYMENT,
            reason="paid, not yet confirmed",
            now=now,
        )
    return granted


def pending_confirm(
    conn: Connection,
    account: str,
    sats: Sats,
    *,
    payment_id: str,
    source: str,
    now: datetime,
) -> bool:
    """Make a payment final, also if nothing of it was pending. Returns False if it was confirmed before.

    A payment is either confirmed or fails; the caller's state table ensures that.
    """
    _open(conn, account, source, now)
    granted = granted_to(conn, payment_id)
    changed = False
    if granted:
        id, sides = f"payment:{payment_id}:confirmed", (external(source), unconfirmed_id(account))
        changed = _between(conn, *sides, granted, id, "confirmed", "confirmed on its chain", now)
    if sats > granted:
        changed |= credit_final(
            conn,
            account,
            sats - granted,
            id=f"payment:{payment_id}",
            source=source,
            now=now,
        )
    return changed


def pending_fail(
    conn: Connection,
    account: str,
    *,
    payment_id: str,
    reason: str,
    now: datetime,
) -> bool:
    """Take back what a payment gave that will never come; what was used of it becomes a debt."""
    if not (granted := granted_to(conn, payment_id)):
        return False
    return _take_back(
        conn,
        account,
        granted,
        to=unconfirmed_id(account),
        id=f"payment:{payment_id}:failed",
        reason=reason,
        now=now,
    )


def granted_to(conn: Connection, payment_id: str) -> Sats:
    """Return what a pending payment gave when it was seen."""
    known = find_transfer(conn, _pending_transfer(payment_id))
    return 0 if known is None else known.amount


def account_for_wallet(conn: Connection, wallet: Wallet, *, now: datetime) -> Account:
    """Return the account of a wallet that proved itself by paying; it is opened if it is new.

    Raises Unauthenticated for a wallet that was revoked.
    """
    account = wallets.account_of(conn, wallet, now)
    return records.ensure(conn, account, actor=wallet.caip10, now=now)


def account_to_pay(conn: Connection, public_id: str, *, now: datetime) -> Account:
    """Return an account that anybody may pay for.

    Raises NotFound if it is closed, Forbidden if it may not act.
    """
    if (found := records.find_public(conn, public_id)) is None or found.status is Status.CLOSED:
        raise NotFound(what="account", id=public_id)
    demand_may(conn, found.id, Act.FUND, now=now)
    return found


def _open(conn: Connection, account: str, source: str, now: datetime) -> None:
    open_bucket(conn, account, now=now)
    open_account(conn, id=external(source), kind=AccountKind.EXTERNAL, now=now)
    open_account(conn, id=unconfirmed_id(account), kind=AccountKind.EXTERNAL, now=now)


def _between(
    conn: Connection, debit: str, credit: str, sats: Sats, id: str, kind: str, reason: str, now: datetime
) -> bool:
    transfer = Transfer(id=id, debit=debit, credit=credit, amount=sats, kind=kind, reason=reason, at=now)
    return post_transfer(conn, transfer)


def _pending_transfer(payment_id: str) -> str:
    return f"payment:{payment_id}:pending"


def _take_back(
    conn: Connection,
    account: str,
    sats: Sats,
    *,
    to: str,
    id: str,
    reason: str,
    now: datetime,
) -> bool:
    """Take sats from what is there first, and the rest as a debt. False: it was taken back before."""
    checked_amount(sats, field="sats")
    if find_transfer(conn, id) is not None or find_transfer(conn, f"{id}:debt") is not None:
        settle_account(conn, account, now=now)
        return False
    bucket = charge(conn, account, now=now)
    there = min(sats, max(0, bucket.spendable))
    for name, side, amount in (
        (id, bucket_id(account), there),
        (f"{id}:debt", debt_id(account), sats - there),
    ):
        if amount:
            _between(conn, side, to, amount, name, REVERSAL, reason, now)
    owed = sats - there
    # Use that was paid with money that went back earns no grace until its debt is paid.
    after = replace(
        bucket, posted=bucket.posted - there, debt=bucket.debt + owed, collected=bucket.collected - owed
    )
    conclude(conn, after, now=now, before=bucket)
    return True
