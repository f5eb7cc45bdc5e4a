"""A desk and a place to redeem, on each database, with a clock and rates that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Connection, func, select

from sandboxer.accounts import records
from sandboxer.identity.key_life import KeyLife
from sandboxer.identity.keys import Keys
from sandboxer.identity.seal import Seal
from sandboxer.kernel.values import new_id
from sandboxer.money.buckets import credit, load_bucket
from sandboxer.money.pricing import TierPrices
from sandboxer.money.tables import ledger_accounts
from sandboxer.money.transfers import Asset
from sandboxer.money.verification import verify
from sandboxer.observe.webhooks.use_cases import Webhooks
from sandboxer.payments.gift_cards.dependencies import GiftCards, open_gift_cards
from sandboxer.payments.gift_cards.records import Approval, GiftPolicy, Source
from sandboxer.payments.gift_cards.redemption import Ask, Redeemed
from sandboxer.payments.gift_cards.use_cases import CardOrder, Created, GiftCardDependencies
from sandboxer.payments.goods import CreditGoods
from sandboxer.payments.invoices.records import InvoicePolicy
from sandboxer.payments.invoices.use_cases import InvoiceUseCases
from sandboxer.store.engine import Store
from tests.support.payments.shop import Clock, FickleRates

URL = "http://platform.example"
HOOK = Approval(webhook="https://boss.example/ask")


@dataclass
class Shop:
    store: Store
    clock: Clock
    rates: FickleRates
    cards: GiftCards

    async def card(self, cents: int = 5000, *, approval: Approval | None = None) -> Created:
        return await self.cards.use_cases.create(
            CardOrder(
                cents=cents,
                source=Source.OPERATOR,
                asked_by="test",
                account="owner",
                is_owner=True,
                reason="a test",
                approval=approval,
            )
        )

    async def bought(self, cents: int, account: str, *, approval: Approval | None = None) -> Created:
        """From sats that the account is given for it."""
        await self.fund(account, cents * 20)
        return await self.cards.use_cases.create(
            CardOrder(cents=cents, source=Source.SATS, asked_by="t", account=account, approval=approval)
        )

    async def fund(self, account: str, sats: int) -> None:
        def fund(conn: Connection) -> None:
            records.ensure(conn, account, actor="test", now=self.clock.now())
            credit(conn, account, sats, id=new_id("fund"), reason="test", now=self.clock.now())

        await self.store.write(fund)

    async def redeem(self, code: str | None, **wanted: Any) -> Redeemed:
        assert code is not None
        return await self.cards.redeeming.redeem(
            Ask(code=code, **{"request_id": "request-of-a-test", **wanted})
        )

    async def left(self, card: str) -> tuple[int, int]:
        view = await self.cards.use_cases.view(card)
        return view.left, view.held

    def token(self, done: Redeemed) -> str:
        return self.cards.asking.link(done.redemption).rpartition("/")[2]

    async def sats(self, account: str) -> int:
        return (await self.store.read(lambda conn: load_bucket(conn, account))).posted

    async def check_books(self) -> None:
        """The ledger is whole, and no cent was made or lost."""
        found = await self.store.read(verify)
        assert found.is_whole, found.faults

        def cents(conn: Connection) -> int:
            account = ledger_accounts.c
            query = select(func.sum(account.credits_posted - account.debits_posted))
            return int(conn.execute(query.where(account.asset == Asset.USD_CENTS.value)).scalar() or 0)

        assert await self.store.read(cents) == 0


@asynccontextmanager
async def open_shop(store: Store, policy: GiftPolicy | None = None) -> AsyncIterator[Shop]:
    clock = Clock()
    rates = FickleRates(clock)
    seal = Seal(bytes(32))
    webhooks = Webhooks(store, clock, seal, (), allow_private=False)
    key_life = KeyLife(Keys(store, seal, clock=clock), store, clock)
    invoices = InvoiceUseCases(
        store, clock, {}, rates, TierPrices(), {"sats": CreditGoods()}, InvoicePolicy()
    )
    async with open_gift_cards(
        GiftCardDependencies(
            store=store,
            clock=clock,
            seal=seal,
            rates=rates,
            tiers=TierPrices(),
            key_life=key_life,
            invoices=invoices,
            webhooks=webhooks,
            url=URL,
            policy=policy or GiftPolicy(attempts_per_minute=10_000),
        )
    ) as cards:
        yield Shop(store, clock, rates, cards)
    await webhooks.carrier.close()


@pytest.fixture
async def shop(store: Store) -> AsyncIterator[Shop]:
    async with open_shop(store) as opened:
        yield opened
        await opened.check_books()
