"""Where invoices are asked for and looked up: the use cases behind the routes. Nobody needs an account here.

An invoice costs an address, so whoever asks is counted and may only have so many open.

Who may have another invoice open. An open invoice costs an address to watch, so each has a share.

Strangers are counted by address and by the network around it, and together they never take the whole: an
account that has funds always finds room.

Opens what invoices need: the use cases, and a loop for each chain.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row

from sandboxer.accounts import records as accounts
from sandboxer.accounts.limits import network_around
from sandboxer.identity.key_life import Claim, KeyLife, new_claim
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import (
    AddressUsed,
    ChainUnavailable,
    InvalidRequest,
    NoCapacity,
    NotAvailable,
    NotFound,
    TooManyRequests,
    Unavailable,
)
from sandboxer.kernel.tasks import own_tasks
from sandboxer.kernel.values import brief_value_class, new_id, value_class
from sandboxer.money.buckets import load_bucket
from sandboxer.money.pricing import TierPrices, tier_price
from sandboxer.payments.chains.contract import Chain, Standings
from sandboxer.payments.credits import account_to_pay
from sandboxer.payments.goods import CreditGoods, Goods, TierMonths
from sandboxer.payments.invoices import repository
from sandboxer.payments.invoices.reconciler import Watcher
from sandboxer.payments.invoices.records import (
    POLICY,
    Buys,
    Invoice,
    InvoicePolicy,
    Kind,
    Output,
    Price,
    Refund,
    RefundState,
    State,
)
from sandboxer.payments.invoices.refunds import mark_refund_sent, refunds_page
from sandboxer.payments.invoices.settlement import Settling
from sandboxer.payments.rates import ASSETS, Rate, Rates, atomic_for_sats, needs_rate, sats_for_cents
from sandboxer.store.engine import Store

# After a restored backup indexes may have been used already; more than this in a row is no accident.
MAX_USED_IN_A_ROW = 200
RETRY_AFTER_S = 60
PAY_FIRST = "Pay one of your open invoices, or wait until one has expired."
Also = Callable[[Connection, str], None]


@value_class
class Order:
    """What someone wants to pay for. Exactly one of: tier and months, sats, or other goods."""

    asset: str
    # Who asks, as limits count: an address, and the account of the key that signed, if one did.
    asked_by: str
    caller: str | None = None
    tier: int | None = None
    months: int | None = None
    sats: int | None = None
    # The public id of an account; None: a new one, with a key.
    account: str | None = None
    refund_address: str | None = None
    # Other goods, priced in cents.
    goods: Buys | None = None
    # For a new account, if it was chosen beforehand; None: a random one.
    claim: Claim | None = None


@value_class
class Ordered:
    invoice: Invoice
    uri: str
    # With it the secret of the new account's key is fetched, once; shown here and never again.
    claim: Claim | None


@value_class
class View:
    """An invoice with its outputs, refunds and history."""

    invoice: Invoice
    outputs: tuple[Output, ...]
    refunds: tuple[Refund, ...]
    steps: tuple[Row[Any], ...]
    uri: str


@brief_value_class
class Asker:
    """The party that an open invoice is counted for."""

    name: str
    # None: an account with funds.
    network: str | None


class InvoiceUseCases:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        chains: Mapping[str, Chain],
        rates: Rates,
        tiers: TierPrices,
        goods: Mapping[str, Goods],
        policy: InvoicePolicy,
        watchers: Mapping[str, Watcher] | None = None,
        standings: Standings | None = None,
    ) -> None:
        self._standings = standings or Standings()
        self._watchers = watchers or {}
        self.chains = chains
        self.rates = rates
        self.policy = policy
        self._store = store
        self._clock = clock
        self._tiers = tiers
        self._goods = goods
        # Indexes that were taken and given to nobody, by chain.
        self._spare: dict[str, list[int]] = {}

    async def create(self, order: Order, *, also: Also | None = None) -> Ordered:
        """A fresh address and an exact amount; `also` is written in its transaction, with its id.

        Raises InvalidRequest, NotFound (account), NoRate, NotAvailable (no such chain here), TooManyRequests,
        ChainUnavailable.
        """
        chain = self._chain(order.asset)
        if (why := self._standings.why_off(order.asset)) is not None:
            raise ChainUnavailable(chain=order.asset, why=why)
        if order.refund_address is not None:
            chain.check_address(order.refund_address)
        buys, price = await self._price(order)
        account, who = await self._store.read(lambda conn: self._admit(conn, order))
        index, address = await self._fresh_address(chain)
        claim = (order.claim or new_claim()) if account is None else None
        now, depths = self._clock.now(), self.policy.confirmations
        expires_at = now + self.policy.expires_after
        invoice = Invoice(
            id=new_id("inv"),
            buys=buys,
            price=price,
            state=State.AWAITING,
            address=address,
            index=index,
            account=account or new_id("acc"),
            is_new_account=account is None,
            claim_hash=None if claim is None else claim.hash,
            public_key=None,
            refund_address=order.refund_address,
            confirmations=depths.get(order.asset) or ASSETS[order.asset].confirmations or 1,
            created_at=now,
            expires_at=expires_at,
            confirm_by=expires_at + self.policy.confirm_within,
            watch_until=expires_at + self.policy.watch_for,
            updated_at=now,
        )

        def add(conn: Connection) -> None:
            # Again: others may have asked while the chain was.
            admit(conn, who, self.policy)
            repository.add(conn, invoice, asked_by=who.name, asked_near=who.network)
            if also is not None:
                also(conn, invoice.id)

        try:
            await self._store.write(add)
        except (TooManyRequests, NoCapacity):
            # Nothing was written, and nobody has seen the address.
            self._spare[chain.code].append(index)
            raise
        return Ordered(invoice=invoice, uri=self.uri(invoice), claim=claim)

    def why_off(self) -> dict[str, str | None]:
        """Return every configured coin, and why an invoice in it is refused now; None: it is accepted."""
        return {code: self._standings.why_off(code) for code in self.chains}

    async def view(self, id: str) -> View:
        """Return an invoice to anybody who knows its id. Raises NotFound."""

        def load(conn: Connection) -> View:
            invoice = repository.find(conn, id)
            return View(
                invoice=invoice,
                outputs=repository.outputs_of(conn, id),
                refunds=tuple(repository.refunds_of(conn, id)),
                steps=tuple(repository.steps_of(conn, id)),
                uri=self.uri(invoice),
            )

        return await self._store.read(load)

    async def look_again(self, id: str) -> Invoice:
        """Watch its address again, from now on for a while, also if that had ended long ago.

        Raises NotFound, NotAvailable (its chain is not set up any more).
        """
        until = self._clock.now() + self.policy.watch_for
        invoice = await self._store.write(lambda conn: repository.watch_until(conn, id, until))
        self._chain(invoice.price.asset)
        if (watcher := self._watchers.get(invoice.price.asset)) is not None:
            watcher.look_again(invoice)
        return invoice

    async def page(
        self, *, state: State | None = None, after: str | None = None, limit: int = 100
    ) -> list[Invoice]:
        return await self._store.read(
            lambda conn: repository.page(conn, state=state, after=after, limit=limit)
        )

    async def refunds(
        self, *, state: RefundState | None = None, after: str | None = None, limit: int = 100
    ) -> list[Refund]:
        return await self._store.read(lambda conn: refunds_page(conn, state=state, after=after, limit=limit))

    async def refund_sent(self, id: str, txid: str, *, actor: str) -> Refund:
        """Record that the operator has signed and sent a refund."""
        now = self._clock.now()
        return await self._store.write(lambda conn: mark_refund_sent(conn, id, txid, actor=actor, now=now))

    def uri(self, invoice: Invoice) -> str:
        """Return the payment URI; for a chain that is no longer configured, the bare address."""
        if (chain := self.chains.get(invoice.price.asset)) is None:
            return invoice.address
        return chain.payment_uri(invoice.address, invoice.price.atomic, invoice.id)

    def _chain(self, asset: str) -> Chain:
        if (chain := self.chains.get(asset)) is None:
            have = ", ".join(sorted(self.chains)) or "none"
            raise NotAvailable(what=f"Paying in {asset}", why=f"this platform takes {have} by invoice")
        return chain

    async def _price(self, order: Order) -> tuple[Buys, Price]:
        """Price an order in sats and in the coin's smallest units, at the present rates."""
        buys, sats = self._buys(order)
        btc: Rate | None = None
        if buys.cents is not None or needs_rate(order.asset):
            btc = await self.rates.usd("BTC")
        if buys.cents is not None and btc is not None:
            sats = sats_for_cents(buys.cents, btc)
        if not 1 <= sats <= self.policy.max_sats:
            raise InvalidRequest(field="sats", why=f"an invoice is for at most {self.policy.max_sats} sats")
        rate = await self.rates.usd(order.asset) if needs_rate(order.asset) else None
        named = {source for found in (rate, btc) if found is not None for source in found.sources}
        price = Price(
            asset=order.asset,
            atomic=atomic_for_sats(sats, ASSETS[order.asset], rate, btc),
            sats=sats,
            usd=None if rate is None else rate.usd,
            btc_usd=None if btc is None else btc.usd,
            rate_sources=tuple(sorted(named)),
        )
        return buys, price

    def _buys(self, order: Order) -> tuple[Buys, int]:
        if order.goods is not None:
            if order.goods.kind not in self._goods or order.goods.cents is None:
                raise InvalidRequest(field="goods", why=f"{order.goods.kind!r} is not sold here")
            return order.goods, 0
        if order.tier is not None and order.months is not None and order.sats is None:
            price = tier_price(order.tier, order.months, self._tiers)
            kind = Kind.TIER.value
            return Buys(kind=kind, tier=order.tier, months=order.months, cents=price.cents), 0
        if order.sats is not None and order.tier is None and order.months is None:
            if order.sats < self.policy.min_sats:
                raise InvalidRequest(field="sats", why=f"at least {self.policy.min_sats} sats an invoice")
            return Buys(kind=Kind.SATS.value), order.sats
        raise InvalidRequest(field="tier", why="name a tier and months, or sats")

    def _admit(self, conn: Connection, order: Order) -> tuple[str | None, Asker]:
        """Return the account it is for, if any, and whom it counts for. Raises for too many open invoices."""
        now = self._clock.now()
        who = asker(conn, order.asked_by, order.caller, self.policy, now=now)
        admit(conn, who, self.policy)
        return (None if order.account is None else account_to_pay(conn, order.account, now=now).id), who

    async def _fresh_address(self, chain: Chain) -> tuple[int, str]:
        """Return an address that never received anything. Its index is never given twice; an index for which
        the chain had no answer was given to nobody and is used by the next order.
        """
        spare = self._spare.setdefault(chain.code, [])
        take = partial(repository.take_index, chain=chain.code)
        for _ in range(MAX_USED_IN_A_ROW):
            index = spare.pop() if spare else await self._store.write(take)
            try:
                return index, await chain.fresh_address(index)
            except AddressUsed:
                continue
            except BaseException:
                # Whether it failed or the caller went away: nobody has seen the address.
                spare.append(index)
                raise
        raise Unavailable(why=f"no unused {chain.code} address was found; look at the wallet")


