"""Flow 3 of the paper, payment: by x402, in coins by invoice (3c: until it is deep), by gift card (3b).

Real chains, real walls: whoever paid runs something behind them. Dogecoin's chain is a stand-in here, which a
whole platform does not take for Dogecoin: `tests/payments/invoices/test_chains.py` has its invoices.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from sandboxer.sdk.errors import ApiError
from sandboxer.sdk.payers import Cap, EvmPayer
from sandboxer.sdk.sync.client import Sandboxer
from testchains.evm import Anvil
from testchains.evm.anvil import address_of
from tests.support.flows import Charging, node_of, selling_platform

# What the paper waits for.
CONFIRMATIONS = {"BTC": 3, "LTC": 6, "XMR": 10}
NODES = {"BTC": "bitcoin", "XMR": "monero"}
NOBODY = {"public_key": "nobody", "secret_key": "nobody"}
FUNDS = 50_000_000


def payer_of(evm: Anvil) -> tuple[EvmPayer, str]:
    wallet = evm.new_wallet(FUNDS)
    cap = Cap(network=evm.network, asset=evm.asset, per_payment=FUNDS, in_total=FUNDS)
    return EvmPayer(wallet, [cap]), address_of(wallet)


def runs_something(client: Sandboxer) -> None:
    with client.create(ttl="10m") as sandbox:
        assert sandbox.exec("echo hello").stdout == "hello\n"


def test_a_wallet_without_an_account_pays_for_a_sandbox_and_gets_a_key(selling: Charging, evm: Anvil) -> None:
    payer, address = payer_of(evm)
    with Sandboxer(url=selling.up.url, wallet=payer) as client:
        runs_something(client)
        assert client.credentials.public_key
        # The second is signed with the key, and paid from what is left.
        spent = FUNDS - evm.balance(address)
        assert spent > 0
        assert client.account.me().money.balance > 0


def _until(client: Sandboxer, invoice_id: str, state: str) -> Any:
    deadline = time.monotonic() + 60
    while True:
        seen = client.invoices.get(invoice_id)
        if seen.state == state:
            return seen
        assert time.monotonic() < deadline, seen
        time.sleep(0.05)


def pays_and_runs(url: str, code: str, node: Any) -> None:
    """From nothing but coins to a program behind walls; the platform believes no block too few."""
    with Sandboxer(url=url, **NOBODY) as nobody:
        bill = nobody.invoices.create(code, sats=200_000)
        assert (bill.state, bill.confirmations_needed) == ("awaiting", CONFIRMATIONS[code])
        node.pay(bill.address, int(bill.atomic))
        _until(nobody, bill.id, "seen")
        node.mine(CONFIRMATIONS[code] - 1)
        assert _until(nobody, bill.id, "confirming").payments[0].sats == 0
        node.mine(1)
        paid = _until(nobody, bill.id, "paid")
        assert (paid.received, paid.payments[0].sats) == (bill.amount, 200_000)
        key = nobody.invoices.claim_key(str(paid.public_key), str(bill.claim))
    with Sandboxer(url=url, public_key=key.public_key, secret_key=key.secret_key) as client:
        assert client.account.me().money.balance == 200_000
        runs_something(client)


def test_litecoin_becomes_a_sandbox(selling: Charging, litecoin: Any) -> None:
    pays_and_runs(selling.up.url, "LTC", litecoin)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("code", ["BTC", "XMR"])
def test_every_other_coin_does_too(
    code: str, evm: Anvil, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    node = request.getfixturevalue(NODES[code])
    with selling_platform(tmp_path, evm, {code: node_of(code, node, tmp_path)}) as selling:
        pays_and_runs(selling.up.url, code, node)


def test_two_agents_share_a_card_that_a_third_has_bought(selling: Charging) -> None:
    """Flow 3b: the buyer sets the budget, and whoever has the words chooses what to have for it."""
    known = selling.key
    buyer = Sandboxer(url=selling.up.url, public_key=known.public_key, secret_key=known.secret_key)
    card = buyer.gift_cards.create(1_000, pay_with="sats")
    for number in (1, 2):
        with Sandboxer(url=selling.up.url, **NOBODY) as nobody:
            done = nobody.gift_cards.redeem(str(card.code), cents=400, anonymous=True)
            key = nobody.invoices.claim_key(str(done.public_key), str(done.claim))
            assert nobody.gift_cards.balance(str(card.code)).left_cents == 1_000 - number * 400
        with Sandboxer(url=selling.up.url, public_key=key.public_key, secret_key=key.secret_key) as agent:
            runs_something(agent)
    with Sandboxer(url=selling.up.url, **NOBODY) as nobody, pytest.raises(ApiError):
        nobody.gift_cards.redeem(str(card.code), cents=400, anonymous=True)
    assert buyer.gift_cards.refund(card.id, to="sats").sats > 0


async def test_the_shipped_checks_of_this_flow_pass(selling: Charging, evm: Anvil) -> None:
    """With a wallet they pay for one top-up; without, that check alone is not tried."""
    payer, address = payer_of(evm)
    await selling.passes(3, payer=payer)
    assert evm.balance(address) < FUNDS
    left = [one.check for one in await selling.results(3) if one.verdict != "passed"]
    assert left == ["a wallet pays and the account has the sats"]
