from __future__ import annotations

from datetime import timedelta

import pytest

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.money.policy import Use
from sandboxer.money.pricing import (
    FREE,
    Pricing,
    Rates,
    Size,
    TierPrices,
    all_tier_prices,
    egress_msats,
    entitlement,
    quote,
    rate_card,
    stored_rate,
    tier_price,
)
from tests.support.money import NOW, later

SMALL = Size(vcpu_thousandths=500, memory_mb=512, disk_mb=1024)


def test_there_are_160_prices_and_all_are_whole_cents() -> None:
    prices = all_tier_prices(TierPrices())
    assert len(prices) == 160
    assert len({(p.tier, p.months) for p in prices}) == 160
    assert all(isinstance(p.cents, int) and p.cents > 0 for p in prices)


def test_a_tier_costs_seven_dollars_a_month_and_three_months_are_seven_percent_off() -> None:
    assert tier_price(1, 1, TierPrices()).cents == 700
    assert tier_price(1, 3, TierPrices()).cents == 1953
    assert tier_price(32, 3, TierPrices()).cents == 32 * 1953


def test_more_months_never_cost_more_per_month() -> None:
    for tier in (1, 7, 32):
        each = [tier_price(tier, m, TierPrices()).cents / m for m in (1, 3, 6, 12, 24)]
        assert each == sorted(each, reverse=True)


@pytest.mark.parametrize(("tier", "months"), [(0, 1), (33, 1), (1, 2)])
def test_what_is_not_offered_is_refused(tier: int, months: int) -> None:
    with pytest.raises(InvalidRequest):
        tier_price(tier, months, TierPrices())


@pytest.mark.parametrize(
    ("tier", "requests", "slots"), [(1, 7, 1), (4, 28, 1), (5, 35, 2), (8, 56, 2), (9, 63, 3), (32, 224, 8)]
)
def test_a_tier_entitles_to_requests_and_slots(tier: int, requests: int, slots: int) -> None:
    given = entitlement(tier, TierPrices())
    assert (given.requests_per_minute, given.slots) == (requests, slots)


def test_a_rate_is_the_sum_of_what_is_occupied_rounded_up_once() -> None:
    rates = Rates(
        running_msats=1,
        vcpu_msats=3,
        memory_gb_msats=1,
        disk_gb_msats=1,
        frozen_memory_gb_msats=3,
        stored_disk_gb_msats=2,
    )
    card = rate_card("profile.x", SMALL, Pricing(rates=rates))
    # 1 + ⌈1.5 + 0.5 + 1⌉; ⌈1.5⌉ + 2; 2
    assert (card.running, card.frozen, card.stored) == (4, 4, 2)
    assert card.rate(Use.RUNNING) == 4
    assert card.rate(Use.EGRESS) == 0
    assert stored_rate(512, Pricing(rates=rates)) == 1


def test_free_profiles_cost_nothing_and_others_may_have_their_own_rates() -> None:
    pricing = Pricing(
        profiles={"profile.gpu": Rates(running_msats=5000, egress_gb_msats=100)},
        free_profiles=frozenset({"profile.mine"}),
    )
    assert rate_card("profile.mine", SMALL, pricing) == FREE
    assert rate_card("profile.gpu", SMALL, pricing).running > 5000
    assert egress_msats("profile.gpu", 1 << 30, pricing) == 100
    assert egress_msats("profile.gpu", 1, pricing) == 1
    assert egress_msats("profile.mine", 1 << 40, pricing) == 0


def test_a_quote_locks_its_rates_and_ends() -> None:
    made = quote("profile.x", SMALL, timedelta(hours=1), Pricing(rates=Rates(running_msats=1000)), now=NOW)
    assert made.sats == -(-made.card.running * 3600 // 1000)
    assert made.is_open(now=later(599))
    assert not made.is_open(now=later(600))
    with pytest.raises(InvalidRequest):
        quote("profile.x", SMALL, timedelta(0), Pricing(), now=NOW)


@pytest.mark.parametrize("bad", [{"vcpu_msats": -1}, {"running_msats": 1.5}, {"egress_gb_msats": 10**10}])
def test_rates_are_whole_and_bounded(bad: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest):
        Rates(**bad)
