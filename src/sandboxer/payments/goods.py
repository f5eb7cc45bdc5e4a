"""What outside money buys: sats, or a tier for some months; how it is handed over and taken back.

Other packages add their own kinds of goods. Everything here happens inside the transaction in which the money
arrives, so there is never one without the other, and no network is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import Connection, select

from sandboxer.accounts import records as accounts
from sandboxer.accounts.records import Account
from sandboxer.identity.keys import Keys, NewKey, generate
from sandboxer.identity.keys import keys as key_table
from sandboxer.identity.tables import wallets
from sandboxer.kernel.clock import add_months
from sandboxer.kernel.errors import Broken, Conflict
from sandboxer.money.amounts import Sats
from sandboxer.money.ledger import INCOME, open_account, open_platform_accounts, post_transfer
from sandboxer.money.transfers import AccountKind, Transfer
from sandboxer.payments import records as payments
from sandboxer.payments.credits import external
from sandboxer.payments.invoices.records import Invoice, Kind
from sandboxer.payments.records import Payment

ACTOR = "system:invoices"


class Goods(Protocol):
    kind: str
    # The ledger account (in sats) its price is paid into; must be open, or be opened by `deliver`.
    takes: str
    # Whether handing it over needs the account; if not, one is made only for sats that were too much.
    needs_account: bool

    def deliver(self, conn: Connection, invoice: Invoice, *, now: datetime) -> Mapping[str, Any]:
        """Hand the goods over. The result is stored as `invoice.granted`, as JSON."""

    def withdraw(self, conn: Connection, invoice: Invoice, *, now: datetime) -> None:
        """Take the goods back; `invoice.granted` says what was given."""


class CreditGoods:
    """The goods of an invoice that buys sats: the credit itself, and nothing else to hand over."""

    kind = Kind.SATS.value
    takes = INCOME
    needs_account = True

    def deliver(self, conn: Connection, invoice: Invoice, *, now: datetime) -> Mapping[str, Any]:
        return {}

    def withdraw(self, conn: Connection, invoice: Invoice, *, now: datetime) -> None:
        return None


class TierMonths:
    """The goods of an invoice that buys a tier. Time left of another tier is added at its worth."""

    kind = Kind.TIER.value
    takes = INCOME
    needs_account = True

    def deliver(self, conn: Connection, invoice: Invoice, *, now: datetime) -> Mapping[str, Any]:
        tier, months = invoice.buys.tier, invoice.buys.months
        if tier is None or months is None:
            raise Broken(why=f"{invoice.id} buys a tier and names none")
        account = accounts.load(conn, invoice.account, lock=True)
        until = entitled_until(account.tier_at(now), account.entitled_until, tier, months, now=now)
        _entitle(conn, invoice.account, tier, until, "bought by invoice", now)
        return {
            "tier": tier,
            "until": until.isoformat(),
            "before_tier": account.tier_at(now),
            "before_until": None if account.entitled_until is None else account.entitled_until.isoformat(),
        }

    def withdraw(self, conn: Connection, invoice: Invoice, *, now: datetime) -> None:
        given = invoice.granted
        until = datetime.fromisoformat(given["until"])
        account = accounts.load(conn, invoice.account, lock=True)
        if (account.tier, account.entitled_until) == (given["tier"], until):
            before = given["before_until"]
            was = None if before is None else datetime.fromisoformat(before)
            _entitle(conn, invoice.account, given["before_tier"], was, "its payment went back", now)
        elif account.tier is not None and account.entitled_until is not None:
            # Something was bought or given since: only the time of this one goes.
            added = until - max(now, datetime.fromisoformat(given["before_until"] or now.isoformat()))
            worth = added * given["tier"] / account.tier
            left = account.entitled_until - max(worth, timedelta(0))
            _entitle(conn, invoice.account, account.tier, left, "a payment went back", now)


def entitled_until(
    tier: int | None, until: datetime | None, bought: int, months: int, *, now: datetime
) -> datetime:
    """Return when a tier bought now ends, given what the account has."""
    if tier is None or until is None or until <= now:
        return add_months(now, months)
    # Half of a month of tier 4 is a quarter of one of tier 8.
    return add_months(now + (until - now) * tier / bought, months)


def _entitle(
    conn: Connection, account: str, tier: int | None, until: datetime | None, reason: str, now: datetime
) -> None:
    if tier is None or until is None or until <= now:
        tier, until = None, None
    accounts.entitle(conn, account, tier=tier, until=until, actor=ACTOR, reason=reason, now=now)


SELLER = "system:payments"
# In a payment's details: its tier was handed over.
SOLD = "sold"


def term_after(
    tier: int | None, until: datetime | None, *, bought: int, months: int, now: datetime
) -> datetime:
    """Return when a bought tier ends. Pure. The same tier continues where it ends; a lower one is refused.

    A higher one starts now, and what was left of the lower one is added at its worth.
    """
    if tier is None or until is None or until <= now:
        return add_months(now, months)
    if bought < tier:
        raise Conflict(
            why=f"tier {tier} is paid until {until.isoformat()}",
            hint=f"Buy tier {tier} or higher, or wait until it ends.",
        )
    left = until - now
    return add_months(now + left * tier // bought, months)


def check_sale(account: Account, *, tier: int, months: int, now: datetime) -> datetime:
    """Return when the tier of a sale ends. Raises what would refuse it, before anybody is asked for money."""
    return term_after(account.tier, account.entitled_until, bought=tier, months=months, now=now)


def record_sale(
    conn: Connection,
    account: str,
    *,
    tier: int,
    months: int,
    sats: Sats,
    id: str,
    source: str,
    now: datetime,
    is_delivered: bool = False,
) -> Account | None:
    """Record a sale: the income, and the entitlement it buys. The same id sells once, and returns None then.

    `is_delivered` says that the chain took this payment back and brought it again; its tier stayed meanwhile.
    """
    open_platform_accounts(conn, now=now)
    open_account(conn, id=external(source), kind=AccountKind.EXTERNAL, now=now)
    data: Mapping[str, object] = {"account": account, "tier": tier, "months": months}
    sale = Transfer(
        id=f"sale:{id}",
        debit=external(source),
        credit=INCOME,
        amount=sats,
        kind="sale",
        reason=f"tier {tier} for {months} months",
        at=now,
        data=data,
    )
    if not post_transfer(conn, sale):
        return None
    before = accounts.load(conn, account, lock=True)
    if is_delivered:
        return before
    if before.tier is not None and before.tier > tier and before.tier_at(now) is not None:
        # Bought elsewhere meanwhile; the money is in, so the better tier lasts longer.
        ends = before.entitled_until or now
        until = ends + (add_months(ends, months) - ends) * tier // before.tier
        tier = before.tier
    else:
        until = check_sale(before, tier=tier, months=months, now=now)
    return accounts.entitle(conn, account, tier=tier, until=until, actor=SELLER, reason="bought", now=now)


def sell(conn: Connection, payment: Payment, *, id: str, source: str, now: datetime) -> Account | None:
    return record_sale(
        conn,
        payment.account,
        tier=int(payment.details["tier"]),
        months=int(payment.details["months"]),
        sats=payment.sats,
        id=id,
        source=source,
        now=now,
        is_delivered=bool(payment.details.get(SOLD)),
    )


def take_back(conn: Connection, payment: Payment, *, id: str, source: str, now: datetime) -> None:
    """Take back the income of a sale whose payment its chain undid; the tier stays for now."""
    post_transfer(
        conn,
        Transfer(
            id=id,
            debit=INCOME,
            credit=external(source),
            amount=payment.sats,
            kind="sale_reversed",
            reason="reorganised",
            at=now,
            data={"account": payment.account},
        ),
    )


def revoke(conn: Connection, payment: Payment, *, now: datetime) -> Account:
    """End the time that a payment bought which never came; time that was paid otherwise stays."""
    account = accounts.load(conn, payment.account, lock=True)
    tier, until = account.tier, account.entitled_until
    if tier is None or until is None:
        return account
    whole = until - add_months(until, -int(payment.details["months"]))
    left = until - whole * int(payment.details["tier"]) // tier
    is_over = left <= now
    return accounts.entitle(
        conn,
        payment.account,
        tier=None if is_over else tier,
        until=None if is_over else left,
        actor=SELLER,
        reason="payment failed",
        now=now,
    )


def key_for_payer(conn: Connection, keys: Keys, payment: Payment, *, now: datetime) -> NewKey | None:
    """Make a key for the payer's own account, or return None if it has or had one, or is somebody else's.

    Who revoked the last key asks for another by POST /v1/keys, where that must be confirmed.
    """
    wallet = payment.wallet
    own = select(wallets.c.account).where(wallets.c.address == wallet, wallets.c.revoked_at.is_(None))
    if conn.execute(own).scalar() != payment.account:
        return None
    ever = select(key_table.c.public_key).where(key_table.c.account == payment.account)
    if conn.execute(ever).first() is not None:
        return None
    new = generate(payment.account, f"paid by {payment.payer}"[:200], accepts_v1=False)
    keys.insert(conn, new, actor=wallet)
    payments.note(conn, payment.id, now=now, details={"key": new.public_key})
    return new
