"""A hot wallet pays refunds within caps, from the very outputs that they return.

One loop per coin that has a cap takes queued refunds: it signs, records, broadcasts and follows them. Only
one transaction is ever signed for an output. It is in the database before it is broadcast, so after a crash
the very same one goes out again. What the wallet may not or cannot send stays in the queue for the operator,
with the reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import (
    ChainUnavailable,
    Conflict,
    IllegalTransition,
    InvalidRequest,
    SandboxerError,
)
from sandboxer.kernel.tasks import own_tasks
from sandboxer.payments.chains.addresses import network_of
from sandboxer.payments.chains.bitcoin import Script, read_account_key
from sandboxer.payments.chains.configuration import ChainPlan, HotWalletPlan, Source
from sandboxer.payments.chains.contract import Chain, Deposit
from sandboxer.payments.invoices import refunds, repository
from sandboxer.payments.invoices.reconciler import PollingReconciler
from sandboxer.payments.invoices.records import Invoice, InvoicePolicy, Refund, RefundState
from sandboxer.payments.wallet.agent import AgentWallet, Preparing, open_spender, open_wallet
from sandboxer.payments.wallet.spenders import Prepared
from sandboxer.store.engine import Store

log = logging.getLogger(__name__)
ACTOR = "system:hot_wallet"
# A refund that cannot go now is tried again after so long, twice as long each time.
SHORTEST_PAUSE = timedelta(minutes=1)
LONGEST_PAUSE = timedelta(hours=1)
# How long a confirmed refund is still looked at: its block may lose.
FOLLOWED_FOR = timedelta(days=1)
_WAITING = (RefundState.QUEUED, RefundState.SENDING)


class HotWallet(PollingReconciler):
    def __init__(
        self,
        chain: Chain,
        spender: Preparing,
        wallet: AgentWallet,
        store: Store,
        clock: Clock,
        *,
        confirmations: int,
        poll: timedelta,
    ) -> None:
        super().__init__(repository.refunds_topic(chain.code), store, clock)
        self._chain = chain
        self._spender = spender
        self._wallet = wallet
        self._confirmations = confirmations
        self._pause = poll
        # When each refund that could not go is tried again, and how often it was.
        self._later: dict[str, tuple[datetime, int]] = {}

    async def _poll(self) -> timedelta | None:
        return self._pause if await self.look() else None

    async def look(self) -> int:
        """Take one step for every refund that is due. Returns how many are not finished."""
        now = self.clock.now()
        found = await self.store.read(
            lambda conn: refunds.unfinished_refunds(conn, self._chain.code, since=now - FOLLOWED_FOR)
        )
        known = {refund.id for refund in found}
        self._later = {id: when for id, when in self._later.items() if id in known}
        due = [refund for refund in found if refund.id not in self._later or self._later[refund.id][0] <= now]
        for place, refund in enumerate(due):
            try:
                if not place:
                    # A node of another chain is not believed, least of all that it refuses a refund.
                    await self._chain.tip()
                await self._step(refund)
                self._later.pop(refund.id, None)
            except ChainUnavailable as error:
                log.warning("refunds in %s wait: %s", self._chain.code, error)
                await self._hold_all(due[place:])
                break
            except IllegalTransition:
                # Withdrawn, or sent by the operator, since we read it.
                continue
            except SandboxerError as error:
                await self._put_off(refund, str(error.facts.get("why") or error))
        return len(found)

    async def _step(self, refund: Refund) -> None:
        match refund.state:
            case RefundState.QUEUED:
                await self._send(await self._sign(refund))
            case RefundState.SENDING:
                await self._send(refund)
            case RefundState.SENT:
                await self._follow(refund)
            case RefundState.CONFIRMED:
                if not await self._spender.depth(_prepared(refund).txid):
                    await self._record(refunds.unconfirm_refund, refund)

    async def _sign(self, refund: Refund) -> Refund:
        """Sign a refund within the caps and record it. Raises Forbidden above them."""
        before = await self.store.read(lambda conn: refunds.signed_before(conn, refund))
        prepared = await self._prepare(refund) if before is None else _prepared(before)
        now = self.clock.now()
        # By the output: however often we come here, it counts once. Written to disk, so not on the loop.
        await asyncio.to_thread(
            self._wallet.charge,
            f"refund:{refund.txid}:{refund.output}",
            self._chain.code,
            refund.amount + prepared.fee,
            now=now,
        )
        return await self.store.write(
            lambda conn: refunds.begin_refund(
                conn,
                refund.id,
                txid=prepared.txid,
                raw=prepared.raw,
                fee=prepared.fee,
                actor=ACTOR,
                now=now,
            )
        )

    async def _prepare(self, refund: Refund) -> Prepared:
        invoice = await self.store.read(lambda conn: repository.find(conn, refund.invoice))
        deposit = await self._deposit(refund, invoice)
        self._spender.learn(invoice.index)
        return await self._spender.prepare(refund.address, refund.amount, spend=deposit)

    async def _deposit(self, refund: Refund, invoice: Invoice) -> Deposit:
        for deposit in await self._chain.deposits([invoice.address]):
            is_it = (deposit.txid, deposit.output) == (refund.txid, refund.output)
            is_money = deposit.unlocked and not deposit.conflicted
            if is_it and is_money and deposit.confirmations >= invoice.confirmations:
                return deposit
        raise Conflict(why="the payment it returns does not lie deep enough in the chain now")

    async def _send(self, refund: Refund) -> None:
        prepared = _prepared(refund)
        # Known already after a crash or a lost answer; some nodes refuse what they have.
        if await self._spender.depth(prepared.txid) is None:
            try:
                await self._spender.broadcast(prepared)
            except Conflict as error:
                if await self._spender.depth(prepared.txid) is None:
                    await self._record(refunds.give_up_refund, refund, str(error.facts.get("why")))
                    raise
        await self._record(refunds.mark_refund_sent, refund, prepared.txid)

    async def _follow(self, refund: Refund) -> None:
        prepared = _prepared(refund)
        if (depth := await self._spender.depth(prepared.txid)) is None:
            # Dropped by the network. If the payment it spends is gone, this is refused, and the watcher of
            # its invoice withdraws it.
            await self._spender.broadcast(prepared)
            return
        if depth >= self._confirmations:
            await self._record(refunds.confirm_refund, refund)

    async def _record(self, step: Callable[..., Refund], refund: Refund, *facts: str) -> None:
        now = self.clock.now()
        await self.store.write(lambda conn: step(conn, refund.id, *facts, actor=ACTOR, now=now))

    async def _put_off(self, refund: Refund, why: str) -> None:
        now = self.clock.now()
        tries = self._later[refund.id][1] if refund.id in self._later else 0
        self._later[refund.id] = (now + min(LONGEST_PAUSE, SHORTEST_PAUSE * 2 ** min(tries, 10)), tries + 1)
        if await self.store.write(lambda conn: refunds.hold_refund(conn, refund.id, why, now=now)):
            log.warning("refund %s waits: %s", refund.id, why)

    async def _hold_all(self, waiting: Sequence[Refund]) -> None:
        """Note on each refund that the node is down; it is tried again at the next look."""
        why, now = f"the {self._chain.code} node cannot be relied on right now", self.clock.now()
        ids = [refund.id for refund in waiting if refund.state in _WAITING and refund.held != why]
        if ids:
            await self.store.write(lambda conn: [refunds.hold_refund(conn, id, why, now=now) for id in ids])


def _prepared(refund: Refund) -> Prepared:
    assert refund.prepared_txid is not None
    assert refund.prepared is not None, "they are written down together"
    return Prepared(refund.prepared_txid, refund.prepared, refund.fee or 0)


@asynccontextmanager
async def open_hot_wallet(
    plan: HotWalletPlan,
    store: Store,
    clock: Clock,
    *,
    chains: Mapping[str, Chain],
    plans: Sequence[ChainPlan],
    policy: InvoicePolicy,
) -> AsyncIterator[None]:
    """Raises InvalidRequest, NotFound or Forbidden for a wallet that is another's, missing or shut."""
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
    """Raise InvalidRequest if the wallet does not own the invoices' addresses and could pay no refund."""
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
    """Open the wallet file, and write the caps of the settings into it."""
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
