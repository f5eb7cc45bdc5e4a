"""A checkout on a real chain and a real database, without HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account
from x402 import x402Client
from x402.http.utils import encode_payment_signature_header
from x402.mechanisms.evm.exact.register import register_exact_evm_client
from x402.schemas import PaymentPayload, PaymentRequired

from sandboxer.identity.dependencies import open_wallet_identity
from sandboxer.identity.keys import Keys
from sandboxer.identity.seal import Seal
from sandboxer.kernel.clock import SystemClock
from sandboxer.kernel.errors import PaymentRefused
from sandboxer.money.buckets import settle_account, unconfirmed
from sandboxer.money.verification import verify
from sandboxer.payments import records
from sandboxer.payments.lifecycle import State
from sandboxer.payments.rate_sources import FixedRates
from sandboxer.payments.records import Payment, Purpose
from sandboxer.payments.x402.dependencies import X402, open_x402
from sandboxer.payments.x402.presented import Wanted
from sandboxer.payments.x402.ways import read_settings
from sandboxer.store.engine import Store, open_store
from testchains.evm import KEYS, Anvil
from testchains.evm.anvil import address_of
from tests.support.chains.evm import evm

__all__ = ["evm"]

URL = "http://shop.test"
SHOP = address_of(KEYS[1])
SIGNER_KEY = KEYS[2]
RATES = {"BTC": Decimal(100_000), "USDC": Decimal(1)}


class MovingClock(SystemClock):
    """The true time, and as much later as a test says."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@dataclass
class Desk:
    """What a test needs to pay: the checkout, and somebody with a wallet."""

    x402: X402
    store: Store
    chain: Anvil
    clock: MovingClock

    async def offer(self, sats: int = 1000) -> PaymentRequired:
        return PaymentRequired(accepts=await self.x402.offers.make(sats))

    async def pay(self, key: str, *, sats: int = 1000, **changes: Any) -> PaymentPayload:
        """What a client with this wallet would send for an offer of so many sats."""
        required = await self.offer(sats)
        client = paying_client(key)
        payload = await client.create_payment_payload(required)
        assert isinstance(payload, PaymentPayload)
        return payload.model_copy(update=changes)

    async def buy(self, payload: PaymentPayload, wanted: Wanted | None = None) -> Payment:
        """Top up with it: take, settle, and what is known then."""
        return await self.buy_with(headers_of(payload)[0][1], wanted)

    async def buy_with(self, header: bytes, wanted: Wanted | None = None) -> Payment:
        presented = self.x402.checkout.present([(b"payment-signature", header)])
        assert presented is not None
        async with self.x402.checkout.take(presented, wanted or topup()) as taken:
            if not taken.is_new:
                return taken.payment
            return await self.x402.checkout.settle(taken.payment)


def topup(least: int = 1, *, account: str | None = None, request: str = "r1") -> Wanted:
    return Wanted(purpose=Purpose.TOPUP, least_sats=least, account=account, request_hash=request, details={})


def headers_of(payload: PaymentPayload) -> list[tuple[bytes, bytes]]:
    return [(b"payment-signature", encode_payment_signature_header(payload).encode())]


def paying_client(key: str) -> x402Client:
    client = x402Client()
    register_exact_evm_client(client, Account.from_key(key))
    client.set_spend_controls(False)
    return client


def settings_for(chain: Anvil, **more: Any) -> dict[str, Any]:
    network = {
        "network": chain.network,
        "pay_to": SHOP,
        "rpc_url": chain.url,
        "assets": [{"code": "USDC", "id": chain.asset, "name": "Test Dollar", "version": "2"}],
        **more.pop("network", {}),
    }
    return {"networks": [network], "settle_timeout": "5s", **more}


@asynccontextmanager
async def open_desk(
    chain: Anvil, store: Store, folder: Path, *, signer_key: str = SIGNER_KEY, **more: Any
) -> AsyncIterator[Desk]:
    settings = read_settings(settings_for(chain, **more))
    assert settings is not None
    clock = MovingClock()
    seal = Seal(b"k" * 32)
    keys = Keys(store, seal, clock=clock)
    identity = await open_wallet_identity(store, seal, clock, keys, url=URL, session_secret=None)
    async with open_x402(
        settings,
        store,
        clock,
        keys,
        FixedRates(RATES, clock),
        siwx=identity.siwx,
        url=URL,
        state_dir=folder,
        signer_key=signer_key,
    ) as x402:
        yield Desk(x402, store, chain, clock)


@pytest.fixture
async def sqlite_store(tmp_path: Path) -> AsyncIterator[Store]:
    store = open_store(f"sqlite:///{tmp_path}/sandboxer.db")
    yield store
    proof = await store.read(verify)
    assert proof.is_whole
    await store.close()


@pytest.fixture
async def use_cases(evm: Anvil, sqlite_store: Store, tmp_path: Path) -> AsyncIterator[Desk]:
    async with open_desk(evm, sqlite_store, tmp_path) as opened:
        yield opened


@pytest.fixture
def wallet(evm: Anvil) -> str:
    """The key of a new wallet with five test dollars."""
    return evm.new_wallet(5_000_000)


def altered(payload: PaymentPayload, **accepted: Any) -> PaymentPayload:
    return payload.model_copy(update={"accepted": payload.accepted.model_copy(update=accepted)})


async def refusal(use_cases: Desk, payload: PaymentPayload) -> str:
    before = use_cases.chain.balance(SHOP)
    with pytest.raises(PaymentRefused) as refused:
        await use_cases.buy(payload)
    assert use_cases.chain.balance(SHOP) == before
    return str(refused.value.facts["reason"])


async def balance(use_cases: Desk, payment: Payment) -> tuple[int, int]:
    """What its account has, and how much of that is not final."""
    now = use_cases.clock.now()
    return await use_cases.store.write(
        lambda conn: (
            settle_account(conn, payment.account, now=now).posted,
            unconfirmed(conn, payment.account),
        )
    )


async def reload(use_cases: Desk, payment: Payment) -> Payment:
    return await use_cases.store.read(lambda conn: records.load(conn, payment.id))


async def follow(use_cases: Desk, payment: Payment, wanted: State) -> Payment:
    """Let the reconciler look as often as it would within ten minutes, in no time."""
    for _ in range(40):
        found = await reload(use_cases, payment)
        if found.state is wanted:
            return found
        use_cases.clock.ahead += (found.look_at or use_cases.clock.now()) - use_cases.clock.now()
        await use_cases.x402.reconciler.round()
    raise AssertionError(f"it stayed {found.state}, {found.reason}")
