"""A tier for some months, bought: what it costs, when it would end, and the entitlement that follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select

from sandboxer.accounts import records as accounts
from sandboxer.accounts.records import Account
from sandboxer.identity.keys import Keys, NewKey, generate
from sandboxer.identity.keys import keys as key_table
from sandboxer.identity.tables import wallets
from sandboxer.kernel.clock import add_months
from sandboxer.kernel.errors import Conflict
from sandboxer.money.amounts import Sats
from sandboxer.money.ledger import INCOME, open_account, open_platform_accounts, post_transfer
from sandboxer.money.transfers import AccountKind, Transfer
from sandboxer.payments import records
from sandboxer.payments.credits import external
from sandboxer.payments.records import Payment

ACTOR = "system:payments"
MAX_MONTHS = 24
# In a payment's details: its tier was handed over.
SOLD = "sold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A tier and its end."""

    tier: int
    until: datetime


def term_after(tier: int | None, until: datetime | None, *, bought: int, months: int, now: datetime) -> Term:
    """What one has after buying. Pure. The same tier goes on where it ends; a lower one is refused.

    A higher one begins now, and what was left of the lower is added at its worth (tiers cost by the step).
    """
    if tier is None or until is None or until <= now:
        return Term(tier=bought, until=add_months(now, months))
    if bought < tier:
        raise Conflict(
            why=f"tier {tier} is paid until {until.isoformat()}",
            hint=f"Buy tier {tier} or higher, or wait until it ends.",
        )
    left = until - now
    return Term(tier=bought, until=add_months(now + left * tier // bought, months))


def check_sale(account: Account, *, tier: int, months: int, now: datetime) -> Term:
    """Raises what would refuse the sale, before anybody is asked for money."""
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
    """Income from outside, and the entitlement it buys. The same id sells once: None then.

    `is_delivered`: the chain took this payment back and brought it again; its tier has stayed meanwhile.
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
        term = Term(tier=before.tier, until=ends + (add_months(ends, months) - ends) * tier // before.tier)
    else:
        term = check_sale(before, tier=tier, months=months, now=now)
    return accounts.entitle(
        conn, account, tier=term.tier, until=term.until, actor=ACTOR, reason="bought", now=now
    )


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
    """The money went back on its chain; the tier stays while the payment is tried again."""
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
    """It never came back: the time that it bought ends, and none that was paid for otherwise."""
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
        actor=ACTOR,
        reason="payment failed",
        now=now,
    )


def key_for_payer(conn: Connection, keys: Keys, payment: Payment, *, now: datetime) -> NewKey | None:
    """None: the account has or had a key, or the payer paid for somebody else's account.

    Who revoked the last one asks for another by the front door (POST /v1/keys), where it must be confirmed.
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
    records.note(conn, payment.id, now=now, details={"key": new.public_key})
    return new
