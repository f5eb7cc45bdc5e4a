"""The units outside money is counted in. Inside this package an amount is always an integer of the smallest
unit (satoshi, litoshi, koinu, piconero, micro-dollar); decimals exist only where people read and write.

Rates and conversions, and the pure judgement that makes one rate of several sources' prices.

It fails closed: if prices are too few, too old or too far apart, there is no rate. There is no network here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta
from decimal import Context, Decimal, InvalidOperation, localcontext
from fractions import Fraction
from types import MappingProxyType
from typing import Protocol

from sandboxer.kernel.errors import Broken, InvalidRequest, NoRate
from sandboxer.kernel.values import brief_value_class, value_class

# Wide enough for any amount of any chain; an operation that would round must raise instead.
_EXACT = Context(prec=60)


@brief_value_class
class Asset:
    """`confirmations`: how deep a deposit must lie by default; None where another rule decides finality."""

    code: str
    decimals: int
    confirmations: int | None = None

    @property
    def unit(self) -> int:
        """Smallest units in a whole one."""
        return int(10**self.decimals)


ASSETS: Mapping[str, Asset] = MappingProxyType(
    {
        asset.code: asset
        for asset in (
            Asset("BTC", 8, 3),
            Asset("LTC", 8, 6),
            Asset("DOGE", 8, 6),
            Asset("XMR", 12, 10),
            Asset("STX", 6),
            Asset("SBTC", 8),
            Asset("USDCX", 6),
            Asset("USDC", 6),
        )
    }
)


def asset_named(code: str) -> Asset:
    try:
        return ASSETS[code.upper()]
    except KeyError:
        raise InvalidRequest(field="asset", why=f"{code!r} is not one of {', '.join(ASSETS)}") from None


def to_atomic(amount: str | Decimal, asset: Asset) -> int:
    """`"4.52"` XMR is 4520000000000. Exact: an amount with more digits than the asset has is refused."""
    with localcontext(_EXACT):
        try:
            number = Decimal(amount)
        except InvalidOperation:
            raise InvalidRequest(field="amount", why=f"{amount!r} is not a number") from None
        if not number.is_finite() or number < 0 or number.adjusted() > 30:
            raise InvalidRequest(field="amount", why=f"{amount!r} is not an amount of money")
        scaled = number.scaleb(asset.decimals)
        if scaled != int(scaled):
            raise InvalidRequest(
                field="amount", why=f"{asset.code} has {asset.decimals} decimal digits, {amount!r} has more"
            )
        return int(scaled)


def from_atomic(amount: int, asset: Asset) -> Decimal:
    return Decimal(amount).scaleb(-asset.decimals, context=_EXACT)


def as_text(amount: int, asset: Asset) -> str:
    """Plain digits without an exponent and without zeros at the end: `"0.5"`, `"4.52"`, `"3"`."""
    text = f"{from_atomic(amount, asset):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# Where an asset is worth what another is, the other's rate is asked for.
SAME_AS = {"SBTC": "BTC", "USDCX": "USDC"}
SATS_PER_BTC = 100_000_000
CENTS_PER_USD = 100
# One to one with sats.
ARE_SATS = frozenset({"BTC", "SBTC"})
USD, USDT = "USD", "USDT"
# Whatever a source says beyond this is not a price.
MAX_PRICE = Decimal(10) ** 9
MIN_PRICE = Decimal(10) ** -9
# A source's clock may run ahead of ours by so much.
SKEW = timedelta(minutes=2)
_CONTEXT = Context(prec=40)


@value_class
class Rate:
    """US dollars for one whole unit of the asset."""

    asset: str
    usd: Decimal
    at: datetime
    # Who said so, sorted.
    sources: tuple[str, ...]


class Rates(Protocol):
    async def usd(self, asset: str) -> Rate:
        """Return the present rate. Raises NoRate: nothing new may be priced then."""

    async def warm(self, assets: Iterable[str]) -> None:
        """Fetch the rates of these assets at once. `usd` raises for those that failed."""

    @property
    def assets(self) -> tuple[str, ...]:
        """The assets that have a rate, sorted."""


@value_class
class Sighting:
    source: str
    asset: str
    price: Decimal
    # What the price is in: US dollars, or a coin that promises to be one and must be asked for its own price.
    unit: str = USD
    at: datetime


@value_class
class RatePolicy:
    # Sources that must agree: for an asset, or for any that is not named.
    quorum: Mapping[str, int] = field(default_factory=dict)
    quorum_default: int = 2
    # A saying older than this does not count.
    stale_after: timedelta = timedelta(minutes=10)
    # How far from the median one may lie, in thousandths of it.
    tolerance: int = 30

    def __post_init__(self) -> None:
        if min((self.quorum_default, *self.quorum.values())) < 1:
            raise InvalidRequest(field="rate_quorum", why="at least one source must say it")

    def needed(self, asset: str) -> int:
        return self.quorum.get(asset, self.quorum_default)


POLICY = RatePolicy()


def needs_rate(asset: str) -> bool:
    return asset not in ARE_SATS


def sats_for_cents(cents: int, btc: Rate) -> int:
    """What a price in cents is in sats, rounded up."""
    return _ceil(Fraction(cents, CENTS_PER_USD) / _usd(btc, "BTC") * SATS_PER_BTC)


def atomic_for_sats(sats: int, asset: Asset, rate: Rate | None, btc: Rate | None) -> int:
    """Return what the payer must send, rounded up. Raises NoRate if a rate is needed and missing."""
    return _ceil(Fraction(sats) / _sats_per_atomic(asset, rate, btc))


def sats_for_atomic(amount: int, asset: Asset, rate: Rate | None, btc: Rate | None) -> int:
    """Return what is credited, rounded down. Raises NoRate if a rate is needed and missing."""
    return int(amount * _sats_per_atomic(asset, rate, btc))


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
        raise NoRate(asset=asset, why="its rate is not above zero")
    return Fraction(rate.usd)


def _ceil(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)


def judge(asset: str, sightings: Iterable[Sighting], *, now: datetime, policy: RatePolicy = POLICY) -> Rate:
    """Return the median of the sources that agree. Raises NoRate, which says what is wrong.

    A price in USDT counts only if there is a rate of USDT itself, found in the same way.
    """
    fresh = _newest([s for s in sightings if _is_fresh(s, now, policy) and _is_price(s.price)])
    of_asset = [s for s in fresh if s.asset == asset]
    dollars = [s for s in of_asset if s.unit == USD]
    if any(s.unit == USDT for s in of_asset) and asset != USDT:
        dollars += _in_dollars(of_asset, fresh, now, policy)
    return _agreed(asset, dollars, policy)


def _agreed(asset: str, dollars: Sequence[Sighting], policy: RatePolicy) -> Rate:
    needed = policy.needed(asset)
    if len(dollars) < needed:
        raise NoRate(asset=asset, why=f"{len(dollars)} of {needed} needed sources have a fresh price")
    middle = median([s.price for s in dollars])
    near = [s for s in dollars if abs(s.price - middle) * 1000 <= middle * policy.tolerance]
    # Two camps of equal size leave nobody to believe.
    if len(near) < needed or 2 * len(near) <= len(dollars):
        raise NoRate(asset=asset, why=f"the sources disagree: {len(near)} of {len(dollars)} lie together")
    return Rate(
        asset=asset,
        usd=median([s.price for s in near]),
        at=min(s.at for s in near),
        sources=tuple(sorted(s.source for s in near)),
    )


def _in_dollars(
    of_asset: Iterable[Sighting], fresh: Sequence[Sighting], now: datetime, policy: RatePolicy
) -> list[Sighting]:
    try:
        tether = judge(USDT, [s for s in fresh if s.unit == USD], now=now, policy=policy)
    except NoRate:
        return []
    return [
        replace(s, price=_CONTEXT.multiply(s.price, tether.usd), unit=USD) for s in of_asset if s.unit == USDT
    ]


def median(prices: Sequence[Decimal]) -> Decimal:
    ordered = sorted(prices)
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return _CONTEXT.divide(_CONTEXT.add(ordered[half - 1], ordered[half]), Decimal(2))


def _newest(sightings: Iterable[Sighting]) -> list[Sighting]:
    """Return the newest price of each source and asset; a source that repeats itself counts once."""
    newest: dict[tuple[str, str], Sighting] = {}
    for one in sightings:
        if (known := newest.get((one.source, one.asset))) is None or known.at < one.at:
            newest[one.source, one.asset] = one
    return list(newest.values())


def _is_fresh(sighting: Sighting, now: datetime, policy: RatePolicy) -> bool:
    return now - policy.stale_after <= sighting.at <= now + SKEW


def _is_price(price: Decimal) -> bool:
    return price.is_finite() and MIN_PRICE <= price <= MAX_PRICE