def asker(
    conn: Connection, address: str, account: str | None, policy: InvoicePolicy, *, now: datetime
) -> Asker:
    """`account`: of the key that signed the request, if one did."""
    if account is not None and _has_funds(conn, account, policy, now):
        return Asker(f"account:{account}", None)
    return Asker(address, network_around(address))


def admit(conn: Connection, who: Asker, policy: InvoicePolicy) -> None:
    """Raises TooManyRequests (its own share is used up), NoCapacity."""
    if repository.count_open(conn, asked_by=who.name) >= policy.open_per_address:
        raise TooManyRequests(limit=policy.open_per_address, retry_after_s=RETRY_AFTER_S, hint=PAY_FIRST)
    if who.network is not None:
        if repository.count_open(conn, asked_near=who.network) >= policy.open_per_network:
            raise TooManyRequests(
                limit=policy.open_per_network,
                retry_after_s=RETRY_AFTER_S,
                per="network",
                hint=f"Too many are open from {who.network}; sign the request with a key that has funds.",
            )
        if repository.count_open(conn, by_strangers=True) >= policy.open_for_strangers:
            raise NoCapacity(
                resource="open invoices",
                why=f"{policy.open_for_strangers} wait for payment; accounts with funds may still have one",
            )
    if repository.count_open(conn) >= policy.open_in_all:
        raise NoCapacity(resource="open invoices", why=f"{policy.open_in_all} wait for payment")


