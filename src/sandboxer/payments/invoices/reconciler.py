"""One loop per chain watches the addresses of its invoices and settles what changed.

It asks only while there is something to watch, many addresses at a time, and touches the database only for an
invoice that shows something new. A node that is down or answers nonsense only costs time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import ChainUnavailable, NoRate, SandboxerError
from sandboxer.payments.assets import ASSETS
from sandboxer.payments.chains.contract import Chain, Deposit
from sandboxer.payments.invoices import repository
from sandboxer.payments.invoices.lifecycle import DELIVERED, OPEN, State
from sandboxer.payments.invoices.policy import Worth, believed_depth
from sandboxer.payments.invoices.records import Invoice, InvoicePolicy, Settled
from sandboxer.payments.invoices.settlement import Look, Settlement, Settling
from sandboxer.payments.oracle.rates import Rates, needs_rate, sats_for_atomic
from sandboxer.store.engine import Store

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


class Watcher:
    def __init__(
        self,
        chain: Chain,
        store: Store,
        clock: Clock,
        rates: Rates,
        settling: Settling,
        policy: InvoicePolicy,
    ) -> None:
        self._chain = chain
        self._store = store
        self._clock = clock
        self._rates = rates
        self._settling = settling
        self._policy = policy
        self._poll = timedelta(seconds=policy.poll_s)
        self._watched: dict[str, Watched] = {}
        self._loaded_until: datetime | None = None
        self._tip = 0
        self._since: datetime | None = None
        self._noted_tip = 0
        self._noted_at: datetime | None = None
        self._failures = 0
        self._news = asyncio.Event()

    @property
    def watching(self) -> int:
        return len(self._watched)

    async def run(self) -> None:
        topic = repository.topic(self._chain.code)
        leave = self._store.on_commit(lambda topics: self._news.set() if topic in topics else None)
        try:
            while True:
                self._news.clear()
                await self._wait(await self._round())
        finally:
            leave()

    def look_again(self, invoice: Invoice) -> None:
        """Look at an invoice as soon as possible, as if nothing were known of it."""
        self._watched[invoice.id] = _watch(invoice, self._clock.now())
        self._news.set()

    async def _round(self) -> timedelta | None:
        """Look once at all that is due. Returns how long to wait; None: until there is something new."""
        try:
            await self.look()
        except ChainUnavailable as error:
            self._failures += 1
            pause = min(LONGEST_PAUSE, self._poll * (1 << min(self._failures, 10)))
            log.warning("%s: %s; again in %s s", self._chain.code, error, pause.total_seconds())
            return pause
        self._failures = 0
        return self._poll if self._watched else None

    async def look(self) -> None:
        """One look at every address that is due. Raises ChainUnavailable; what was settled before stays."""
        await self._load()
        if not self._watched:
            return
        now = self._clock.now()
        # Before the deposits: a block that comes in between makes them look deeper, never too deep.
        tip = await self._checked_tip()
        due = sorted((w for w in self._watched.values() if w.due <= now), key=lambda w: w.due)
        since = self._since or datetime.min.replace(tzinfo=now.tzinfo)
        for batch in _batches(due, BATCH):
            await self._look_at(batch, tip, now, since)
        self._tip, self._since = tip, now
        await self._note(tip, now)
        await self._forget(now)

    async def _look_at(self, batch: Sequence[Watched], tip: int, now: datetime, since: datetime) -> None:
        shown: dict[str, list[Deposit]] = {one.address: [] for one in batch}
        for deposit in await self._chain.deposits(list(shown)):
            if deposit.address in shown:
                shown[deposit.address].append(deposit)
        for one in batch:
            deposits = shown[one.address]
            sign = _sign(one, deposits, tip, self._policy)
            if self._is_news(one, sign, now):
                await self._attend(one, Look(deposits=deposits, tip=tip, now=now, since=since), sign)
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

    async def _attend(self, one: Watched, look: Look, sign: Sign) -> None:
        try:
            settlement = await self._settle(one.id, look)
        except ChainUnavailable:
            raise
        except (SandboxerError, ValueError) as error:
            # One invoice's trouble must not stop all others; nothing of it was written.
            log.exception("invoice %s could not be settled: %s", one.id, error)
            one.due = look.now + LONGEST_PAUSE
            return
        _update(one, settlement, self._policy)
        one.sign = _sign(one, look.deposits, look.tip, self._policy)
        one.note(look.now, self._every(one))

    async def _settle(self, id: str, look: Look) -> Settlement:
        settled = await self._store.write(lambda conn: self._settling.settle(conn, id, look))
        if not settled.needs_rate:
            return settled
        worth = await self._worth()
        if worth is None:
            return settled
        known = Look(deposits=look.deposits, tip=look.tip, now=look.now, since=look.since, worth=worth)
        return await self._store.write(lambda conn: self._settling.settle(conn, id, known))

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
        tip = await self._chain.tip()
        if tip < self._tip - self._policy.reorg_depth:
            # A node that starts anew would show every payment as gone.
            why = f"it is at height {tip} and was at {self._tip}: not synchronised, or another chain"
            raise ChainUnavailable(chain=self._chain.code, why=why)
        return tip

    async def _note(self, tip: int, now: datetime) -> None:
        if tip == self._noted_tip and self._noted_at is not None and now < self._noted_at + NOTE_EVERY:
            return
        await self._store.write(lambda conn: repository.note_look(conn, self._chain.code, tip, now))
        self._noted_tip, self._noted_at = tip, now

    async def _load(self) -> None:
        """Load the invoices created since the last time; at first, all of them."""
        now = self._clock.now()
        since = self._loaded_until
        if since is None:
            self._tip, self._since = await self._store.read(
                lambda conn: repository.last_look(conn, self._chain.code)
            )
        for invoice in await self._store.read(
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
            await self._store.write(lambda conn: repository.end_watch(conn, over))
            for id in over:
                del self._watched[id]

    def _is_final(self, one: Watched) -> bool:
        return one.sign is not None and one.is_buried and not one.is_restless and one.state not in OPEN

    def _every(self, one: Watched) -> timedelta:
        if one.is_restless or one.state in OPEN or one.state in (State.LATE, State.UNDERPAID, State.REORGED):
            return timedelta(0)
        return self._poll * (DELIVERED_EVERY if not one.is_buried else ENDED_EVERY)

    async def _wait(self, pause: timedelta | None) -> None:
        if pause is None:
            await self._news.wait()
            return
        async with asyncio.TaskGroup() as group:
            asleep = group.create_task(self._clock.sleep(pause))
            awake = group.create_task(self._news.wait())
            await asyncio.wait((asleep, awake), return_when=asyncio.FIRST_COMPLETED)
            asleep.cancel()
            awake.cancel()


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


def _update(one: Watched, settlement: Settlement, policy: InvoicePolicy) -> None:
    one.state = settlement.invoice.state
    one.confirm_by = settlement.invoice.confirm_by
    one.is_restless = settlement.is_restless
    one.is_buried = all(
        output.depth >= policy.reorg_depth
        for output in settlement.outputs
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


def _batches(items: Sequence[Watched], size: int) -> Iterable[Sequence[Watched]]:
    left = iter(items)
    while batch := tuple(islice(left, size)):
        yield batch
