"""Caps bound what a wallet may spend per payment and per day, by asset. Pure; the wallet records.

An asset without a cap cannot be spent at all. The settings of the hot wallet are read here too: a file, where
its password lies, and its caps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sandboxer.kernel.errors import Forbidden, InvalidRequest
from sandboxer.payments.assets import ASSETS, to_atomic

DAY = timedelta(days=1)
_FIELDS = ("file", "password_file", "caps")
_CAP_FIELDS = ("payment", "day")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class HotWalletPlan:
    file: Path
    password_file: Path
    # By coin, in its smallest unit. Without a cap nothing is sent in a coin.
    caps: Mapping[str, Cap]


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


def read_hot_wallet(given: Mapping[str, Any], chains: frozenset[str]) -> HotWalletPlan | None:
    """`{"file": "/…/hot.wallet", "password_file": "/…", "caps": {"LTC": {"payment": "1", "day": "5"}}}`, caps
    in whole coins. None: there is no hot wallet, and refunds wait for the operator."""
    if not given:
        return None
    if unknown := sorted(set(given) - set(_FIELDS)):
        raise _wrong(f"has no field {unknown[0]!r} (there are {', '.join(_FIELDS)})")
    caps = given.get("caps")
    if not isinstance(caps, Mapping) or not caps:
        raise _wrong('needs caps: {"LTC": {"payment": "1", "day": "5"}}')
    if strange := sorted(set(caps) - chains):
        raise _wrong(f"caps {strange[0]}, which is not among the chains that invoices are paid on")
    return HotWalletPlan(
        file=_path(given, "file"),
        password_file=_path(given, "password_file"),
        caps={code: _cap(code, cap) for code, cap in caps.items()},
    )


def _path(given: Mapping[str, Any], name: str) -> Path:
    value = given.get(name)
    if not isinstance(value, str) or not value.strip():
        raise _wrong(f"needs a path as {name}")
    return Path(value).expanduser()


def _cap(code: str, given: object) -> Cap:
    if not isinstance(given, Mapping) or set(given) != set(_CAP_FIELDS):
        raise _wrong(f"needs exactly payment and day as the cap of {code}")
    amounts = []
    for name in _CAP_FIELDS:
        # No numbers: JSON's are binary fractions for many who write them.
        if not isinstance(given[name], str):
            raise _wrong(f'needs a text like "1.5" as {name} of {code}')
        amounts.append(to_atomic(given[name], ASSETS[code]))
    return Cap(*amounts)


def _wrong(why: str) -> InvalidRequest:
    return InvalidRequest(field="hot_wallet", why=f"it {why}")
