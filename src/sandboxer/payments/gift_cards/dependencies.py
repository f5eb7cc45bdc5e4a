"""Opens what gift cards need: the use cases, a place to redeem, and the loop behind approvals.

The one loop of gift cards: sends the mails that are due, and ends what nobody answered in time.
"""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from sqlalchemy import Connection

from sandboxer.kernel.errors import SandboxerError
from sandboxer.kernel.tasks import own_tasks
from sandboxer.kernel.values import value_class
from sandboxer.payments.gift_cards import approval, repository
from sandboxer.payments.gift_cards.approval import Asking, Mail, Outcome, check_address
from sandboxer.payments.gift_cards.codes import WORK_INFO, Attempts
from sandboxer.payments.gift_cards.records import MailServer, Redemption
from sandboxer.payments.gift_cards.redemption import Redeeming
from sandboxer.payments.gift_cards.use_cases import GiftCardDependencies, GiftCardUseCases
from sandboxer.store.reconciler import FAR, Reconciler

log = logging.getLogger(__name__)
RETRY = timedelta(seconds=1)
# Mails in a row before looking at the rest.
IN_A_ROW = 20


@value_class
class GiftCards:
    use_cases: GiftCardUseCases
    redeeming: Redeeming
    asking: Asking


@asynccontextmanager
async def open_gift_cards(deps: GiftCardDependencies) -> AsyncIterator[GiftCards]:
    if deps.mail is not None:
        check_address(deps.mail.sender, field="smtp_from")
    asking = Asking(deps.seal, deps.webhooks, deps.url)
    redeeming = Redeeming(deps, asking, Attempts(deps.seal.derive(WORK_INFO), deps.policy))
    async with own_tasks() as loops:
        loops.start(Upkeep(deps, redeeming, asking).run(), name="gift cards")
        yield GiftCards(use_cases=GiftCardUseCases(deps), redeeming=redeeming, asking=asking)


class Upkeep(Reconciler):
    """Runs until cancelled. A mail that was on its way then is sent again: at least once."""

    def __init__(self, deps: GiftCardDependencies, redeeming: Redeeming, asking: Asking) -> None:
        super().__init__("gift cards", deps.store, deps.clock, retry=RETRY)
        self._redeeming = redeeming
        self._asking = asking
        self._server = deps.mail

    async def _round(self) -> datetime:
        moments = [await self._redeeming.expire_overdue()]
        if self._server is not None:
            for _ in range(IN_A_ROW):
                if not await self._send_next(self._server):
                    break
            moments.append(await self.store.read(approval.next_mail_due))
        return min((moment for moment in moments if moment is not None), default=FAR)

    async def _send_next(self, server: MailServer) -> bool:
        now = self.clock.now()
        found = await self.store.read(lambda conn: approval.first_due_mail(conn, now=now))
        if found is None:
            return False
        due, one = found
        if not approval.is_wanted(one, now=now):
            await self.store.write(lambda conn: approval.withdraw_mail(conn, due))
            return True
        outcome = await self._try(server, due, one)
        after, chance = self.clock.now(), random.random()

        def conclude(conn: Connection) -> None:
            approval.conclude_mail(conn, due, outcome, now=after, chance=chance)

        await self.store.write(conclude)
        return True

    async def _try(self, server: MailServer, due: Mail, one: Redemption) -> Outcome:
        try:
            message = approval.compose(server, due.address, one, self._asking.link(one))
        except (SandboxerError, ValueError) as error:
            # An address or a sender that no header can hold: each mail must not end the loop.
            return Outcome(f"it cannot be written: {error}", is_final=True)
        outcome = await approval.send_mail(server, message)
        if outcome.why_not is not None:
            log.warning("the mail for %s was not taken: %s", one.id, outcome.why_not)
        return outcome

    def _hear(self, topics: frozenset[str]) -> None:
        if repository.TOPIC in topics:
            self.wake()
