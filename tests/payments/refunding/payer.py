"""A shop on Litecoin whose addresses are a hot wallet's, and that wallet. A process of its own may be killed:

python -m tests.payments.refunding.payer DATABASE WALLET RPC_URL STEP
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sandboxer.kernel.clock import Clock
from sandboxer.payments.chains.addresses import network_of
from sandboxer.payments.chains.bitcoin import read_account_key
from sandboxer.payments.chains.contract import Chain, Deposit
from sandboxer.payments.chains.core_rpc import CoreRpc
from sandboxer.payments.hot_wallet import HotWallet
from sandboxer.payments.invoices.records import Refund
from sandboxer.payments.wallet.agent import AgentWallet, Preparing, open_wallet
from sandboxer.payments.wallet.spenders import OutputSpender, Prepared
from sandboxer.store.engine import Store, open_store
from tests.support.payments.shop import Clock as TestClock
from tests.support.payments.shop import Shop, open_shop

PASSWORD = "correct horse"
USER, RPC_PASSWORD = "sandboxer", "regtest"
LTC = 100_000_000


@dataclass
class Payer:
    shop: Shop
    wallet: AgentWallet
    spender: OutputSpender
    hot: HotWallet

    def again(self) -> HotWallet:
        """As after a restart."""
        return hot_wallet(self.wallet, self.shop.chain, self.shop.store, self.shop.clock, self.spender)

    async def refund(self) -> Refund:
        *_, newest = await self.shop.refunds()
        assert isinstance(newest, Refund)
        return newest


def chain_of(wallet: AgentWallet, url: str) -> CoreRpc:
    network = network_of("LTC", "regtest")
    xpub = wallet.seed.account("LTC", "regtest").xpub()
    return CoreRpc(network, url, user=USER, password=RPC_PASSWORD, keys=read_account_key(xpub, network))


def hot_wallet(
    wallet: AgentWallet, chain: Chain, store: Store, clock: Clock, spender: Preparing
) -> HotWallet:
    return HotWallet(chain, spender, wallet, store, clock, confirmations=2, poll=timedelta(seconds=0.2))


@asynccontextmanager
async def open_payer(store: Store, wallet: AgentWallet, url: str) -> AsyncIterator[Payer]:
    chain = chain_of(wallet, url)
    shop = open_shop(store, chain)
    spender = OutputSpender(chain, wallet.seed.account("LTC", "regtest"))
    try:
        yield Payer(shop, wallet, spender, hot_wallet(wallet, chain, store, shop.clock, spender))
    finally:
        await chain.close()


class Killed:
    """A spender whose process dies, without a word, just before or after one of its acts."""

    code = "LTC"

    def __init__(self, spender: OutputSpender, step: str) -> None:
        self._spender = spender
        self._step = step

    def _die_at(self, step: str) -> None:
        if step == self._step:
            os.kill(os.getpid(), signal.SIGKILL)

    async def prepare(self, address: str, amount: int, *, spend: Deposit | None = None) -> Prepared:
        prepared = await self._spender.prepare(address, amount, spend=spend)
        self._die_at("signed")
        return prepared

    async def broadcast(self, prepared: Prepared) -> str:
        self._die_at("recorded")
        txid = await self._spender.broadcast(prepared)
        self._die_at("broadcast")
        return txid

    async def depth(self, txid: str) -> int | None:
        return await self._spender.depth(txid)

    async def balance(self) -> int:
        return await self._spender.balance()

    def learn(self, index: int) -> None:
        self._spender.learn(index)


class DyingWallet(AgentWallet):
    """Dies once it has counted the payment."""

    def charge(self, *args: object, **kwargs: object) -> None:
        charge: Callable[..., None] = super().charge
        charge(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)


async def main(database: str, file: str, url: str, step: str) -> None:
    wallet = open_wallet(Path(file), PASSWORD)
    if step == "charged":
        wallet = DyingWallet(wallet._vault)
    chain = chain_of(wallet, url)
    spender = Killed(OutputSpender(chain, wallet.seed.account("LTC", "regtest")), step)
    store = open_store(database)
    await hot_wallet(wallet, chain, store, TestClock(), spender).look()
    raise SystemExit("it lived")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
