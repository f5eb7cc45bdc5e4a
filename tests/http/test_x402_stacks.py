"""An agent with a Stacks wallet at a whole platform: HTTP, checkout, relay and chain."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from x402 import x402Client
from x402.http.clients.httpx import wrapHttpxWithPayment
from x402.http.utils import decode_payment_required_header, encode_payment_signature_header
from x402.schemas import PaymentPayload

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.money.buckets import settle_account, unconfirmed
from sandboxer.money.verification import verify
from sandboxer.payments.stacks.clarity import Mode
from sandboxer.payments.stacks.nodes import next_nonce
from sandboxer.payments.stacks.shop import ExactStacksClient
from sandboxer.payments.stacks.transactions import parse_hex, sign_origin, write_transaction
from sandboxer.settings import Settings
from testchains.stacks.local import LocalStacks, Wallet
from tests.support.chains.stacks import stacks
from tests.support.http.served import Served, serving
from tests.support.http.signed import Credentials

__all__ = ["stacks"]
# A sat is 0.1 cents: 1000 sats are 1 USDCx, or 2 STX.
RATES = {"BTC": "100000", "STX": "0.5", "USDC": "1"}


@dataclass
class Market:
    served: Served
    chain: LocalStacks
    owner: Wallet

    def client(self, wallet: Wallet, asset: str) -> x402Client:
        def choose(_: int, offered: list[Any]) -> Any:
            return next(one for one in offered if one.extra["tokenType"].upper() == asset)

        client = x402Client(payment_requirements_selector=choose)
        nonces = lambda address: next_nonce(self.chain.node_url, address)  # noqa: E731
        client.register("stacks:*", ExactStacksClient(wallet.key, nonces))
        client.set_spend_controls(False)
        return client

    @contextlib.asynccontextmanager
    async def agent(self, wallet: Wallet, asset: str = "SBTC") -> AsyncIterator[httpx.AsyncClient]:
        client = self.client(wallet, asset)
        async with wrapHttpxWithPayment(client, base_url=self.served.url, timeout=30) as http:
            yield http

    async def sign(self, wallet: Wallet, sats: int, nonce: int | None = None) -> PaymentPayload:
        """What the client sends for a top-up of so many sats."""
        asked = await self.served.client.http.post("/v1/topups", json={"sats": sats})
        assert asked.status_code == 402, asked.text
        client = self.client(wallet, "SBTC")
        if nonce is not None:
            client.register("stacks:*", ExactStacksClient(wallet.key, lambda _: nonce))
        required = decode_payment_required_header(asked.headers["payment-required"])
        payload = await client.create_payment_payload(required)
        assert isinstance(payload, PaymentPayload)
        return payload

    async def present(self, payload: PaymentPayload, sats: int) -> httpx.Response:
        header = {"payment-signature": encode_payment_signature_header(payload)}
        return await self.served.client.http.post("/v1/topups", json={"sats": sats}, headers=header)

    async def confirmed(self, payment: dict[str, Any]) -> dict[str, Any]:
        """The payment, once the platform itself has found it in a block."""
        return await self.until(payment, "confirmed")

    async def until(self, payment: dict[str, Any], state: str, seconds: float = 40) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while True:
            answer = await self.served.client.http.get(f"/v1/payments/{payment['id']}")
            seen: dict[str, Any] = answer.json()
            if seen["state"] == state:
                return seen
            assert time.monotonic() < deadline, seen
            await asyncio.sleep(0.1)

    async def credit(self, account: str) -> tuple[int, int]:
        """Sats in the bucket, and how many of them are not final."""
        now = self.served.platform.clock.now()
        store = self.served.platform.store
        total = await store.write(lambda conn: settle_account(conn, account, now=now).posted)
        return total, await store.read(lambda conn: unconfirmed(conn, account))


@pytest.fixture
async def market(stacks: LocalStacks, tmp_path: Path) -> AsyncIterator[Market]:
    owner = stacks.wallet()
    settings = Settings.model_validate(
        {
            "state_dir": tmp_path / "state",
            "host": "127.0.0.1",
            "port": 0,
            "limit_auth": 10_000,
            "limit_bucket_only": 10_000,
            "x402": {"networks": [stacks.settings(owner.address)], "settle_timeout": "5s"},
            "fixed_rates": RATES,
        }
    )
    async with serving(settings, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        yield Market(served, stacks, owner)
        assert (await served.platform.store.read(verify)).is_whole


async def test_a_wallet_with_nothing_but_sbtc_gets_a_sandbox_and_a_key(market: Market) -> None:
    wallet = market.chain.wallet(SBTC=100_000)
    async with market.agent(wallet) as http:
        answer = await http.post("/v1/sandboxes", json={})
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert made["state"] == "ready"
    # Broadcast is not confirmed: it is served, and its credit is not final.
    payment = made["payment"]
    assert (payment["state"], payment["payer"]) == ("mempool", wallet.address)
    assert payment["amount"] == str(payment["sats"])
    account = made["key"]["account"]
    assert (await market.credit(account))[1] == payment["sats"]
    market.chain.mine()
    assert (await market.confirmed(payment))["transaction"] == payment["transaction"]
    assert market.chain.balance("SBTC", market.owner.address) == payment["sats"]
    assert (await market.credit(account))[1] == 0
    mine = market.served.as_(Credentials(made["key"]["public_key"], made["key"]["secret_key"]))
    assert (await mine.get(f"/v1/sandboxes/{made['id']}")).status_code == 200


@pytest.mark.parametrize(("asset", "amount"), [("SBTC", 1_000), ("STX", 2_000_000), ("USDCX", 1_000_000)])
async def test_credit_is_bought_in_every_coin_at_the_quoted_rate(
    market: Market, asset: str, amount: int
) -> None:
    wallet = market.chain.wallet(**{asset: 10_000_000})
    async with market.agent(wallet, asset) as http:
        bought = (await http.post("/v1/topups", json={"sats": 1_000})).json()
    market.chain.mine()
    await market.confirmed(bought["payment"])
    assert market.chain.balance(asset, market.owner.address) == amount
    assert await market.credit(bought["key"]["account"]) == (1_000, 0)


async def test_an_answer_lost_after_the_broadcast_costs_nobody_anything(market: Market) -> None:
    wallet = market.chain.wallet(SBTC=100_000)
    before = len(market.chain.relay.desk.broadcasts)
    market.chain.relay.faults.arm("drop_answer", times=2)
    async with market.agent(wallet) as http:
        bought = (await http.post("/v1/topups", json={"sats": 1_000})).json()
    # The relay never answered; the chain knows.
    assert bought["payment"]["state"] == "mempool"
    assert market.chain.relay.desk.broadcasts[before:] == [bought["payment"]["transaction"]]
    market.chain.mine()
    await market.confirmed(bought["payment"])
    assert market.chain.balance("SBTC", market.owner.address) == 1_000


async def test_while_the_relay_is_down_nothing_is_taken_and_the_same_payment_is_good_later(
    market: Market,
) -> None:
    payload = await market.sign(market.chain.wallet(SBTC=100_000), 1_000)
    market.chain.relay.stop()
    try:
        refused = await market.present(payload, 1_000)
    finally:
        market.chain.relay.start()
    assert (refused.status_code, refused.json()["reason"]) == (402, "unexpected_settle_error")
    answer = await market.present(payload, 1_000)
    assert answer.status_code == 201, answer.text
    market.chain.mine()
    await market.confirmed(answer.json()["payment"])
    assert market.chain.balance("SBTC", market.owner.address) == 1_000


async def test_a_payment_in_allow_mode_buys_nothing(market: Market) -> None:
    wallet = market.chain.wallet(SBTC=100_000)
    payload = await market.sign(wallet, 1_000)
    transaction = parse_hex(payload.payload["transaction"])
    careless = sign_origin(replace(transaction, mode=Mode.ALLOW), wallet.key)
    payload.payload["transaction"] = write_transaction(careless).hex()
    refused = await market.present(payload, 1_000)
    assert (refused.status_code, refused.json()["reason"]) == (402, "invalid_transaction_state")
    assert refused.json()["because"] == "its post-condition mode is not deny"
    assert refused.json()["next_steps"] == "fix_and_resend"
    market.chain.mine()
    assert market.chain.balance("SBTC", wallet.address) == 100_000


async def test_a_payment_pays_once_and_for_one_thing(market: Market) -> None:
    payload = await market.sign(market.chain.wallet(SBTC=100_000), 1_000)
    first = (await market.present(payload, 1_000)).json()
    again = (await market.present(payload, 1_000)).json()
    assert again["payment"]["id"] == first["payment"]["id"]
    assert (await market.present(payload, 999)).status_code == 409
    market.chain.mine()
    await market.confirmed(first["payment"])
    assert market.chain.balance("SBTC", market.owner.address) == 1_000


async def test_a_payment_ahead_of_its_nonce_is_credited_when_its_turn_comes(market: Market) -> None:
    wallet = market.chain.wallet(SBTC=100_000)
    held = await market.present(await market.sign(wallet, 1_000, nonce=1), 1_000)
    assert (held.status_code, held.json()["reason"]) == (402, "transaction_held")
    assert held.json()["next_steps"] == "wait_for_confirmation"
    assert held.json()["queue"]["missingNonces"] == [0]
    first = (await market.present(await market.sign(wallet, 500), 500)).json()
    market.chain.mine()
    await market.confirmed(first["payment"])
    await market.until({"id": held.json()["payment_id"]}, "confirmed")
    assert await market.credit(first["key"]["account"]) == (1_500, 0)
    assert market.chain.balance("SBTC", market.owner.address) == 1_500


async def test_a_reorganisation_puts_a_payment_in_doubt_until_it_comes_again(market: Market) -> None:
    wallet = market.chain.wallet(SBTC=100_000)
    async with market.agent(wallet) as http:
        bought = (await http.post("/v1/topups", json={"sats": 1_000})).json()
    account = bought["key"]["account"]
    market.chain.mine()
    await market.confirmed(bought["payment"])
    simnet, txid = market.chain.simnet, market.chain.relay.desk.broadcasts[-1]
    raw = bytes.fromhex(simnet.read(f"/extended/v1/tx/{txid}/raw")["raw_tx"].removeprefix("0x"))
    market.chain.reorg(1)
    # The other branch grows without it.
    simnet.drop(txid)
    market.chain.mine(2)
    await market.until(bought["payment"], "doubted")
    assert await market.credit(account) == (1_000, 0)
    assert simnet.broadcast(raw).is_success
    market.chain.mine()
    await market.confirmed(bought["payment"])
    assert await market.credit(account) == (1_000, 0)
