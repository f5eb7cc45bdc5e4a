"""A wallet and a node, brought together: something that can pay."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from sandboxer.kernel.clock import Clock
from sandboxer.payments.chains.configuration import ChainPlan, Source
from sandboxer.payments.chains.monero import MoneroWallet
from sandboxer.payments.chains.opening import login_of, open_chain
from sandboxer.payments.wallet.agent import AgentWallet, CappedSpender, Preparing
from sandboxer.payments.wallet.monero import MoneroSpender
from sandboxer.payments.wallet.outputs import OutputSpender


@asynccontextmanager
async def open_purse(wallet: AgentWallet, plan: ChainPlan, clock: Clock) -> AsyncIterator[CappedSpender]:
    """Spends from the wallet's account on the plan's chain, within the wallet's caps."""
    async with open_spender(wallet, plan) as spender:
        yield CappedSpender(wallet, spender, clock)


@asynccontextmanager
async def open_spender(wallet: AgentWallet, plan: ChainPlan) -> AsyncIterator[Preparing]:
    """Without caps: who asks for this counts for itself.

    The plan's `xpub` is not asked: the wallet's own seed decides. Monero's keys are in its wallet server;
    only the caps are ours there.
    """
    if plan.source is Source.WALLET_RPC:
        user, password = login_of(plan)
        monero = MoneroSpender(
            plan.url, user=user or None, password=password, account=plan.account, network=plan.network
        )
        try:
            yield monero
        finally:
            await monero.close()
        return
    key = wallet.seed.account(plan.code, plan.network)
    chain = open_chain(replace(plan, xpub=key.xpub(), script=key.kind.value))
    assert not isinstance(chain, MoneroWallet), "its source is a wallet server"
    try:
        yield OutputSpender(chain, key)
    finally:
        await chain.close()
