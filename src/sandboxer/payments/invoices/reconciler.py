"""One loop per chain watches the addresses of its invoices and settles what changed.

It asks only while there is something to watch, many addresses at a time, and touches the database only for an
invoice that shows something new. A node that is down or answers nonsense only costs time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import ChainUnavailable, NoRate, SandboxerError
from sandboxer.payments.chains.contract import Chain, Deposit
from sandboxer.payments.invoices import repository
from sandboxer.payments.invoices.policy import Decision, Worth, believed_depth
from sandboxer.payments.invoices.records import DELIVERED, OPEN, Invoice, InvoicePolicy, Settled, State
from sandboxer.payments.invoices.settlement import Look, Settling
from sandboxer.payments.rates import ASSETS, Rates, needs_rate, sats_for_atomic
from sandboxer.store.engine import Store
from sandboxer.store.reconciler import FAR, Reconciler

log = logging.getLogger(__name__)
# Addresses asked for at a time.
BATCH = 500
# How much more seldom delivered and ended invoices are looked at than open ones.
DELIVERED_EVERY = 3
ENDED_EVERY = 60
LONGEST_PAUSE = timedelta(seconds=60)
# That nothing changed is written down this often: after a restart it says since when we looked away.
NOTE_EVERY = timedelta(seconds=30)

# What a look shows, as far as a decision could depend on it.
Sign = tuple[tuple[object, ...], ...]


@dataclass(slots=True)
class Watched:
    id: str
    address: str
    state: State
    confirmations: int
    expires_at: datetime
    confirm_by: datetime
    watch_until: datetime
    due: datetime
    sign: Sign | None = None
    is_restless: bool = False
    # Every credited output lies too deep for a reorg.
    is_buried: bool = True
    # The last look and the one before. A deadline asks for two looks after it: the first tells what came in
    # time, the second that nothing more did.
    looked_at: datetime | None = None
    looked_before: datetime | None = None

    def note(self, now: datetime, every: timedelta) -> None:
        self.looked_before, self.looked_at = self.looked_at, now
        self.due = now + every


class PollingReconciler(Reconciler):
    """Polls a chain: at once when `topic` is announced, else after the pause that `_poll` returned."""

    def __init__(self, topic: str, store: Store, clock: Clock) -> None:
        super().__init__(topic, store, clock)
        self._topic = topic
        self._quiet_until: datetime | None = None

    async def _poll(self) -> timedelta | None:
        """Looks once at all that is due; returns how long to wait. None: until there is something new."""
        raise NotImplementedError

    def poll_soon(self) -> None:
        self._quiet_until = None
        self.wake()

    async def _round(self) -> datetime:
        if self._quiet_until is not None and self.clock.now() < self._quiet_until:
            return self._quiet_until
        pause = await self._poll()
        moment = FAR if pause is None else self.clock.now() + pause
        self._quiet_until = None if self._awake.is_set() else moment
        return moment

    def _hear(self, topics: frozenset[str]) -> None:
        if self._topic in topics:
            self.poll_soon()


class Watcher(PollingReconciler):
    def __init__(
        self,
        chain: Chain,
        store: Store,
        clock: Clock,
        rates: Rates,
        settling: Settling,
        policy: InvoicePolicy,
    ) -> None:
        super().__init__(repository.topic(chain.code), store, clock)
        self._chain = chain
        self._rates = rates
        self._settling = settling
        self._policy = policy
        self._pause = timedelta(seconds=policy.poll_s)
        self._watched: dict[str, Watched] = {}
        self._loaded_until: datetime | None = None
        self._tip = 0
        self._since: datetime | None = None
        self._noted_tip = 0
        self._noted_at: datetime | None = None
        self._failures = 0

    def look_again(self, invoice: Invoice) -> None:
        """Look at an invoice as soon as possible, as if nothing were known of it."""
        self._watched[invoice.id] = _watch(invoice, self.clock.now())
        self.poll_soon()

    async def _poll(self) -> timedelta | None:
        try:
            await self.look()
        except ChainUnavailable as error:
            self._failures += 1
            pause = min(LONGEST_PAUSE, self._pause * (1 << min(self._failures, 10)))
            log.warning("%s: %s; again in %s s", self._chain.code, error, pause.total_seconds())
            return pause
        self._failures = 0
        return self._pause if self._watched else None

    async def look(self) -> None:
        """One look at every address that is due. Raises ChainUnavailable; what was settled before stays."""
        await self._load()
        if not self._watched:
            return
        now = self.clock.now()
        # Before the deposits: a block that comes in between makes them look deeper, never too deep.
        tip = await self._checked_tip()
        due = sorted((w for w in self._watched.values() if w.due <= now), key=lambda w: w.due)
        since = self._since or datetime.min.replace(tzinfo=now.tzinfo)
        for start in range(0, len(due), BATCH):
            await self._look_at_all(due[start : start + BATCH], tip, now, since)
        self._tip, self._since = tip, now
        await self._note(tip, now)
        await self._forget(now)

    async def _look_at_all(self, batch: Sequence[Watched], tip: int, now: datetime, since: datetime) -> None:
        shown: dict[str, list[Deposit]] = {one.address: [] for one in batch}
        for deposit in await self._chain.deposits(list(shown)):
            if deposit.address in shown:
                shown[deposit.address].append(deposit)
        answered_at = max(now, self.clock.now())
        for one in batch:
            deposits = shown[one.address]
            sign = _sign(one, deposits, tip, self._policy)
            if self._is_news(one, sign, now):
                look = Look(deposits=deposits, tip=tip, now=now, answered_at=answered_at, since=since)
                await self._settle_news(one, look, sign)
            else:
                one.sign = sign
                one.note(now, self._every(one))

    def _is_news(self, one: Watched, sign: Sign, now: datetime) -> bool:
        if one.sign is None:
            # Never looked at by us: what the database knows may have gone. Where nothing was and nothing is,
            # nothing has; so a restart with thousands of them is no work.
            is_bare = one.state is State.EXPIRED or (one.state is State.AWAITING and now < one.expires_at)
            return bool(sign) or not is_bare
        before = one.looked_before or one.looked_at
        passed = any(
            before is not None and before < moment <= now for moment in (one.expires_at, one.confirm_by)
        )
        return sign != one.sign or one.is_restless or passed

    async def _settle_news(self, one: Watched, look: Look, sign: Sign) -> None:
        try:
            invoice, decision = await self._settle(one.id, look)
        except ChainUnavailable:
            raise
        except (SandboxerError, ValueError) as error:
            # One invoice's trouble must not stop all others; nothing of it was written.
            log.exception("invoice %s could not be settled: %s", one.id, error)
            one.due = look.now + LONGEST_PAUSE
            return
        _update(one, invoice, decision, self._policy)
        one.sign = _sign(one, look.deposits, look.tip, self._policy)
        one.note(look.now, self._every(one))

    async def _settle(self, id: str, look: Look) -> tuple[Invoice, Decision]:
        settled = await self.store.write(lambda conn: self._settling.settle(conn, id, look))
        if not settled[1].needs_rate or (worth := await self._worth()) is None:
            return settled
        known = replace(look, worth=worth)
        return await self.store.write(lambda conn: self._settling.settle(conn, id, known))

    async def _worth(self) -> Worth | None:
        asset = ASSETS[self._chain.code]
        if not needs_rate(asset.code):
            return lambda amount: sats_for_atomic(amount, asset, None, None)
        try:
            rate, btc = await self._rates.usd(asset.code), await self._rates.usd("BTC")
        except NoRate:
            return None
        return lambda amount: sats_for_atomic(amount, asset, rate, btc)

    async def _checked_tip(self) -> int:
        if (tip := await self._chain.tip()) < self._tip - self._policy.reorg_depth:
            # A node that starts anew would show every payment as gone.
            why = f"it is at height {tip} and was at {self._tip}: not synchronised, or another chain"
            raise ChainUnavailable(chain=self._chain.code, why=why)
        return tip

    async def _note(self, tip: int, now: datetime) -> None:
        if tip == self._noted_tip and self._noted_at is not None and now < self._noted_at + NOTE_EVERY:
            return
        await self.store.write(lambda conn: repository.note_look(conn, self._chain.code, tip, now))
        self._noted_tip, self._noted_at = tip, now

    async def _load(self) -> None:
        """Load the invoices created since the last time; at first, all of them."""
        now = self.clock.now()
        if (since := self._loaded_until) is None:
            self._tip, self._since = await self.store.read(
                lambda conn: repository.last_look(conn, self._chain.code)
            )
        for invoice in await self.store.read(
            lambda conn: repository.watched(conn, self._chain.code, since=since)
        ):
            if invoice.id not in self._watched:
                self._watched[invoice.id] = _watch(invoice, now)
        # A clock that steps a little must not hide an invoice.
        self._loaded_until = now - timedelta(minutes=2)
        for one in self._watched.values():
            if one.is_restless:
                one.due = now

    async def _forget(self, now: datetime) -> None:
        over = [w.id for w in self._watched.values() if now >= w.watch_until and self._is_final(w)]
        if over:
            await self.store.write(lambda conn: repository.end_watch(conn, over))
            for id in over:
                del self._watched[id]

    def _is_final(self, one: Watched) -> bool:
        return one.sign is not None and one.is_buried and not one.is_restless and one.state not in OPEN

    def _every(self, one: Watched) -> timedelta:
        if one.is_restless or one.state in OPEN or one.state in (State.LATE, State.UNDERPAID, State.REORGED):
            return timedelta(0)
        return self._pause * (DELIVERED_EVERY if not one.is_buried else ENDED_EVERY)


def _watch(invoice: Invoice, now: datetime) -> Watched:
    return Watched(
        id=invoice.id,
        address=invoice.address,
        state=invoice.state,
        confirmations=invoice.confirmations,
        expires_at=invoice.expires_at,
        confirm_by=invoice.confirm_by,
        watch_until=invoice.watch_until or now,
        due=now,
    )


def _update(one: Watched, invoice: Invoice, decision: Decision, policy: InvoicePolicy) -> None:
    one.state = invoice.state
    one.confirm_by = invoice.confirm_by
    one.is_restless = decision.is_restless
    one.is_buried = all(
        output.depth >= policy.reorg_depth
        for output in decision.outputs
        if output.settled in (Settled.CREDITED, Settled.KEPT)
    )


def _sign(one: Watched, deposits: Iterable[Deposit], tip: int, policy: InvoicePolicy) -> Sign:
    """Return what a decision depends on in these deposits; if it is unchanged, nothing needs to be settled.

    Depth beyond what is needed does not count, until it is too deep for a reorg.
    """
    enough = 1 if one.state in DELIVERED else one.confirmations
    depths = [(deposit, believed_depth(deposit, tip)) for deposit in deposits]
    return tuple(
        sorted(
            (
                d.id,
                min(depth, enough),
                depth >= policy.reorg_depth,
                d.unlocked,
                d.conflicted,
            )
            for d, depth in depths
        )
    )
