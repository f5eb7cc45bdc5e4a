"""Who may have another invoice open. An open invoice costs an address to watch, so each has a share.

Strangers are counted by address and by the network around it, and together they never take the whole: an
account that has funds always finds room.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from sandboxer.accounts import records as accounts
from sandboxer.accounts.limits import network_around
from sandboxer.kernel.errors import NoCapacity, NotFound, TooManyRequests
from sandboxer.money.buckets import load_bucket
from sandboxer.payments.invoices import book
from sandboxer.payments.invoices.records import InvoicePolicy

RETRY_AFTER_S = 60
PAY_FIRST = "Pay one of your open invoices, or wait until one has expired."


@dataclass(frozen=True, slots=True)
class Asker:
    """Whom an open invoice is counted for."""

    name: str
    # None: an account with funds.
    network: str | None


def asker(
    conn: Connection, address: str, account: str | None, policy: InvoicePolicy, *, now: datetime
) -> Asker:
    """`account`: of the key that signed the request, if one did."""
    if account is not None and _has_funds(conn, account, policy, now):
        return Asker(f"account:{account}", None)
    return Asker(address, network_around(address))


def admit(conn: Connection, who: Asker, policy: InvoicePolicy) -> None:
    """Raises TooManyRequests (its own share is used up), NoCapacity."""
    if book.count_open(conn, asked_by=who.name) >= policy.open_per_address:
        raise TooManyRequests(limit=policy.open_per_address, retry_after_s=RETRY_AFTER_S, hint=PAY_FIRST)
    if who.network is not None:
        if book.count_open(conn, asked_near=who.network) >= policy.open_per_network:
            raise TooManyRequests(
                limit=policy.open_per_network,
                retry_after_s=RETRY_AFTER_S,
                per="network",
                hint=f"Too many are open from {who.network}; sign the request with a key that has funds.",
            )
        if book.count_open(conn, by_strangers=True) >= policy.open_for_strangers:
            raise NoCapacity(
                resource="open invoices",
                why=f"{policy.open_for_strangers} wait for payment; accounts with funds may still have one",
            )
    if book.count_open(conn) >= policy.open_in_all:
        raise NoCapacity(resource="open invoices", why=f"{policy.open_in_all} wait for payment")


def _has_funds(conn: Connection, account: str, policy: InvoicePolicy, now: datetime) -> bool:
    found = accounts.find(conn, account)
    if found is not None and found.tier_at(now) is not None:
        return True
    try:
        return load_bucket(conn, account).posted >= policy.min_sats
    except NotFound:
        return False
