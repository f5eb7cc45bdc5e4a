"""The decision of the oracle, and the arithmetic that stands on it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxer.kernel.errors import Broken, InvalidRequest, NoRate
from sandboxer.payments import rates as conversion
from sandboxer.payments.rate_sources import FirstKnown, FixedRates
from sandboxer.payments.rates import ASSETS, Rate, RatePolicy, Sighting, judge, median

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def said(source: str, price: str, *, asset: str = "XMR", unit: str = "USD", age_s: int = 0) -> Sighting:
    at = NOW - timedelta(seconds=age_s)
    return Sighting(source=source, asset=asset, price=Decimal(price), unit=unit, at=at)


def rate(asset: str, usd: str) -> Rate:
    return Rate(asset=asset, usd=Decimal(usd), at=NOW, sources=("test",))


BTC = rate("BTC", "60000")


def test_two_that_agree_are_a_rate_and_its_age_is_the_older_ones() -> None:
    found = judge("XMR", [said("a", "150"), said("b", "152", age_s=30)], now=NOW)
    assert found == Rate(asset="XMR", usd=Decimal(151), at=NOW - timedelta(seconds=30), sources=("a", "b"))


@pytest.mark.parametrize(
    "sightings",
    [
        [],
        [said("a", "150")],
        [said("a", "150"), said("a", "151", age_s=5)],
        [said("a", "150"), said("b", "150", age_s=601)],
        [said("a", "150"), said("b", "150", age_s=-121)],
        [said("a", "100"), said("b", "200")],
        [said("a", "100"), said("b", "100"), said("c", "200"), said("d", "200")],
        [said("a", "150"), said("b", "150", unit="USDT")],
        [said("a", "150"), said("b", "150", asset="LTC")],
    ],
    ids=[
        "none",
        "one",
        "one twice",
        "one old",
        "one from the future",
        "two far apart",
        "two camps",
        "usdt",
        "other",
    ],
)
def test_whatever_is_not_agreed_is_no_rate(sightings: list[Sighting]) -> None:
    with pytest.raises(NoRate):
        judge("XMR", sightings, now=NOW)


def test_one_liar_among_three_moves_nothing() -> None:
    honest = [said("a", "150"), said("b", "151")]
    for lie in ("0.01", "1000000", "150000"):
        found = judge("XMR", [*honest, said("liar", lie)], now=NOW)
        assert found.sources == ("a", "b")
        assert Decimal(150) <= found.usd <= Decimal(151)


@given(
    st.lists(st.integers(1, 10**9), min_size=1, max_size=9),
    st.lists(st.integers(1, 10**9), min_size=0, max_size=9),
)
def test_a_minority_never_moves_the_median_out_of_the_honest_range(
    honest: list[int], lies: list[int]
) -> None:
    lies = lies[: (len(honest) - 1) // 2]
    found = median([Decimal(p) for p in (*honest, *lies)])
    assert min(honest) <= found <= max(honest)


def test_an_asset_may_need_more_sources_than_others() -> None:
    policy = RatePolicy(quorum={"XMR": 3})
    with pytest.raises(NoRate):
        judge("XMR", [said("a", "150"), said("b", "150")], now=NOW, policy=policy)
    with pytest.raises(InvalidRequest):
        RatePolicy(quorum={"XMR": 0})


def test_4_52_xmr_is_4520000000000_piconero() -> None:
    sats = 4_520_000
    # Where one XMR is worth a hundredth of a BTC.
    assert conversion.atomic_for_sats(sats, ASSETS["XMR"], rate("XMR", "600"), BTC) == 4_520_000_000_000


def test_bitcoin_and_sbtc_are_sats_without_any_rate() -> None:
    for code in ("BTC", "SBTC"):
        assert conversion.atomic_for_sats(1234, ASSETS[code], None, None) == 1234
        assert conversion.sats_for_atomic(1234, ASSETS[code], None, None) == 1234


def test_what_needs_a_rate_and_has_none_is_refused() -> None:
    with pytest.raises(NoRate):
        conversion.atomic_for_sats(1, ASSETS["LTC"], None, BTC)
    with pytest.raises(NoRate):
        conversion.sats_for_atomic(1, ASSETS["LTC"], rate("LTC", "80"), None)


def test_a_rate_of_the_wrong_asset_is_a_bug_and_said_so() -> None:
    with pytest.raises(Broken):
        conversion.atomic_for_sats(1, ASSETS["LTC"], BTC, BTC)
    with pytest.raises(Broken):
        conversion.sats_for_cents(1, rate("LTC", "80"))


def test_cents_are_rounded_up_to_whole_sats() -> None:
    assert conversion.sats_for_cents(700, BTC) == 11667


@given(
    sats=st.integers(1, 21_000_000 * 10**8),
    usd=st.decimals("0.0001", "1000000", places=8),
    btc=st.decimals("1", "10000000", places=8),
    code=st.sampled_from(sorted(ASSETS)),
)
def test_paying_what_was_asked_credits_at_least_the_price_and_less_never_does(
    sats: int, usd: Decimal, btc: Decimal, code: str
) -> None:
    asset = ASSETS[code]
    one, other = rate({"SBTC": "BTC"}.get(code, code), str(usd)), rate("BTC", str(btc))
    if code in ("BTC", "SBTC"):
        one = other
    atomic = conversion.atomic_for_sats(sats, asset, one, other)
    assert conversion.sats_for_atomic(atomic, asset, one, other) >= sats
    assert conversion.sats_for_atomic(atomic - 1, asset, one, other) < sats


async def test_what_the_operator_wrote_down_goes_first() -> None:
    class Clock:
        def now(self) -> datetime:
            return NOW

        async def sleep(self, delay: timedelta) -> None: ...

    written = FixedRates({"XMR": Decimal(100), "BTC": Decimal(50000)}, Clock())
    asked = FixedRates({"XMR": Decimal(1), "LTC": Decimal(2)}, Clock())
    rates = FirstKnown(written, asked)
    assert rates.assets == ("BTC", "LTC", "SBTC", "XMR")
    assert (await rates.usd("XMR")).usd == 100
    assert (await rates.usd("LTC")).usd == 2
    with pytest.raises(NoRate):
        await rates.usd("DOGE")
