"""From cents to sats to a coin's smallest units and back. Pure and exact: fractions until the last step.

What a payer must send is rounded up, what he is credited is rounded down: no rounding makes money. BTC and
sBTC are sats, one to one, and need no rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from sandboxer.kernel.errors import Broken, InvalidRequest, NoRate
from sandboxer.payments.assets import Asset
from sandboxer.payments.oracle.rates import SAME_AS, Rate

SATS_PER_BTC = 100_000_000
CENTS_PER_USD = 100
# One to one with sats.
ARE_SATS = frozenset({"BTC", "SBTC"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedPrice:
    """So many smallest units for so many sats; it holds until `expires_at` whatever the market does."""

    asset: str
    atomic: int
    sats: int
    # None where none was needed.
    rate: Rate | None
    btc: Rate | None
    locked_at: datetime
    expires_at: datetime

    def is_open(self, *, now: datetime) -> bool:
        return now < self.expires_at

    def sats_for(self, atomic: int) -> int:
        """What another amount of the asset is worth at this price, rounded down."""
        return atomic * self.sats // self.atomic


def needs_rate(asset: str) -> bool:
    return asset not in ARE_SATS


def sats_for_cents(cents: int, btc: Rate) -> int:
    """What a price in cents is in sats, rounded up."""
    return _ceil(Fraction(cents, CENTS_PER_USD) / _usd(btc, "BTC") * SATS_PER_BTC)


def cents_for_sats(sats: int, btc: Rate) -> int:
    """What sats are worth in cents, rounded down."""
    return int(Fraction(sats, SATS_PER_BTC) * _usd(btc, "BTC") * CENTS_PER_USD)


def atomic_for_sats(sats: int, asset: Asset, rate: Rate | None, btc: Rate | None) -> int:
    """What the payer must send: rounded up. Raises NoRate if a rate is needed and missing."""
    return _ceil(Fraction(sats) / _sats_per_atomic(asset, rate, btc))


def sats_for_atomic(amount: int, asset: Asset, rate: Rate | None, btc: Rate | None) -> int:
    """What is credited: rounded down. Raises NoRate if a rate is needed and missing."""
    return int(amount * _sats_per_atomic(asset, rate, btc))


def lock(
    sats: int, asset: Asset, rate: Rate | None, btc: Rate | None, *, now: datetime, expires_at: datetime
) -> LockedPrice:
    if sats < 1:
        raise InvalidRequest(field="sats", why="a price is at least one sat")
    needed = needs_rate(asset.code)
    return LockedPrice(
        asset=asset.code,
        atomic=atomic_for_sats(sats, asset, rate, btc),
        sats=sats,
        rate=rate if needed else None,
        btc=btc if needed else None,
        locked_at=now,
        expires_at=expires_at,
    )


def _sats_per_atomic(asset: Asset, rate: Rate | None, btc: Rate | None) -> Fraction:
    whole = Fraction(SATS_PER_BTC, 10**asset.decimals)
    if not needs_rate(asset.code):
        return whole
    if rate is None or btc is None:
        raise NoRate(asset=asset.code if rate is None else "BTC", why="nobody named one")
    return whole * _usd(rate, asset.code) / _usd(btc, "BTC")


def _usd(rate: Rate, asset: str) -> Fraction:
    # Exchanging two rates by mistake would be expensive, and no test of types would see it.
    if rate.asset not in (asset, SAME_AS.get(asset)):
        raise Broken(why=f"the rate of {rate.asset} was taken for one of {asset}")
    if rate.usd <= 0:
        raise NoRate(asset=asset, why="a rate is above zero")
    return Fraction(rate.usd)


def _ceil(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)
