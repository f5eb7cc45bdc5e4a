"""Opens what invoices need: the use cases, and a loop for each chain."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from sandboxer.identity.key_life import KeyLife
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.tasks import own_tasks
from sandboxer.money.pricing import TierPrices
from sandboxer.payments.chains.contract import Chain
from sandboxer.payments.invoices.goods import Goods, Sats, TierMonths
from sandboxer.payments.invoices.records import POLICY, InvoicePolicy
from sandboxer.payments.invoices.settlement import Settling
from sandboxer.payments.invoices.use_cases import InvoiceUseCases
from sandboxer.payments.invoices.watcher import Watcher
from sandboxer.payments.oracle.rates import Rates
from sandboxer.payments.rails import Standings
from sandboxer.store.engine import Store


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
    """`goods`: what other packages sell by invoice, beside sats and tiers. `standings`: coins that are
    off.
    """
    on_sale: tuple[Goods, ...] = (Sats(), TierMonths(), *goods)
    sold = {one.kind: one for one in on_sale}
    settling = Settling(sold, key_life, policy)
    async with own_tasks() as loops:
        watchers = {
            code: Watcher(chain, store, clock, rates, settling, policy) for code, chain in chains.items()
        }
        for code, watcher in watchers.items():
            loops.start(watcher.run(), name=f"invoices in {code}")
        yield InvoiceUseCases(store, clock, chains, rates, tiers, sold, policy, watchers, standings)
