"""Opens what gift cards need: the use cases, a place to redeem, and the loop behind approvals.

The one loop of gift cards: sends the mails that are due, and ends what nobody answered in time.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from sandboxer.identity.key_life import KeyLife
from sandboxer.identity.seal import Seal
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import SandboxerError, Unavailable
from sandboxer.kernel.tasks import own_tasks
from sandboxer.money.pricing import TierPrices
from sandboxer.observe.webhooks.use_cases import Webhooks
from sandboxer.payments.gift_cards import mail, repository
from sandboxer.payments.gift_cards.approval import Asking
from sandboxer.payments.gift_cards.codes import WORK_INFO, Attempts
from sandboxer.payments.gift_cards.mail import Mail, check_address
from sandboxer.payments.gift_cards.records import POLICY, GiftPolicy, MailServer, Redemption
from sandboxer.payments.gift_cards.redemption import Redeeming
from sandboxer.payments.gift_cards.use_cases import GiftCardUseCases
from sandboxer.payments.invoices.use_cases import InvoiceUseCases
from sandboxer.payments.oracle.rates import Rates
from sandboxer.store.engine import Store

log = logging.getLogger(__name__)
# A wall clock can be set forward while we sleep.
LONGEST_SLEEP = timedelta(seconds=30)
RETRY = timedelta(seconds=1)
# Mails in a row before looking at the rest.
IN_A_ROW = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GiftCards:
    use_cases: GiftCardUseCases
    redeeming: Redeeming
    asking: Asking


@asynccontextmanager
async def open_gift_cards(
    store: Store,
    clock: Clock,
    *,
    seal: Seal,
    rates: Rates,
    tiers: TierPrices,
    key_life: KeyLife,
    invoices: InvoiceUseCases,
    webhooks: Webhooks,
    url: str,
    policy: GiftPolicy = POLICY,
    mail: MailServer | None = None,
) -> AsyncIterator[GiftCards]:
    """`invoices` must sell `issuing.GiftCardGoods`."""
    if mail is not None:
        check_address(mail.sender, field="smtp_from")
    asking = Asking(seal, webhooks, url)
    attempts = Attempts(seal.derive(WORK_INFO), policy)
    redeeming = Redeeming(store, clock, seal, rates, tiers, key_life, asking, policy, attempts)
    use_cases = GiftCardUseCases(
        store, clock, seal, rates, invoices, webhooks, policy, has_mail=mail is not None
    )
    async with own_tasks() as loops:
        loops.start(Upkeep(store, clock, redeeming, asking, mail).run(), name="gift cards")
        yield GiftCards(use_cases=use_cases, redeeming=redeeming, asking=asking)


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
            moments.append(await self._store.read(mail.next_due))
        await self._sleep(min((moment for moment in moments if moment is not None), default=None))

    async def _send_next(self, server: MailServer) -> bool:
        now = self._clock.now()
        found = await self._store.read(lambda conn: mail.first_due(conn, now=now))
        if found is None:
            return False
        due, one = found
        if not mail.is_wanted(one, now=now):
            await self._store.write(lambda conn: mail.withdraw(conn, due))
            return True
        outcome = await self._try(server, due, one)
        after, chance = self._clock.now(), random.random()

        def conclude(conn: Connection) -> None:
            mail.conclude(conn, due, outcome.why_not, is_final=outcome.is_final, now=after, chance=chance)

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
        if repository.TOPIC in topics:
            self._changed.set()
