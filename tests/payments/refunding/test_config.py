"""What an operator may write of a hot wallet, and what is refused at the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandboxer.kernel.clock import SystemClock
from sandboxer.kernel.errors import Forbidden, InvalidRequest
from sandboxer.payments.chains.configuration import Cap, HotWalletPlan, chains_from_json, read_hot_wallet
from sandboxer.payments.hot_wallet import check_is_ours, open_hot_wallet
from sandboxer.payments.invoices.records import InvoicePolicy
from sandboxer.payments.wallet.agent import create_wallet, open_wallet
from sandboxer.settings import load_settings
from sandboxer.store.engine import Store

GOOD: dict[str, Any] = {
    "file": "/etc/hot.wallet",
    "password_file": "/etc/password",
    "caps": {"LTC": {"payment": "1.5", "day": "5"}},
}
CHAINS = frozenset({"LTC"})


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/sandboxer.db"


def test_without_the_setting_there_is_none_and_caps_are_in_whole_coins() -> None:
    assert read_hot_wallet({}, CHAINS) is None
    plan = read_hot_wallet(GOOD, CHAINS)
    assert plan is not None
    assert plan.caps == {"LTC": Cap(per_payment=150_000_000, per_day=500_000_000)}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"file": None}, "path as file"),
        ({"password_file": ""}, "path as password_file"),
        ({"password": "secret"}, "no field 'password'"),
        ({"caps": {}}, "needs caps"),
        ({"caps": {"BTC": {"payment": "1", "day": "1"}}}, "not among the chains"),
        ({"caps": {"LTC": {"payment": "1"}}}, "exactly payment and day"),
        ({"caps": {"LTC": {"payment": 0.1, "day": "1"}}}, "a text like"),
        ({"caps": {"LTC": {"payment": "2", "day": "1"}}}, "per payment"),
        ({"caps": {"LTC": {"payment": "0.123456789", "day": "1"}}}, "decimal digits"),
    ],
)
def test_a_typing_slip_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        read_hot_wallet(GOOD | change, CHAINS)


def test_the_settings_refuse_a_wallet_without_its_chain(tmp_path: Path) -> None:
    environment = {"SANDBOXER_HOT_WALLET": '{"file": "/a", "password_file": "/b", "caps": {"LTC": {}}}'}
    with pytest.raises(InvalidRequest, match="not among the chains"):
        load_settings(environment | {"SANDBOXER_STATE_DIR": str(tmp_path)})


def test_a_wallet_that_does_not_own_the_addresses_is_refused(tmp_path: Path) -> None:
    wallet = create_wallet(tmp_path / "hot", "long enough")
    other = create_wallet(tmp_path / "other", "long enough")
    own = {"rpc": "http://127.0.0.1:1", "xpub": wallet.seed.account("LTC").xpub()}
    (plan,) = chains_from_json({"LTC": own})
    check_is_ours(wallet, plan)
    with pytest.raises(InvalidRequest, match="not of this wallet's account"):
        check_is_ours(other, plan)
    (odd,) = chains_from_json({"LTC": own | {"script": "p2pkh"}})
    with pytest.raises(InvalidRequest, match="not of this wallet's account"):
        check_is_ours(wallet, odd)


async def test_the_settings_caps_hold_and_a_wrong_password_stops_the_start(
    store: Store, tmp_path: Path
) -> None:
    wallet = create_wallet(tmp_path / "hot", "long enough")
    wallet.set_cap("LTC", Cap(per_payment=10**12, per_day=10**12))
    (tmp_path / "password").write_text("long enough\n")
    caps = {"LTC": Cap(per_payment=1, per_day=2)}
    plan = HotWalletPlan(file=tmp_path / "hot", password_file=tmp_path / "password", caps=caps)
    clock, policy = SystemClock(), InvoicePolicy()
    async with open_hot_wallet(plan, store, clock, chains={}, plans=(), policy=policy):
        assert open_wallet(tmp_path / "hot", "long enough").caps == caps
    (tmp_path / "password").write_text("wrong\n")
    with pytest.raises(Forbidden):
        async with open_hot_wallet(plan, store, clock, chains={}, plans=(), policy=policy):
            pass
    missing = HotWalletPlan(file=tmp_path / "hot", password_file=tmp_path / "nowhere", caps=caps)
    with pytest.raises(InvalidRequest, match="cannot be read"):
        async with open_hot_wallet(missing, store, clock, chains={}, plans=(), policy=policy):
            pass
