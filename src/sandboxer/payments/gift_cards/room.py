"""The room of gift cards, opened: a desk to buy at, a place to redeem, and the loop behind approvals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sandboxer.identity.key_life import KeyLife
from sandboxer.identity.seal import Seal
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.tasks import own_tasks
from sandboxer.money.pricing import TierPrices
from sandboxer.observe.webhooks.room import Webhooks
from sandboxer.payments.gift_cards.approval.asking import Asking
from sandboxer.payments.gift_cards.approval.mail import check_address
from sandboxer.payments.gift_cards.approval.upkeep import Upkeep
from sandboxer.payments.gift_cards.codes.attempts import WORK_INFO, Attempts
from sandboxer.payments.gift_cards.config import MailServer
from sandboxer.payments.gift_cards.desk import GiftDesk
from sandboxer.payments.gift_cards.records import POLICY, GiftPolicy
from sandboxer.payments.gift_cards.redeeming import Redeeming
from sandboxer.payments.invoices.desk import InvoiceDesk
from sandboxer.payments.oracle.rates import Rates
from sandboxer.store.engine import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class GiftCards:
    desk: GiftDesk
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
    invoices: InvoiceDesk,
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
    desk = GiftDesk(store, clock, seal, rates, invoices, webhooks, policy, has_mail=mail is not None)
    async with own_tasks() as loops:
        loops.start(Upkeep(store, clock, redeeming, asking, mail).run(), name="gift cards")
        yield GiftCards(desk=desk, redeeming=redeeming, asking=asking)
