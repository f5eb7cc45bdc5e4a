"""Amounts are exact in both directions, or refused."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.rates import ASSETS, Asset, as_text, asset_named, from_atomic, to_atomic


def test_known_amounts() -> None:
    assert to_atomic("4.52", ASSETS["XMR"]) == 4_520_000_000_000
    assert to_atomic(Decimal("0.1") + Decimal("0.2"), ASSETS["BTC"]) == 30_000_000
    assert to_atomic("1e-8", ASSETS["LTC"]) == 1
    assert as_text(4_520_000_000_000, ASSETS["XMR"]) == "4.52"
    assert as_text(1, ASSETS["XMR"]) == "0.000000000001"
    assert as_text(300_000_000, ASSETS["DOGE"]) == "3"
    assert as_text(0, ASSETS["BTC"]) == "0"
    assert as_text(10**9, ASSETS["USDC"]) == "1000"


@pytest.mark.parametrize("amount", ["0.000000001", "-1", "NaN", "Infinity", "1,5", "", "1e40", "0x10", "一"])
def test_what_is_no_amount_of_bitcoin_is_refused(amount: str) -> None:
    with pytest.raises(InvalidRequest):
        to_atomic(amount, ASSETS["BTC"])


@given(st.sampled_from(list(ASSETS.values())), st.integers(0, 10**28))
def test_every_amount_survives_being_written_and_read(asset: Asset, amount: int) -> None:
    assert to_atomic(as_text(amount, asset), asset) == amount
    assert to_atomic(from_atomic(amount, asset), asset) == amount


def test_assets_are_found_by_name_in_any_case() -> None:
    assert asset_named("ltc") is ASSETS["LTC"]
    with pytest.raises(InvalidRequest):
        asset_named("SHIB")
