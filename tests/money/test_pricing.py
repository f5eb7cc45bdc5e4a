from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.money.policy import Use
from sandboxer.money.pricing import (
    FREE,
    Basis,
    Pricing,
    Rates,
    Size,
    TierPrices,
    all_tier_prices,
    egress_msats,
    entitlement,
    passed_through,
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


sizes = st.builds(
    Size,
    vcpu_thousandths=st.integers(0, 64_000),
    memory_mb=st.integers(0, 2**20),
    disk_mb=st.integers(0, 2**20),
)
prices = st.builds(
    Rates,
    running_msats=st.integers(0, 10_000),
    vcpu_msats=st.integers(0, 10_000),
    memory_gb_msats=st.integers(0, 1000),
    gpu_msats=st.integers(0, 10_000),
).map(lambda rates: Pricing(rates=rates))
usd = st.decimals(min_value=0, max_value=1000, places=6)
usd_per_btc = st.decimals(min_value=1000, max_value=10_000_000, places=2)


@given(sizes, prices, st.integers(0, 16))
def test_every_gpu_costs_its_surcharge_and_nothing_else_changes(
    size: Size, pricing: Pricing, gpus: int
) -> None:
    without, with_them = (
        rate_card("p", size, pricing),
        rate_card("p", size, pricing, Basis(gpus=gpus)),
    )

    surcharge = gpus * pricing.rates.gpu_msats
    assert with_them.running == without.running + surcharge
    assert with_them.frozen == without.frozen + surcharge
    assert with_them.stored == without.stored


@given(sizes, prices, st.integers(0, 10**6), st.integers(0, 16))
def test_what_a_provider_charges_is_passed_through_whole_whatever_the_size(
    size: Size, pricing: Pricing, infrastructure: int, gpus: int
) -> None:
    card = rate_card("p", size, pricing, Basis(infrastructure=infrastructure, is_metered=True, gpus=gpus))

    assert card.running == pricing.rates.running_msats + infrastructure
    assert card.frozen == infrastructure


@given(sizes, prices, st.integers(0, 10**6), st.integers(0, 16))
def test_with_a_key_of_its_own_an_account_pays_the_fee_alone(
    size: Size, pricing: Pricing, infrastructure: int, gpus: int
) -> None:
    basis = Basis(infrastructure=infrastructure, is_metered=True, is_own_key=True, gpus=gpus)

    card = rate_card("p", size, pricing, basis)

    assert (card.running, card.frozen, card.stored) == (pricing.rates.running_msats, 0, 0)
    assert card.running <= rate_card("p", size, pricing, Basis(is_metered=True)).running


@given(usd, usd_per_btc)
def test_a_price_that_is_passed_on_covers_what_is_charged_by_less_than_a_msat_a_second(
    usd_per_hour: Decimal, rate: Decimal
) -> None:
    passed = passed_through(usd_per_hour, rate)

    exact = Fraction(usd_per_hour) / Fraction(rate) * 10**11 / 3600
    assert 0 <= passed - exact < 1


@given(usd, usd, usd_per_btc)
def test_who_is_charged_more_passes_on_more_and_parts_never_cost_less_than_the_whole(
    one: Decimal, other: Decimal, rate: Decimal
) -> None:
    assert passed_through(one + other, rate) <= passed_through(one, rate) + passed_through(other, rate)
    assert passed_through(max(one, other), rate) >= passed_through(min(one, other), rate)


@pytest.mark.parametrize(
    ("cost", "rate"), [("-1", "100000"), ("NaN", "1"), ("Infinity", "1"), ("1", "0"), ("1", "-5")]
)
def test_what_is_no_price_is_refused(cost: str, rate: str) -> None:
    with pytest.raises(InvalidRequest):
        passed_through(Decimal(cost), Decimal(rate))


@given(sizes, prices, st.integers(0, 10**6))
def test_a_free_profile_stays_free_wherever_it_stands(
    size: Size, pricing: Pricing, infrastructure: int
) -> None:
    free = replace(pricing, free_profiles=frozenset({"p"}))

    assert rate_card("p", size, free, Basis(infrastructure=infrastructure, is_metered=True)) == FREE
