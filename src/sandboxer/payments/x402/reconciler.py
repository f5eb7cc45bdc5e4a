"""Follows every payment that is not over until its chain says what became of it. One loop for each chain: a
slow or silent one keeps only its own payments waiting.

Nothing is ever paid twice here: a payment that was perhaps never broadcast is handed to the settler again as
it is, and its own nonce lets it move money once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection

from sandboxer.kernel.clock import Clock
from sandboxer.payments import records, settlement
from sandboxer.payments.lifecycle import Signal, State
from sandboxer.payments.records import Networks, Payment
from sandboxer.payments.x402.checkout import Checkout
from sandboxer.payments.x402.ways import Fate
from sandboxer.store.engine import Store

log = logging.getLogger(__name__)
# Looked at again by then at the latest, should nothing wake the loop.
IDLE = timedelta(minutes=1)
RETRY = timedelta(seconds=10)
_FAR = datetime.max.replace(tzinfo=UTC)


class Reconciler:
    def __init__(self, checkout: Checkout, store: Store, clock: Clock) -> None:
        self._checkout = checkout
        self._store = store
        self._clock = clock
        known = frozenset(way.network for way in checkout.ways)
        # Those of a chain that is no longer set up are looked at too, and say why nothing comes of it.
        lines = [*(Networks(frozenset({name})) for name in sorted(known)), Networks(known, are_meant=False)]
        self._stirred = {line: asyncio.Event() for line in lines}

    async def adopt(self) -> None:
        """At the start: what a request was at work on belongs to nobody now, and is looked at at once."""
        now = self._clock.now()

        def write(conn: Connection) -> None:
            for payment in records.interrupted(conn):
                if payment.state is State.BROADCASTING:
                    records.move(conn, payment, Signal.LOSE, reason="interrupted", now=now, look_at=now)
                else:
                    settlement.take_back(conn, payment, reason="interrupted", now=now)
                    records.note(conn, payment.id, now=now, look_at=now, looked=True)

        await self._store.write(write)

    async def run(self) -> None:
        leave: Callable[[], None] = self._store.on_commit(self._hear)
        try:
            async with asyncio.TaskGroup() as group:
                for line, stirred in self._stirred.items():
                    group.create_task(self._follow(line, stirred))
        finally:
            leave()

    async def round(self) -> None:
        """Look at all that are due, once."""
        async with asyncio.TaskGroup() as group:
            for line in self._stirred:
                group.create_task(self._look_at_due(line))

    async def _follow(self, line: Networks, stirred: asyncio.Event) -> None:
        while True:
            stirred.clear()
            await self._look_at_due(line)
            await self._rest(line, stirred)

    async def _look_at_due(self, line: Networks) -> None:
        now = self._clock.now()
        for payment in await self._store.read(lambda conn: records.due(conn, line, now=now)):
            if self._checkout.is_live(payment.id):
                await self._later(payment, RETRY)
                continue
            try:
                await self.attend(payment)
            except Exception:
                # An outermost loop: one payment's trouble must not keep the others waiting.
                log.exception("payment %s could not be followed", payment.id)
                await self._later(payment, RETRY)

    async def attend(self, payment: Payment) -> Payment:
        sighting = await self._checkout.look(payment)
        after = await self._checkout.see(payment, sighting)
        if sighting.fate is Fate.UNSEEN and after.state is State.SETTLEMENT_PENDING:
            # Perhaps nobody ever sent it. Its nonce sees to it that it counts once.
            return await self._checkout.settle(after)
        return after

    async def _later(self, payment: Payment, by: timedelta) -> None:
        now = self._clock.now()
        await self._store.write(
            lambda conn: records.note(conn, payment.id, now=now, look_at=now + by, looked=True)
        )

    async def _rest(self, line: Networks, stirred: asyncio.Event) -> None:
        moment = await self._store.read(lambda conn: records.next_look(conn, line)) or _FAR
        pause = min(max(moment - self._clock.now(), timedelta()), IDLE)
        if pause <= timedelta():
            return
        async with asyncio.TaskGroup() as group:
            asleep = group.create_task(self._clock.sleep(pause))
            awake = group.create_task(stirred.wait())
            await asyncio.wait((asleep, awake), return_when=asyncio.FIRST_COMPLETED)
            asleep.cancel()
            awake.cancel()

    def _hear(self, topics: frozenset[str]) -> None:
        if records.DUE_TOPIC in topics:
            for stirred in self._stirred.values():
                stirred.set()
