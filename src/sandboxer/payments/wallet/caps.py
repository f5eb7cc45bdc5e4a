"""How much a wallet may spend: per payment and per day, by asset. Decisions only; the wallet records.

An asset without a cap cannot be spent at all: an agent's wallet is opened for each coin on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandboxer.kernel.errors import Forbidden, InvalidRequest

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Cap:
    """Atomic units; `per_day` counts the last 24 hours."""

    per_payment: int
    per_day: int

    def __post_init__(self) -> None:
        if not 0 <= self.per_payment <= self.per_day:
            raise InvalidRequest(field="cap", why="0 ≤ per payment ≤ per day is needed")


@dataclass(frozen=True)
class Spent:
    id: str
    asset: str
    amount: int
    at: datetime


def check_spend(cap: Cap | None, journal: Iterable[Spent], asset: str, amount: int, *, now: datetime) -> None:
    """Raises `Forbidden` when this payment would pass a cap. What is sent counts, fees included."""
    if amount <= 0:
        raise InvalidRequest(field="amount", why="nothing to pay")
    if cap is None:
        raise Forbidden(why=f"this wallet has no cap for {asset}, so it spends none; set one")
    if amount > cap.per_payment:
        raise Forbidden(why=f"{amount} is above the cap of {cap.per_payment} for one {asset} payment")
    today = sum(each.amount for each in journal if each.asset == asset and each.at > now - DAY)
    if today + amount > cap.per_day:
        raise Forbidden(
            why=f"{amount} on top of {today} in 24 hours is above the cap of {cap.per_day} {asset} a day"
        )
