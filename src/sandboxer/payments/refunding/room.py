"""The hot wallet, opened: a loop for each coin that has a cap. Without one, refunds wait for the operator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.tasks import own_tasks
from sandboxer.payments.chains.addresses import network_of
from sandboxer.payments.chains.configuration import ChainPlan, Source
from sandboxer.payments.chains.contract import Chain
from sandboxer.payments.chains.derivation import Script, read_account_key
from sandboxer.payments.invoices.records import InvoicePolicy
from sandboxer.payments.refunding.config import HotWalletPlan
from sandboxer.payments.refunding.hot_wallet import HotWallet
from sandboxer.payments.wallet.agent import AgentWallet, open_wallet
from sandboxer.payments.wallet.opening import open_spender
from sandboxer.store.engine import Store


@asynccontextmanager
async def open_hot_wallet(
    plan: HotWalletPlan | None,
    store: Store,
    clock: Clock,
    *,
    chains: Mapping[str, Chain],
    plans: Sequence[ChainPlan],
    policy: InvoicePolicy,
) -> AsyncIterator[None]:
    """Raises InvalidRequest, NotFound or Forbidden for a wallet that is another's, missing or shut."""
    if plan is None:
        yield
        return
    wallet = await asyncio.to_thread(_open, plan)
    spent_here = [each for each in plans if each.code in plan.caps]
    for each in spent_here:
        check_is_ours(wallet, each)
    async with AsyncExitStack() as closing:
        payers = [
            HotWallet(
                chains[each.code],
                await closing.enter_async_context(open_spender(wallet, each)),
                wallet,
                store,
                clock,
                confirmations=each.confirmations,
                poll=timedelta(seconds=policy.poll_s),
            )
            for each in spent_here
        ]
        loops = await closing.enter_async_context(own_tasks())
        for each, payer in zip(spent_here, payers, strict=True):
            loops.start(payer.run(), name=f"refunds in {each.code}")
        yield


def check_is_ours(wallet: AgentWallet, plan: ChainPlan) -> None:
    """A wallet that does not own the invoices' addresses could never pay a refund. Monero's server knows."""
    if plan.source is Source.WALLET_RPC or plan.xpub is None:
        return
    script = Script(plan.script) if plan.script else None
    handed_out = read_account_key(plan.xpub, network_of(plan.code, plan.network), script)
    own = wallet.seed.account(plan.code, plan.network)
    if handed_out.address(0) != own.address(0):
        raise InvalidRequest(
            field="hot_wallet",
            why=f"the xpub of {plan.code} is not of this wallet's account; its own is {own.xpub()}",
        )


def _open(plan: HotWalletPlan) -> AgentWallet:
    """The caps of the settings are the ones that hold, and are kept in the file beside what was spent."""
    wallet = open_wallet(plan.file, _password(plan.password_file))
    for code, cap in plan.caps.items():
        if wallet.caps.get(code) != cap:
            wallet.set_cap(code, cap)
    return wallet


def _password(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = f"{path} cannot be read: {type(error).__name__}"
        raise InvalidRequest(field="hot_wallet", why=why) from None
