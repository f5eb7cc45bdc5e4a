"""The one door for every actor: may this account act now? Asked in the transaction of the act itself.

A key, a wallet's session, a wallet that only paid, an invoice, a gift card, a loop of ours: none of them asks
for leave on the way in and all of them pass here, where a sandbox is made or started, where money is asked
for and where it is given away. Whoever an edge believes to be calling makes no difference.

Money that arrives all the same (a deposit that was under way, a payment settled by somebody else) is never
refused: it is credited. What a suspended or closed account has lies in its bucket, where only the operator
can take it out (`adjust`), to hand it back.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import Connection

from sandboxer.accounts.authority import Authority, load_authority, why_not_active
from sandboxer.accounts.records import find
from sandboxer.identity.keys import OWNER_ACCOUNT
from sandboxer.kernel.errors import Forbidden


class Act(StrEnum):
    # A sandbox is made or started, whoever pays for it.
    RUN = "run"
    # Something is kept on a disk.
    KEEP = "keep"
    # Money is asked for, that would be this account's.
    FUND = "fund"
    # Its sats are given to others: a gift, a gift card, a budget.
    SPEND = "spend"


_REFUSED = {
    Act.RUN: "Use another key, or ask whoever gave you this one.",
    Act.KEEP: "Use another key, or ask whoever gave you this one.",
    Act.FUND: "Nothing was taken. Ask the operator, or pay for another account.",
    Act.SPEND: "Use another key, or ask whoever gave you this one.",
}


def refusal(authority: Authority, act: Act, *, now: datetime) -> Forbidden | None:
    """Why an account may not do this, if so. Pure."""
    why = why_not_active(authority, now=now)
    if why is None:
        return None
    if act is Act.FUND:
        # Whoever pays may be anybody: not for them to know what its operator did.
        why = "this account takes no payments"
    return Forbidden(why=why, reason="not_active", hint=_REFUSED[act])


def demand_may(conn: Connection, account: str, act: Act, *, now: datetime) -> None:
    """Raises Forbidden unless the account and all above it stand. One that nobody has seen yet stands."""
    if account == OWNER_ACCOUNT or find(conn, account) is None:
        return
    if (error := refusal(load_authority(conn, account), act, now=now)) is not None:
        raise error
