"""Giving sats to another account, known only by its public id."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from sandboxer.accounts import audit, caps, records
from sandboxer.accounts.authority import Act, demand_may
from sandboxer.accounts.records import Status
from sandboxer.accounts.sums import GIFT, spent_by
from sandboxer.kernel.errors import InvalidRequest, NotFound
from sandboxer.money.amounts import Sats, checked_amount
from sandboxer.money.buckets import credit, open_bucket, spend
from sandboxer.money.ledger import find_transfer, open_account
from sandboxer.money.spending import count_move
from sandboxer.money.transfers import AccountKind

# Between the two, so that neither's statement names the other's account.
CLEARING = "external:gifts"


def give(
    conn: Connection, giver: str, public_id: str, sats: Sats, *, id: str, reason: str, key: str, now: datetime
) -> bool:
    """Within the caps of the giver and of its key; the same id gives once, False then.

    A closed account takes nothing.

    Raises NotFound, InsufficientCredit, Forbidden (a cap, one of both may not act), Conflict (the id was used
    for something else).
    """
    checked_amount(sats, field="sats")
    to = records.find_public(conn, public_id)
    if to is None or to.status is Status.CLOSED:
        raise NotFound(what="account", id=public_id)
    if to.id == giver:
        raise InvalidRequest(field="to", why="this is your own account")
    # In one order, so that two who give to each other at once do not wait for each other for ever.
    for account in sorted((giver, to.id)):
        records.load(conn, account, lock=True)
    demand_may(conn, giver, Act.SPEND, now=now)
    demand_may(conn, to.id, Act.FUND, now=now)
    open_bucket(conn, to.id, now=now)
    open_account(conn, id=CLEARING, kind=AccountKind.EXTERNAL, now=now)
    giving = records.load(conn, giver)
    transfer_id = f"{GIFT}:{giving.public_id}:{id}"
    is_new = find_transfer(conn, transfer_id) is None
    if is_new:
        caps.check(giving.caps, spent_by(conn, giver, giving.caps, key=key, now=now), wanted=sats)
    common: dict[str, Any] = {"kind": GIFT, "reason": reason, "now": now, "data": {"to": public_id}}
    spend(conn, giver, sats, id=transfer_id, to=CLEARING, **common)
    credit(conn, to.id, sats, id=f"{transfer_id}:in", debit=CLEARING, **common)
    if is_new:
        count_move(conn, giver, key, sats, at=now)
        data = {"to": public_id, "sats": sats, "id": id}
        audit.append(
            conn, actor=giver, action="account.gift", subject=giver, reason=reason, data=data, now=now
        )
    return is_new
