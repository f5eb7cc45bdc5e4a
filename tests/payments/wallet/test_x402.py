"""What an agent's wallet signs for a 402, and above all what it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from x402.http.utils import decode_payment_signature_header
from x402.schemas import PaymentRequired, PaymentRequirements

from sandboxer.kernel.clock import SystemClock
from sandboxer.kernel.errors import Forbidden, InvalidRequest
from sandboxer.payments.chains.configuration import Cap
from sandboxer.payments.stacks.transfers import MAINNET, PUBLISHED
from sandboxer.payments.wallet.agent import AgentWallet
from sandboxer.payments.wallet.x402 import Token, X402Payer, token_named
from tests.support.payments.wallets import wallet_copy

BASE = "eip155:8453"
USDC = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
OTHER = "0x" + "11" * 20
SBTC = PUBLISHED[MAINNET.caip2]["SBTC"].partition("::")[0]


@pytest.fixture
def wallet(tmp_path: Path) -> AgentWallet:
    made = wallet_copy(tmp_path / "wallet", "long enough")
    made.set_cap("USDC", Cap(per_payment=2_000_000, per_day=3_000_000))
    return made


def offer(
    asset: str = USDC, amount: int = 1_000_000, network: str = BASE, scheme: str = "exact"
) -> PaymentRequirements:
    return PaymentRequirements(
        scheme=scheme,
        network=network,
        asset=asset,
        amount=str(amount),
        pay_to="0x" + "22" * 20,
        max_timeout_seconds=60,
        extra={"name": "USD Coin", "version": "2"},
    )


def asking(*offers: PaymentRequirements) -> PaymentRequired:
    return PaymentRequired(accepts=list(offers))


def test_it_signs_the_first_offer_it_can_pay_and_counts_it_before(wallet: AgentWallet) -> None:
    payer = X402Payer(wallet, SystemClock())
    signed = payer.sign(asking(offer(OTHER), offer(amount=9_000_000), offer(amount=1_500_000)))
    assert (signed.code, signed.amount) == ("USDC", "1.5")
    payload = decode_payment_signature_header(signed.header)
    assert payload.payload["authorization"]["from"] == wallet.seed.evm_address()
    assert [each.amount for each in wallet.content.journal] == [1_500_000]
    with pytest.raises(Forbidden, match="a day"):
        payer.sign(asking(offer(amount=1_500_001)))


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (offer(OTHER), "not paid with here"),
        (offer(network="eip155:31337"), "not paid with here"),
        (offer(scheme="upto"), "not paid with here"),
        (offer(amount=2_000_001), "above the cap"),
        (offer(SBTC, network=MAINNET.caip2), "no node"),
        (offer(amount=0), "nothing to pay"),
    ],
)
def test_what_it_does_not_know_or_may_not_spend_it_does_not_sign(
    wallet: AgentWallet, asked: PaymentRequirements, why: str
) -> None:
    with pytest.raises(Forbidden, match=why):
        X402Payer(wallet, SystemClock()).sign(asking(asked))
    assert wallet.content.journal == ()


def test_a_token_is_what_its_holder_says_and_assets_can_be_chosen(wallet: AgentWallet) -> None:
    named = Token(network="eip155:31337", id=OTHER, code="USDC")
    local = offer(OTHER, network="eip155:31337")
    assert X402Payer(wallet, SystemClock(), tokens=[named]).sign(asking(local)).code == "USDC"
    with pytest.raises(Forbidden, match="not paid with here"):
        X402Payer(wallet, SystemClock(), assets=["SBTC"]).sign(asking(offer()))
    with pytest.raises(Forbidden, match="no way to pay"):
        X402Payer(wallet, SystemClock()).sign(asking())


def test_tokens_are_named_on_a_command_line() -> None:
    assert token_named(f"{BASE}/{USDC}=usdc") == Token(network=BASE, id=USDC, code="USDC")
    for slip in (
        "",
        "USDC",
        f"{USDC}=USDC",
        f"{BASE}/{USDC}",
        f"{BASE}/{USDC}=GOLD",
        f"8453/{USDC}=USDC",
        f"{BASE}/=USDC",
    ):
        with pytest.raises(InvalidRequest):
            token_named(slip)
