"""Prices as an operator writes them: what is not named keeps its default; what is unknown is refused.

{"rates": {"running_msats": 10}, "profiles": {"profile.agent-dev": {"vcpu_msats": 20}},
 "tiers": {"cents_per_month": 700, "discounts": {"1": 0, "3": 70}}, "quotes": {"lifetime": "10m"}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

from sandboxer.kernel.durations import parse_duration
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.money.pricing import Pricing, Rates, TierPrices


def pricing_from_json(
    written: Mapping[str, Mapping[str, Any]], *, free_profiles: Iterable[str] = ()
) -> Pricing:
    """Raises InvalidRequest naming what is wrong."""
    unknown = written.keys() - {"rates", "profiles", "tiers", "quotes"}
    if unknown:
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
    """Months offered, each with its discount in thousandths; JSON names the months as text."""
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
