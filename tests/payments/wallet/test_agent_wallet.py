"""The wallet's file keeps its secret, and its caps hold whoever asks."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from eth_account import Account

from sandboxer.kernel.errors import Broken, Conflict, Forbidden, InvalidRequest, NotFound
from sandboxer.payments.chains.configuration import Cap
from sandboxer.payments.wallet.agent import AgentWallet, create_wallet, open_wallet
from sandboxer.payments.wallet.spenders import Seed
from tests.support.payments.wallets import wallet_copy

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
WORDS = " ".join(["abandon"] * 11 + ["about"])
PASSWORD = "correct horse"


@pytest.fixture
def wallet(tmp_path: Path) -> AgentWallet:
    return wallet_copy(tmp_path / "agent.wallet", PASSWORD, words=WORDS)


def test_a_seed_gives_the_addresses_other_wallets_give() -> None:
    seed = Seed(WORDS)
    assert seed.evm_address() == "0x9858EfFD232B4033E47d90003D41EC34EcaEda94"
    assert Account.from_key(seed.evm_key()).address == seed.evm_address()
    assert seed.account("BTC").address(0) == "bc1qcr8te4kr609gcawutmrza0j4xv80jy8z306fyu"
    assert seed.account("LTC").address(0) == "ltc1qjmxnz78nmc8nq77wuxh25n2es7rzm5c2rkk4wh"
    assert seed.account("DOGE").address(0) == "DBus3bamQjgJULBJtYXpEzDWQRwF5iwxgC"
    assert seed.stacks_address().startswith("SP")
    assert "abandon" not in repr(seed)
    with pytest.raises(InvalidRequest):
        Seed("abandon " * 12)


def test_the_file_is_private_and_holds_nothing_readable(tmp_path: Path) -> None:
    path = tmp_path / "agent.wallet"
    wallet = create_wallet(path, PASSWORD, words=WORDS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "abandon" not in path.read_text()
    assert open_wallet(path, PASSWORD).seed == wallet.seed


def test_a_wrong_password_a_changed_file_and_no_file_are_told_apart_from_success(
    wallet: AgentWallet, tmp_path: Path
) -> None:
    path = tmp_path / "agent.wallet"
    with pytest.raises(Forbidden):
        open_wallet(path, "incorrect horse")
    with pytest.raises(NotFound):
        open_wallet(tmp_path / "none", PASSWORD)
    with pytest.raises(Conflict):
        create_wallet(path, PASSWORD)
    text = path.read_text()
    path.write_text(text.replace('"n": 65536', '"n": 131072'))
    with pytest.raises(Forbidden):
        open_wallet(path, PASSWORD)
    path.write_text(text.replace('"n": 65536', '"n": 9999999999'))
    with pytest.raises(Broken):
        open_wallet(path, PASSWORD)
    path.write_text("[]")
    with pytest.raises(Broken):
        open_wallet(path, PASSWORD)


def test_what_has_no_cap_is_not_spent(wallet: AgentWallet) -> None:
    with pytest.raises(Forbidden, match="no cap"):
        wallet.charge("one", "LTC", 1, now=NOW)


def test_caps_hold_for_one_payment_and_for_a_day_and_open_again_after_it(wallet: AgentWallet) -> None:
    wallet.set_cap("ltc", Cap(per_payment=60, per_day=100))
    with pytest.raises(Forbidden, match="one LTC payment"):
        wallet.charge("big", "LTC", 61, now=NOW)
    wallet.charge("one", "LTC", 60, now=NOW)
    wallet.charge("one", "LTC", 60, now=NOW)  # the same payment again
    with pytest.raises(Forbidden, match="a day"):
        wallet.charge("two", "LTC", 41, now=NOW + timedelta(hours=23))
    wallet.charge("three", "LTC", 40, now=NOW + timedelta(hours=23))
    wallet.charge("four", "LTC", 60, now=NOW + timedelta(hours=24, seconds=1))
    wallet.release("four")
    wallet.charge("five", "LTC", 60, now=NOW + timedelta(hours=24, seconds=1))
    for amount in (0, -1):
        with pytest.raises(InvalidRequest):
            wallet.charge("none", "LTC", amount, now=NOW)


def test_a_cap_counts_after_a_restart(wallet: AgentWallet, tmp_path: Path) -> None:
    wallet.set_cap("XMR", Cap(per_payment=10, per_day=10))
    wallet.charge("one", "XMR", 10, now=NOW)
    with pytest.raises(Forbidden):
        open_wallet(tmp_path / "agent.wallet", PASSWORD).charge("two", "XMR", 1, now=NOW)


def test_many_spenders_at_once_do_not_pass_the_cap_together(wallet: AgentWallet, tmp_path: Path) -> None:
    wallet.set_cap("BTC", Cap(per_payment=10, per_day=50))
    others = [open_wallet(tmp_path / "agent.wallet", PASSWORD) for _ in range(4)]

    def spend(number: int) -> bool:
        try:
            others[number % 4].charge(f"payment {number}", "BTC", 10, now=NOW)
        except Forbidden:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(spend, range(12))) == 5
