"""`sandboxer pay top-up|key`: an agent's wallet pays on a real chain, within its caps, for whom it likes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxer.payments.chains.configuration import Cap
from sandboxer.payments.wallet.agent import create_wallet
from testchains.evm import Anvil
from tests.support.chains.evm import evm
from tests.support.cli import Cli
from tests.support.payments.x402 import RATES, SHOP, SIGNER_KEY, settings_for
from tests.support.platforms import Up, scripted_platform

__all__ = ["evm"]


@pytest.fixture(scope="module")
def shop(evm: Anvil, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with scripted_platform(
        tmp_path_factory.mktemp("shop") / "state",
        x402=settings_for(evm),
        x402_signer_key=SIGNER_KEY,
        fixed_rates={asset: str(price) for asset, price in RATES.items()},
    ) as running:
        yield running


@pytest.fixture
def agent(shop: Up, tmp_path: Path) -> Cli:
    """No key of anybody's: only the platform's address."""
    plain = {name: value for name, value in shop.environment.items() if name != "SANDBOXER_CREDENTIALS"}
    return Cli(plain | {"SANDBOXER_STATE_DIR": str(tmp_path / "nowhere")})


@pytest.fixture
def payer(evm: Anvil, tmp_path: Path) -> tuple[str, ...]:
    """Options that name a wallet with five dollars, of which it may spend two at a time."""
    return wallet_in(tmp_path, evm, Cap(per_payment=2_000_000, per_day=3_000_000))


def wallet_in(folder: Path, evm: Anvil, cap: Cap) -> tuple[str, ...]:
    (folder / "password").write_text("long enough")
    wallet = create_wallet(folder / "wallet", "long enough")
    wallet.set_cap("USDC", cap)
    evm.fund(wallet.seed.evm_address(), 5_000_000)
    named = ("--wallet", str(folder / "wallet"), "--password-file", str(folder / "password"))
    return (*named, "--token", f"{evm.network}/{evm.asset}=USDC")


def test_a_wallet_buys_credit_and_goes_on_with_the_key_it_was_given(
    agent: Cli, payer: tuple[str, ...], evm: Anvil, tmp_path: Path
) -> None:
    before = evm.balance(SHOP)
    key = str(tmp_path / "key.json")
    said = agent("pay", "top-up", "1500", *payer, "--save-key", key, "--json")
    assert said.code == 0, said.err
    assert (said.json["payment"]["state"], said.json["payment"]["sats"]) == ("confirmed", 1500)
    assert evm.balance(SHOP) - before == 1_500_000
    assert Path(key).stat().st_mode & 0o777 == 0o600
    me = agent("credit", "show", "--json", SANDBOXER_CREDENTIALS=key)
    assert me.json["money"]["balance"] == 1500, me.err
    listed = agent("pay", "list", SANDBOXER_CREDENTIALS=key)
    assert said.json["payment"]["id"] in listed.out
    # Once more, for the same account by its public id; the day's cap leaves one and a half dollars.
    again = agent("pay", "top-up", "1000", *payer, "--account", said.json["account"])
    assert again.code == 0, again.err
    assert "1 USDC" in again.out
    refused = agent("pay", "top-up", "1000", *payer, "--json")
    assert (refused.code, refused.error["code"]) == (4, "forbidden")
    assert "a day" in refused.error["message"]


def test_a_tier_that_the_wallet_cannot_pay_for_is_not_sold(agent: Cli, evm: Anvil, tmp_path: Path) -> None:
    rich = wallet_in(tmp_path, evm, Cap(per_payment=9_000_000, per_day=9_000_000))
    said = agent("pay", "key", "1", *rich, "--json")
    # Five dollars do not buy what costs seven; the chain was asked, and nothing was taken.
    assert said.code == 4, said.out
    assert "insufficient" in json.dumps(said.error).lower()
