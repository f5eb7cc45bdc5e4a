"""Prices as an operator writes them: what is not named keeps its default; what is unknown is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.money.pricing import Pricing, Rates, TierPrices


def pricing_from_json(
    written: Mapping[str, Mapping[str, Any]], *, free_profiles: Iterable[str] = ()
) -> Pricing:
    """Raises InvalidRequest naming what is wrong."""
    unknown = written.keys() - {"rates", "profiles", "tiers"}
    if unknown:
        raise InvalidRequest(field="pricing", why=f"{sorted(unknown)[0]!r} is none of rates, profiles, tiers")
    return Pricing(
        rates=_rates("rates", written.get("rates", {})),
        profiles={
            name: _rates(f"profiles.{name}", rates) for name, rates in written.get("profiles", {}).items()
        },
        tiers=_tiers(written.get("tiers", {})),
        free_profiles=frozenset(free_profiles),
    )


def _rates(where: str, written: object) -> Rates:
    return Rates(**_known(where, written, {field.name for field in fields(Rates)}))


def _tiers(written: object) -> TierPrices:
    given = _known("tiers", written, {field.name for field in fields(TierPrices)} - {"discounts"})
    defaults = TierPrices()
    return replace(
        defaults,
        cents_per_month=given.get("cents_per_month", defaults.cents_per_month),
        requests_per_minute=given.get("requests_per_minute", defaults.requests_per_minute),
        tiers_per_slot=max(1, given.get("tiers_per_slot", defaults.tiers_per_slot)),
    )


def _known(where: str, written: object, names: set[str]) -> dict[str, int]:
    if not isinstance(written, Mapping):
        raise InvalidRequest(field=f"pricing.{where}", why="it must be an object")
    for name, value in written.items():
        if name not in names:
            raise InvalidRequest(field=f"pricing.{where}.{name}", why=f"known are {', '.join(sorted(names))}")
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidRequest(field=f"pricing.{where}.{name}", why="it must be a whole number")
    return dict(written)