def _has_funds(conn: Connection, account: str, policy: InvoicePolicy, now: datetime) -> bool:
    if (found := accounts.find(conn, account)) is not None and found.tier_at(now) is not None:
        return True
    try:
        return load_bucket(conn, account).posted >= policy.min_sats
    except NotFound:
        return False


@asynccontextmanager
async def open_invoices(
    store: Store,
    clock: Clock,
    *,
    chains: Mapping[str, Chain],
    rates: Rates,
    tiers: TierPrices,
    key_life: KeyLife,
    policy: InvoicePolicy = POLICY,
    goods: Sequence[Goods] = (),
    standings: Standings | None = None,
) -> AsyncIterator[InvoiceUseCases]:
    """`goods`: what others sell by invoice, besides sats and tiers. `standings`: coins off."""
    on_sale: tuple[Goods, ...] = (CreditGoods(), TierMonths(), *goods)
    sold = {one.kind: one for one in on_sale}
    settling = Settling(sold, key_life, policy)
    async with own_tasks() as loops:
        watchers = {
            code: Watcher(chain, store, clock, rates, settling, policy) for code, chain in chains.items()
        }
        for code, watcher in watchers.items():
            loops.start(watcher.run(), name=f"invoices in {code}")
        yield InvoiceUseCases(store, clock, chains, rates, tiers, sold, policy, watchers, standings)
