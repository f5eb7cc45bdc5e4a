"""What an invoice can buy, and how it is handed over and taken back. Other packages add their own kinds.

Everything here happens inside the transaction in which the money arrives: there is never one without the
other, and no network.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import Connection

from sandboxer.accounts import records
from sandboxer.kernel.clock import add_months
from sandboxer.kernel.errors import Broken
from sandboxer.money.ledger import INCOME
from sandboxer.payments.invoices.records import Invoice, Kind

ACTOR = "system:invoices"


class Goods(Protocol):
    kind: str
    # The ledger account (in sats) its price is paid into; must be open, or be opened by `deliver`.
    takes: str
    # Whether handing it over needs the account; if not, one is made only for sats that were too much.
    needs_account: bool

    def deliver(self, conn: Connection, invoice: Invoice, *, now: datetime) -> Mapping[str, Any]:
        """Hand it over. What is returned is kept as `invoice.granted`, as JSON."""

    def withdraw(self, conn: Connection, invoice: Invoice, *, now: datetime) -> None:
        """Take it back; `invoice.granted` says what was given."""


class Sats:
    """Nothing beside the credit itself."""

    kind = Kind.SATS.value
    takes = INCOME
    needs_account = True

    def deliver(self, conn: Connection, invoice: Invoice, *, now: datetime) -> Mapping[str, Any]:
        return {}

    def withdraw(self, conn: Connection, invoice: Invoice, *, now: datetime) -> None:
        return None


class TierMonths:
    """A tier until a date. Time left of another tier is not lost: it counts by what it is worth."""

    kind = Kind.TIER.value
    takes = INCOME
    needs_account = True

    def deliver(self, conn: Connection, invoice: Invoice, *, now: datetime) -> Mapping[str, Any]:
        tier, months = invoice.buys.tier, invoice.buys.months
        if tier is None or months is None:
            raise Broken(why=f"{invoice.id} buys a tier and names none")
        account = records.load(conn, invoice.account, lock=True)
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
        account = records.load(conn, invoice.account, lock=True)
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
    """When a tier bought now ends, given what the account has."""
    if tier is None or until is None or until <= now:
        return add_months(now, months)
    # Half of a month of tier 4 is a quarter of one of tier 8.
    return add_months(now + (until - now) * tier / bought, months)


def _entitle(
    conn: Connection, account: str, tier: int | None, until: datetime | None, reason: str, now: datetime
) -> None:
    if tier is None or until is None or until <= now:
        tier, until = None, None
    records.entitle(conn, account, tier=tier, until=until, actor=ACTOR, reason=reason, now=now)
