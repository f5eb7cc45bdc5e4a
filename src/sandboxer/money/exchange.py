"""An exchange turns one asset into another by two transfers at a locked rate, in one transaction.

A transfer never crosses assets, so the platform stands between the two with a stock of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from sqlalchemy import Connection

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.money.amounts import checked_amount
from sandboxer.money.ledger import open_account, post_transfer
from sandboxer.money.transfers import AccountKind, Asset, Transfer


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedRate:
    """A fixed rate: one unit of `sold` buys `units` of `bought`, exactly."""

    sold: Asset
    bought: Asset
    units: Fraction

    def convert(self, amount: int) -> int:
        """Convert an amount, rounded down: the platform never gives a unit it was not paid for."""
        return int(checked_amount(amount) * self.units)


def exchange(
    conn: Connection,
    *,
    id: str,
    debit: str,
    credit: str,
    amount: int,
    rate: LockedRate,
    reason: str,
    now: datetime,
) -> int:
    """Take `amount` from `debit`, give its worth to `credit`; returns that worth. The same id exchanges once.

    If `credit` is a bucket, call `settle_account` for its owner afterwards.
    """
    worth = rate.convert(amount)
    if rate.sold is rate.bought or worth <= 0:
        raise InvalidRequest(field="amount", why=f"{amount} {rate.sold} buy no {rate.bought} at this rate")
    data = {"rate": str(rate.units), "sold": rate.sold.value, "bought": rate.bought.value}
    stock = {asset: f"exchange:{asset.value}" for asset in (rate.sold, rate.bought)}
    for asset, account in stock.items():
        open_account(conn, id=account, kind=AccountKind.EXCHANGE, asset=asset, now=now)
    halves = (
        (f"{id}:sold", debit, stock[rate.sold], amount, rate.sold),
        (f"{id}:bought", stock[rate.bought], credit, worth, rate.bought),
    )
    for half, giver, taker, sum_, asset in halves:
        post_transfer(
            conn,
            Transfer(
                id=half,
                debit=giver,
                credit=taker,
                amount=sum_,
                asset=asset,
                kind="exchange",
                reason=reason,
                at=now,
                data=data,
            ),
        )
    return worth
