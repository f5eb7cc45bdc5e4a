"""The one loop of gift cards: sends the mails that are due, and ends what nobody answered in time."""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import datetime, timedelta

from sqlalchemy import Connection

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import SandboxerError, Unavailable
from sandboxer.payments.gift_cards import book
from sandboxer.payments.gift_cards.approval import mail, outbox
from sandboxer.payments.gift_cards.approval.asking import Asking
from sandboxer.payments.gift_cards.approval.outbox import Mail
from sandboxer.payments.gift_cards.config import MailServer
from sandboxer.payments.gift_cards.records import Redemption
from sandboxer.payments.gift_cards.redeeming import Redeeming
from sandboxer.store.engine import Store

log = logging.getLogger(__name__)
# A wall clock can be set forward while we sleep.
LONGEST_SLEEP = timedelta(seconds=30)
RETRY = timedelta(seconds=1)
# Mails in a row before looking at the rest.
IN_A_ROW = 20


class Upkeep:
    """Runs until cancelled. A mail that was on its way then is sent again: at least once."""

    def __init__(
        self, store: Store, clock: Clock, redeeming: Redeeming, asking: Asking, server: MailServer | None
    ) -> None:
        self._store = store
        self._clock = clock
        self._redeeming = redeeming
        self._asking = asking
        self._server = server
        self._changed = asyncio.Event()

    async def run(self) -> None:
        leave = self._store.on_commit(self._hear)
        try:
            while True:
                try:
                    await self._round()
                except Unavailable as error:
                    log.warning("gift cards wait for the database: %s", error)
                    await self._clock.sleep(RETRY)
        finally:
            leave()

    async def _round(self) -> None:
        # Cleared before reading: a commit that the read misses sets it again.
        self._changed.clear()
        moments = [await self._redeeming.expire_overdue()]
        if self._server is not None:
            for _ in range(IN_A_ROW):
                if not await self._send_next(self._server):
                    break
            moments.append(await self._store.read(outbox.next_due))
        await self._sleep(min((moment for moment in moments if moment is not None), default=None))

    async def _send_next(self, server: MailServer) -> bool:
        now = self._clock.now()
        found = await self._store.read(lambda conn: outbox.first_due(conn, now=now))
        if found is None:
            return False
        due, one = found
        if not outbox.is_wanted(one, now=now):
            await self._store.write(lambda conn: outbox.withdraw(conn, due))
            return True
        outcome = await self._try(server, due, one)
        after, chance = self._clock.now(), random.random()

        def conclude(conn: Connection) -> None:
            outbox.conclude(conn, due, outcome.why_not, is_final=outcome.is_final, now=after, chance=chance)

        await self._store.write(conclude)
        return True

    async def _try(self, server: MailServer, due: Mail, one: Redemption) -> mail.Outcome:
        try:
            message = mail.compose(server, due.address, one, self._asking.link(one))
        except (SandboxerError, ValueError) as error:
            # An address or a sender that no header can hold: each mail must not end the loop.
            return mail.Outcome(f"it cannot be written: {error}", is_final=True)
        outcome = await mail.send(server, message)
        if outcome.why_not is not None:
            log.warning("the mail for %s was not taken: %s", one.id, outcome.why_not)
        return outcome

    async def _sleep(self, until: datetime | None) -> None:
        """Until something changes or is due; without a next moment, as long as it takes."""
        if until is None:
            await self._changed.wait()
            return
        delay = min(max(until - self._clock.now(), timedelta()), LONGEST_SLEEP)
        async with asyncio.TaskGroup() as group:
            asleep = group.create_task(self._clock.sleep(delay))
            changed = group.create_task(self._changed.wait())
            await asyncio.wait((asleep, changed), return_when=asyncio.FIRST_COMPLETED)
            asleep.cancel()
            changed.cancel()

    def _hear(self, topics: frozenset[str]) -> None:
        if book.TOPIC in topics:
            self._changed.set()
