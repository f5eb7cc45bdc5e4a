"""A desk, a watcher and a clock of one's own around any chain: the test says when to look, and when it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, select

from sandboxer.accounts import records
from sandboxer.identity.key_life import KeyLife
from sandboxer.identity.keys import Keys
from sandboxer.identity.seal import Seal
from sandboxer.kernel.errors import NoRate
from sandboxer.money.buckets import load_bucket
from sandboxer.money.ledger import INCOME
from sandboxer.money.pricing import TierPrices
from sandboxer.money.tables import ledger_accounts
from sandboxer.money.verification import verify
from sandboxer.payments.chains.contract import Chain
from sandboxer.payments.goods import CreditGoods, Goods, TierMonths
from sandboxer.payments.invoices.reconciler import Watcher
from sandboxer.payments.invoices.records import InvoicePolicy
from sandboxer.payments.invoices.refunds import refunds_page
from sandboxer.payments.invoices.settlement import Settling
from sandboxer.payments.invoices.use_cases import InvoiceUseCases, Order, Ordered, View
from sandboxer.payments.rate_sources import FixedRates
from sandboxer.payments.rates import Rate
from sandboxer.store.engine import Store

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
USD = {code: Decimal(usd) for code, usd in {"BTC": "60000", "LTC": "80", "XMR": "150", "DOGE": "10"}.items()}
BUYER = "acc_buyer"


class Clock:
    def __init__(self) -> None:
        self.moment = START

    def now(self) -> datetime:
        return self.moment

    async def sleep(self, delay: timedelta) -> None:
        self.moment += delay


class FickleRates:
    """Fixed rates that can be taken away."""

    def __init__(self, clock: Clock) -> None:
        self.fixed = FixedRates(USD, clock)
        self.is_gone = False

    @property
    def assets(self) -> tuple[str, ...]:
        return self.fixed.assets

    async def warm(self, assets: Iterable[str]) -> None:
        return None

    async def usd(self, asset: str) -> Rate:
        if self.is_gone:
            raise NoRate(asset=asset, why="a test took it away")
        return await self.fixed.usd(asset)


@dataclass
class Shop:
    store: Store
    chain: Chain
    clock: Clock
    rates: FickleRates
    policy: InvoicePolicy
    key_life: KeyLife
    use_cases: InvoiceUseCases
    watcher: Watcher

    async def order(self, **wanted: Any) -> Ordered:
        """1,000,000 sats for the buyer's account, unless said otherwise."""
        order: dict[str, Any] = {"asset": self.chain.code, "asked_by": "test"}
        if "tier" not in wanted and "goods" not in wanted:
            order["sats"] = 1_000_000
        return await self.use_cases.create(Order(**order | wanted))

    async def buyer(self) -> str:
        """The public id of an account that exists."""

        def ensure(conn: Connection) -> str:
            return records.ensure(conn, BUYER, actor="test", now=self.clock.now()).public_id

        return await self.store.write(ensure)

    async def look(self, *, after: timedelta = timedelta(minutes=5)) -> None:
        """Time passes, then the watcher looks at everything, whatever it had planned."""
        self.clock.moment += after
        for one in self.watcher._watched.values():
            one.due = self.clock.moment
        await self.watcher.look()

    def restart(self) -> None:
        """What was in memory is forgotten."""
        self.watcher = _watcher(self.store, self.chain, self.clock, self.rates, self.key_life, self.policy)

    async def state(self, ordered: Ordered) -> str:
        return (await self.view(ordered)).invoice.state.value

    async def view(self, ordered: Ordered) -> View:
        return await self.use_cases.view(ordered.invoice.id)

    async def sats(self, account: str = BUYER) -> tuple[int, int]:
        """What is in the bucket, and the debt."""

        def read(conn: Connection) -> tuple[int, int]:
            bucket = load_bucket(conn, account)
            return bucket.posted, bucket.debt

        return await self.store.read(read)

    async def income(self) -> int:
        def read(conn: Connection) -> int:
            row = conn.execute(select(ledger_accounts).where(ledger_accounts.c.id == INCOME)).one_or_none()
            return 0 if row is None else int(row.credits_posted - row.debits_posted)

        return await self.store.read(read)

    async def account(self, id: str = BUYER) -> records.Account:
        return await self.store.read(lambda conn: records.load(conn, id))

    async def refunds(self) -> list[Any]:
        return await self.store.read(lambda conn: refunds_page(conn))

    async def check_books(self) -> None:
        found = await self.store.read(lambda conn: verify(conn))
        assert found.is_whole, found.faults


def open_shop(store: Store, chain: Chain, *, policy: InvoicePolicy | None = None) -> Shop:
    clock = Clock()
    rates = FickleRates(clock)
    policy = policy or InvoicePolicy()
    key_life = KeyLife(Keys(store, Seal(bytes(32)), clock=clock), store, clock)
    use_cases = InvoiceUseCases(store, clock, {chain.code: chain}, rates, TierPrices(), _goods(), policy)
    watcher = _watcher(store, chain, clock, rates, key_life, policy)
    return Shop(store, chain, clock, rates, policy, key_life, use_cases, watcher)


def _goods() -> dict[str, Goods]:
    return {"sats": CreditGoods(), "tier": TierMonths()}


def _watcher(
    store: Store, chain: Chain, clock: Clock, rates: FickleRates, key_life: KeyLife, policy: InvoicePolicy
) -> Watcher:
    return Watcher(chain, store, clock, rates, Settling(_goods(), key_life, policy), policy)
