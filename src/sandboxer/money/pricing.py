"""Prices. The functions are pure: prices come from the settings, time and exchange rate from the caller.

There are two price lists. *Tiers* are bought in US cents for months: 32 tiers × 5 durations = 160 prices.
*Rates* are msats per second of what a sandbox occupies; each may be zero, and a profile may be free.

`pricing_from_json` reads prices as an operator writes them: what is not named keeps its default; what is
unknown is refused.

{"rates": {"running_msats": 10}, "profiles": {"profile.agent-dev": {"vcpu_msats": 20}},
 "tiers": {"cents_per_month": 700, "discounts": {"1": 0, "3": 70}}, "quotes": {"lifetime": "10m"}}
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field, fields, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from sandboxer.kernel.clock import parse_duration
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.values import value_class
from sandboxer.money.amounts import Cents, Msats, Rate, Sats, checked_rate, sats_for
from sandboxer.money.policy import Use

TIERS = 32
_GB = 1 << 30
_MILLI = 1000
_MSATS_PER_BTC = 100_000_000 * 1000
_SECONDS_PER_HOUR = 3600


@value_class
class TierPrices:
    cents_per_month: Cents = 700
    # Months offered, each with its discount in thousandths.
    discounts: Mapping[int, int] = field(default_factory=lambda: {1: 0, 3: 70, 6: 100, 12: 150, 24: 200})
    requests_per_minute: int = 7
    tiers_per_slot: int = 4

    def __post_init__(self) -> None:
        if self.cents_per_month < 0 or any(
            months < 1 or not 0 <= thousandths <= _MILLI for months, thousandths in self.discounts.items()
        ):
            raise InvalidRequest(
                field="tier prices", why="months from 1, discounts from 0 to 1000 thousandths"
            )


@value_class
class TierPrice:
    tier: int
    months: int
    cents: Cents
    discount_thousandths: int


@value_class
class Entitlement:
    tier: int
    requests_per_minute: int
    # How many sandboxes may run at rate zero at once.
    slots: int


@value_class
class Rates:
    """Prices in msats per second; egress in msats per GB."""

    running_msats: Rate = 10
    # Per whole virtual CPU, and per GB of memory and disk while running.
    vcpu_msats: Rate = 10
    memory_gb_msats: Rate = 5
    disk_gb_msats: Rate = 0
    # Per GB of memory while frozen, per GB of disk while stopped, reaped, or a snapshot, image or volume.
    frozen_memory_gb_msats: Rate = 2
    stored_disk_gb_msats: Rate = 1
    # Per GPU of the operator's own, while running or frozen: it is nobody else's meanwhile.
    gpu_msats: Rate = 0
    egress_gb_msats: Msats = 0

    def __post_init__(self) -> None:
        for each in fields(self):
            checked_rate(getattr(self, each.name), field=each.name)


@value_class
class Size:
    """The resources of a sandbox. CPUs are counted in thousandths, so that no float touches money."""

    vcpu_thousandths: int
    memory_mb: int
    disk_mb: int


@value_class
class RateCard:
    """The rates of one sandbox in each state of its life, fixed when it is created."""

    running: Rate
    frozen: Rate
    stored: Rate

    def rate(self, use: Use) -> Rate:
        return {Use.RUNNING: self.running, Use.FROZEN: self.frozen, Use.STORED: self.stored}.get(use, 0)


FREE = RateCard(running=0, frozen=0, stored=0)


@value_class
class Basis:
    """What the price of a sandbox rests on besides profile and size: where it stands."""

    gpus: int = 0
    # What a provider charges the operator for it, passed through as it is. Zero on the operator's machines.
    infrastructure: Rate = 0
    # It stands at a provider: what it occupies is part of what that one charges.
    is_metered: bool = False
    # The account pays the provider itself, by a key of its own, and the platform its fee alone.
    is_own_key: bool = False


PLAIN = Basis()


@value_class
class Pricing:
    tiers: TierPrices = field(default_factory=TierPrices)
    rates: Rates = field(default_factory=Rates)
    # Rates of profiles that have their own; everything else pays `rates`.
    profiles: Mapping[str, Rates] = field(default_factory=dict)
    free_profiles: frozenset[str] = frozenset()
    quote_lives: timedelta = timedelta(minutes=10)

    def rates_of(self, profile: str) -> Rates:
        return self.profiles.get(profile, self.rates)


@value_class
class Quote:
    """A promised price: a create that names this quote before it expires pays these rates."""

    profile: str
    size: Size
    card: RateCard
    egress_gb_msats: Msats
    duration: timedelta
    # What the duration costs if it runs all the time, rounded up.
    sats: Sats
    quoted_at: datetime
    expires_at: datetime

    def is_open(self, *, now: datetime) -> bool:
        return now < self.expires_at


def tier_price(tier: int, months: int, prices: TierPrices) -> TierPrice:
    """Return tier × $7 × months, less the discount; half a cent is rounded up."""
    _check_tier(tier)
    if (discount := prices.discounts.get(months)) is None:
        offered = ", ".join(str(m) for m in sorted(prices.discounts))
        raise InvalidRequest(field="months", why=f"{months} is not offered; choose one of {offered}")
    whole = tier * prices.cents_per_month * months * (_MILLI - discount)
    return TierPrice(
        tier=tier, months=months, cents=(whole + _MILLI // 2) // _MILLI, discount_thousandths=discount
    )


def all_tier_prices(prices: TierPrices) -> list[TierPrice]:
    """Return the price of every tier for every duration: 160 prices with five durations."""
    return [
        tier_price(tier, months, prices)
        for tier in range(1, TIERS + 1)
        for months in sorted(prices.discounts)
    ]


def entitlement(tier: int, prices: TierPrices) -> Entitlement:
    """Tier N: 7N requests a minute and floor((N−1)/4)+1 sandboxes at once."""
    _check_tier(tier)
    return Entitlement(
        tier=tier,
        requests_per_minute=prices.requests_per_minute * tier,
        slots=(tier - 1) // prices.tiers_per_slot + 1,
    )


def rate_card(profile: str, size: Size, pricing: Pricing, basis: Basis = PLAIN) -> RateCard:
    """Return what a sandbox of this profile and size costs per second, rounded up to whole msats."""
    if profile in pricing.free_profiles:
        return FREE
    rates = pricing.rates_of(profile)
    if basis.is_own_key:
        return RateCard(running=rates.running_msats, frozen=0, stored=0)
    # In 1/1024000 msat: thousandths of a CPU and MB of a GB have this common denominator.
    running = (
        rates.vcpu_msats * size.vcpu_thousandths * 1024
        + rates.memory_gb_msats * size.memory_mb * _MILLI
        + rates.disk_gb_msats * size.disk_mb * _MILLI
    )
    stored = _per_gb(rates.stored_disk_gb_msats, size.disk_mb)
    if basis.is_metered:
        # A provider charges on for what is paused.
        whole = checked_rate(rates.running_msats + basis.infrastructure)
        return RateCard(running=whole, frozen=basis.infrastructure, stored=checked_rate(stored))
    gpus = rates.gpu_msats * basis.gpus
    return RateCard(
        running=checked_rate(rates.running_msats + gpus + -(-running // (1024 * _MILLI))),
        # Frozen keeps its disk too.
        frozen=checked_rate(_per_gb(rates.frozen_memory_gb_msats, size.memory_mb) + gpus + stored),
        stored=checked_rate(stored),
    )


def passed_through(usd_per_hour: Decimal, usd_per_btc: Decimal) -> Rate:
    """Return what a provider charges in msats per second, rounded up: the operator never pays more than is
    passed on, and the account at most a thousandth of a sat a second too much.
    """
    if not usd_per_hour.is_finite() or usd_per_hour < 0 or not usd_per_btc.is_finite() or usd_per_btc <= 0:
        raise InvalidRequest(field="cost", why=f"{usd_per_hour} USD an hour at {usd_per_btc} USD is no price")
    msats_per_s = Fraction(usd_per_hour) * _MSATS_PER_BTC / Fraction(usd_per_btc) / _SECONDS_PER_HOUR
    return checked_rate(math.ceil(msats_per_s))


def stored_rate(disk_mb: int, pricing: Pricing) -> Rate:
    """Return what a snapshot, image or volume of this size costs per second."""
    return checked_rate(_per_gb(pricing.rates.stored_disk_gb_msats, disk_mb))


def egress_msats(profile: str, byte_count: int, pricing: Pricing) -> Msats:
    """Return what so many outgoing bytes cost, rounded up to a whole msat; zero for free profiles."""
    if profile in pricing.free_profiles:
        return 0
    return -(-pricing.rates_of(profile).egress_gb_msats * byte_count // _GB)


def quote(profile: str, size: Size, duration: timedelta, pricing: Pricing, *, now: datetime) -> Quote:
    """Quote what running for `duration` would cost, with the rates locked until the quote expires."""
    if duration <= timedelta(0):
        raise InvalidRequest(field="duration", why="it must be longer than nothing")
    card = rate_card(profile, size, pricing)
    is_free = profile in pricing.free_profiles
    return Quote(
        profile=profile,
        size=size,
        card=card,
        egress_gb_msats=0 if is_free else pricing.rates_of(profile).egress_gb_msats,
        duration=duration,
        sats=sats_for(card.running, duration),
        quoted_at=now,
        expires_at=now + pricing.quote_lives,
    )


def _per_gb(msats: Rate, megabytes: int) -> Rate:
    return -(-msats * megabytes // 1024)


def _check_tier(tier: int) -> None:
    if not 1 <= tier <= TIERS:
        raise InvalidRequest(field="tier", why=f"tiers go from 1 to {TIERS}")


def pricing_from_json(
    written: Mapping[str, Mapping[str, Any]], *, free_profiles: Iterable[str] = ()
) -> Pricing:
    """Read prices as an operator writes them. Raises InvalidRequest naming what is wrong."""
    if unknown := written.keys() - {"rates", "profiles", "tiers", "quotes"}:
        why = f"{sorted(unknown)[0]!r} is none of rates, profiles, tiers, quotes"
        raise InvalidRequest(field="pricing", why=why)
    return Pricing(
        rates=_rates("rates", written.get("rates", {})),
        profiles={
            name: _rates(f"profiles.{name}", rates) for name, rates in written.get("profiles", {}).items()
        },
        tiers=_tiers(written.get("tiers", {})),
        free_profiles=frozenset(free_profiles),
        quote_lives=_quote_lives(written.get("quotes", {})),
    )


def _rates(where: str, written: object) -> Rates:
    return Rates(**_known(where, written, {field.name for field in fields(Rates)}))


def _tiers(written: object) -> TierPrices:
    defaults = TierPrices()
    discounts = defaults.discounts
    if isinstance(written, Mapping) and "discounts" in written:
        discounts = _discounts(written["discounts"])
        written = {name: value for name, value in written.items() if name != "discounts"}
    given = _known("tiers", written, {field.name for field in fields(TierPrices)} - {"discounts"})
    return replace(
        defaults,
        discounts=discounts,
        cents_per_month=given.get("cents_per_month", defaults.cents_per_month),
        requests_per_minute=given.get("requests_per_minute", defaults.requests_per_minute),
        tiers_per_slot=max(1, given.get("tiers_per_slot", defaults.tiers_per_slot)),
    )


def _discounts(written: object) -> dict[int, int]:
    """Read the months offered and their discounts in thousandths; JSON names the months as text."""
    where = "pricing.tiers.discounts"
    if not isinstance(written, Mapping) or not written:
        raise InvalidRequest(field=where, why='it must be an object like {"1": 0, "3": 70}')
    for months, thousandths in written.items():
        if not (str(months).isascii() and str(months).isdigit() and len(str(months)) < 4):
            raise InvalidRequest(field=where, why=f"{months!r} is not a number of months")
        if isinstance(thousandths, bool) or not isinstance(thousandths, int):
            raise InvalidRequest(field=f"{where}.{months}", why="it must be a whole number of thousandths")
    return {int(months): thousandths for months, thousandths in written.items()}


def _quote_lives(written: object) -> timedelta:
    lifetime = written.get("lifetime", "10m") if isinstance(written, Mapping) else None
    if not isinstance(lifetime, str) or not isinstance(written, Mapping) or written.keys() - {"lifetime"}:
        raise InvalidRequest(field="pricing.quotes", why='it must be an object like {"lifetime": "10m"}')
    return parse_duration(lifetime, field="pricing.quotes.lifetime")


def _known(where: str, written: object, names: set[str]) -> dict[str, int]:
    if not isinstance(written, Mapping):
        raise InvalidRequest(field=f"pricing.{where}", why="it must be an object")
    for name, value in written.items():
        if name not in names:
            raise InvalidRequest(field=f"pricing.{where}.{name}", why=f"known are {', '.join(sorted(names))}")
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidRequest(field=f"pricing.{where}.{name}", why="it must be a whole number")
    return dict(written)
