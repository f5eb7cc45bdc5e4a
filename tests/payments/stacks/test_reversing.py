"""A confirmed payment on Stacks is taken back on proof only: not by a node that is behind, nor by a relay."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from x402.http.utils import encode_payment_signature_header
from x402.schemas import PaymentPayload

from sandboxer.identity.dependencies import open_wallet_identity
from sandboxer.identity.keys import Keys
from sandboxer.identity.seal import Seal
from sandboxer.kernel.errors import PaymentRefused
from sandboxer.money.buckets import settle_account
from sandboxer.payments import records
from sandboxer.payments.lifecycle import State
from sandboxer.payments.rate_sources import FixedRates
from sandboxer.payments.records import Payment
from sandboxer.payments.stacks.nodes import next_nonce
from sandboxer.payments.stacks.shop import ExactStacksClient
from sandboxer.payments.x402.dependencies import X402, open_x402
from sandboxer.store.engine import Store
from testchains.stacks.local import LocalStacks, Wallet
from tests.payments.stacks.proxies import ForgetfulRelay, StaleNode
from tests.support.payments.stacks import network_settings
from tests.support.payments.x402 import RATES, URL, MovingClock, sqlite_store, topup

__all__ = ["sqlite_store"]


@dataclass
class Shop:
    x402: X402
    store: Store
    chain: LocalStacks
    clock: MovingClock
    payer: Wallet

    async def pay(self, sats: int = 1000) -> PaymentPayload:
        offer = (await self.x402.offers.make(sats))[0]
        client = ExactStacksClient(self.payer.key, lambda who: next_nonce(self.chain.node_url, who))
        return PaymentPayload(payload=client.create_payment_payload(offer), accepted=offer)

    async def buy(self, payload: PaymentPayload) -> Payment:
        header = encode_payment_signature_header(payload).encode()
        presented = self.x402.checkout.present([(b"payment-signature", header)])
        assert presented is not None
        async with self.x402.checkout.take(presented, topup()) as taken:
            return await self.x402.checkout.settle(taken.payment) if taken.is_new else taken.payment

    async def look(self, payment: Payment, *, times: int = 1, blocks: int = 0) -> Payment:
        for _ in range(times):
            if blocks:
                self.chain.mine(blocks)
            found = await self.reload(payment)
            self.clock.ahead += max(found.look_at or self.clock.now(), self.clock.now()) - self.clock.now()
            await self.x402.checkout.follow(found)
        return await self.reload(payment)

    async def reload(self, payment: Payment) -> Payment:
        return await self.store.read(lambda conn: records.load(conn, payment.id))

    async def credit(self, payment: Payment) -> int:
        now = self.clock.now()
        return await self.store.write(lambda conn: settle_account(conn, payment.account, now=now).posted)


@asynccontextmanager
async def shop(stacks: LocalStacks, store: Store, folder: Path, **entry: Any) -> AsyncIterator[Shop]:
    owner, payer = stacks.wallet(), stacks.wallet(SBTC=100_000)
    wanted = {**stacks.settings(owner.address, "SBTC"), **entry}
    settings = network_settings({name: value for name, value in wanted.items() if value is not None})
    clock, seal = MovingClock(), Seal(b"k" * 32)
    keys = Keys(store, seal, clock=clock)
    identity = await open_wallet_identity(store, seal, clock, keys, url=URL, session_secret=None)
    rates = FixedRates(RATES, clock)
    async with open_x402(
        settings, store, clock, keys, rates, siwx=identity.siwx, url=URL, state_dir=folder
    ) as x402:
        yield Shop(x402, store, stacks, clock, payer)


async def test_a_node_that_is_behind_takes_nothing_back(
    stacks: LocalStacks, sqlite_store: Store, tmp_path: Path
) -> None:
    with StaleNode(stacks.node_url) as node:
        async with shop(stacks, sqlite_store, tmp_path, rpc_url=node.url) as at:
            payment = await at.buy(await at.pay())
            assert (await at.look(payment)).state is State.MEMPOOL
            node.is_remembering = False
            assert (await at.look(payment, blocks=1)).state is State.CONFIRMED
            node.is_stale = True
            after = await at.look(payment, times=3)
            assert (after.state, await at.credit(after)) == (State.CONFIRMED, 1000)


async def test_a_reorganisation_freezes_first_and_a_payment_that_comes_again_was_never_gone(
    stacks: LocalStacks, sqlite_store: Store, tmp_path: Path
) -> None:
    async with shop(stacks, sqlite_store, tmp_path) as at:
        payment = await at.buy(await at.pay())
        confirmed = await at.look(payment, blocks=1)
        assert (confirmed.state, confirmed.height) == (
            State.CONFIRMED,
            stacks.simnet.read("/v2/info")["stacks_tip_height"],
        )
        stacks.reorg(1)
        # It waits in the mempool again; the next block of the other branch does not have it yet.
        for txid in list(at.chain.relay.desk.broadcasts[-1:]):
            stacks.simnet.drop(txid)
        doubted = await at.look(payment, blocks=2)
        assert (doubted.state, await at.credit(doubted)) == (State.DOUBTED, 1000)
        taken = await at.look(payment, blocks=12)
        assert taken.reversed_at is not None
        assert await at.credit(taken) in (0, 1000)


@pytest.mark.parametrize(
    "says",
    [{"error": "not found"}, {"status": "not_found", "terminalReason": "expired"}],
    ids=["bare", "worded"],
)
async def test_without_a_node_a_relay_that_has_forgotten_takes_nothing_back(
    stacks: LocalStacks, sqlite_store: Store, tmp_path: Path, says: dict[str, str]
) -> None:
    with ForgetfulRelay(stacks.relay_url) as relay:
        async with shop(stacks, sqlite_store, tmp_path, rpc_url=None, facilitator=relay.url) as at:
            payment = await at.buy(await at.pay())
            confirmed = await at.look(payment, blocks=1)
            # All that a relay knows has been said: it is not asked for ever.
            assert (confirmed.state, confirmed.look_at) == (State.CONFIRMED, None)
            relay.says = says
            at.clock.ahead += timedelta(days=2)
            after = await at.look(payment, times=3)
            assert (after.state, await at.credit(after)) == (State.CONFIRMED, 1000)


async def test_without_a_node_what_a_relay_has_forgotten_is_neither_sent_again_nor_taken_back(
    stacks: LocalStacks, sqlite_store: Store, tmp_path: Path
) -> None:
    with ForgetfulRelay(stacks.relay_url) as relay:
        async with shop(stacks, sqlite_store, tmp_path, rpc_url=None, facilitator=relay.url) as at:
            payment = await at.buy(await at.pay())
            assert payment.state is State.MEMPOOL
            relay.says = {"error": "not found"}
            at.clock.ahead += timedelta(days=2)
            sent = len(stacks.relay.desk.broadcasts)
            after = await at.look(payment, times=3)
            assert (after.state, await at.credit(after)) == (State.MEMPOOL, 1000)
            assert len(stacks.relay.desk.broadcasts) == sent
            # Seldom, and not for ever.
            assert after.look_at is not None
            assert after.look_at - at.clock.now() <= timedelta(hours=1)
            at.clock.ahead += timedelta(days=30)
            assert (await at.look(payment)).look_at is None


async def test_a_transfer_of_long_ago_is_no_payment_now(
    stacks: LocalStacks, sqlite_store: Store, tmp_path: Path
) -> None:
    """Signed Stacks transactions do not age; the one that is presented was mined for something else."""
    async with shop(stacks, sqlite_store, tmp_path) as at:
        payload = await at.pay()
        way = next(iter(at.x402.ways))
        assert (await way.facilitator.settle(payload, payload.accepted)).success
        stacks.mine()
        at.clock.ahead = timedelta(hours=2)
        offer = (await at.x402.offers.make(1000))[0]
        with pytest.raises(PaymentRefused):
            await at.buy(payload.model_copy(update={"accepted": offer}))
