"""Opens x402: the ways that an operator named, the offers, the checkout and the loops that follow payments.

The reconciler follows every payment that is not over until its chain says what became of it. Nothing is ever
paid twice: a payment that was perhaps never broadcast is handed to the settler again as it is, and its own
nonce lets it move money once.

Purchases run in tasks that the platform owns: a caller that vanishes does not take its payment along.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
from sqlalchemy import Connection

from sandboxer.identity.keys import Keys
from sandboxer.identity.seal import open_key_file
from sandboxer.identity.siwx import Siwx
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.program import late
from sandboxer.kernel.tasks import TaskOwner, own_tasks
from sandboxer.kernel.values import value_class
from sandboxer.payments import records, settlement
from sandboxer.payments.chains.contract import Rails
from sandboxer.payments.lifecycle import Signal, State
from sandboxer.payments.rates import Rates
from sandboxer.payments.records import Networks, Payment
from sandboxer.payments.x402.checkout import Checkout
from sandboxer.payments.x402.offers import Offers, X402Asking
from sandboxer.payments.x402.ways import (
    NetworkSettings,
    Opener,
    Opening,
    Way,
    Ways,
    X402Settings,
    read_secret,
)
from sandboxer.store import reconciler
from sandboxer.store.engine import Store

if TYPE_CHECKING:
    # Their libraries take seconds to import: only where such a network is configured.
    from sandboxer.payments.stacks import way as stacks
    from sandboxer.payments.x402 import evm
else:
    stacks, evm = late("sandboxer.payments.stacks.way"), late("sandboxer.payments.x402.evm")

T = TypeVar("T")
log = logging.getLogger(__name__)
# Looked at again by then at the latest, should nothing wake the loop.
IDLE = timedelta(minutes=1)
RETRY = timedelta(seconds=10)


class ChainReconciler(reconciler.Reconciler):
    """Follows the payments of some networks, one payment after the other."""

    def __init__(self, networks: Networks, checkout: Checkout, store: Store, clock: Clock) -> None:
        super().__init__("payments", store, clock, retry=RETRY)
        self._networks = networks
        self._checkout = checkout

    async def look_at_due(self) -> None:
        now = self.clock.now()
        for payment in await self.store.read(lambda conn: records.due(conn, self._networks, now=now)):
            if self._checkout.is_live(payment.id):
                await self._later(payment)
                continue
            try:
                await self._checkout.follow(payment)
            except Exception:
                # One payment's trouble must not keep the others waiting.
                log.exception("payment %s could not be followed", payment.id)
                await self._later(payment)

    async def _round(self) -> datetime:
        await self.look_at_due()
        moment = await self.store.read(lambda conn: records.next_look(conn, self._networks))
        return min(moment or reconciler.FAR, self.clock.now() + IDLE)

    async def _later(self, payment: Payment) -> None:
        now = self.clock.now()
        await self.store.write(
            lambda conn: records.note(conn, payment.id, now=now, look_at=now + RETRY, looked=True)
        )

    def _hear(self, topics: frozenset[str]) -> None:
        if records.DUE_TOPIC in topics:
            self.wake()


class Reconciler:
    """Runs one loop for each chain: a slow or silent one keeps only its own payments waiting."""

    def __init__(self, checkout: Checkout, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        known = frozenset(way.network for way in checkout.ways)
        # Those of a chain that is no longer set up are looked at too, and say why nothing comes of it.
        sets = [*(Networks(frozenset({name})) for name in sorted(known)), Networks(known, are_meant=False)]
        self._chains = [ChainReconciler(networks, checkout, store, clock) for networks in sets]

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
        async with asyncio.TaskGroup() as group:
            for chain in self._chains:
                group.create_task(chain.run())

    async def round(self) -> None:
        """Looks at all that are due, once."""
        async with asyncio.TaskGroup() as group:
            for chain in self._chains:
                group.create_task(chain.look_at_due())


@value_class
class X402:
    settings: X402Settings
    ways: Ways
    rails: Rails
    offers: Offers
    checkout: Checkout
    reconciler: Reconciler
    asking: X402Asking
    purchase_tasks: PurchaseTasks
    rates: Rates
    keys: Keys


async def _open_evm(network: NetworkSettings, opening: Opening) -> list[Way]:
    return await evm.open_ways(network, opening)


async def _open_stacks(network: NetworkSettings, opening: Opening) -> list[Way]:
    return [stacks.stacks_way(network, opening.client, settle_seconds=opening.settle_timeout.total_seconds())]


# Who opens the ways of a network, by its CAIP-2 namespace.
OPENERS: Mapping[str, Opener] = {"eip155": _open_evm, "stacks": _open_stacks}


@asynccontextmanager
async def open_x402(
    settings: X402Settings,
    store: Store,
    clock: Clock,
    keys: Keys,
    rates: Rates,
    *,
    siwx: Siwx,
    url: str,
    state_dir: Path,
    signer_key: str | None = None,
    openers: Mapping[str, Opener] | None = None,
) -> AsyncIterator[X402]:
    """Start `reconciler.adopt()` and then `reconciler.run()` beside it. Raises InvalidRequest."""
    openers = OPENERS if openers is None else openers
    async with httpx.AsyncClient(follow_redirects=False) as client, own_tasks() as tasks:
        if not signer_key and settings.signer_key_file is not None:
            signer_key = read_secret(Path(settings.signer_key_file), "signer_key_file")
        opening = Opening(
            clock=clock,
            client=client,
            signer_key=signer_key or None,
            settle_timeout=settings.settle_timeout,
        )
        ways = Ways()
        for network in settings.networks:
            if (opener := openers.get(network.namespace)) is None:
                known = ", ".join(sorted(openers))
                raise InvalidRequest(field="x402", why=f"{network.network}: known are networks of {known}")
            for way in await opener(network, opening):
                ways.register(way)
        checks = {way.network: way.check for way in ways if way.check is not None}
        rails = Rails(ways, checks, clock)
        await rails.check_all()
        tasks.start(rails.run(), name="checks of payment networks")
        # Losing it costs nothing but open offers.
        key = open_key_file(state_dir / "offers.key")
        offers = Offers(ways, rates, clock, key=key, good_for=settings.offer_for)
        checkout = Checkout(store, clock, ways, offers, settings)
        yield X402(
            settings=settings,
            ways=ways,
            rails=rails,
            offers=offers,
            checkout=checkout,
            reconciler=Reconciler(checkout, store, clock),
            asking=X402Asking(offers, ways, settings, siwx, url=url),
            purchase_tasks=PurchaseTasks(tasks),
            rates=rates,
            keys=keys,
        )


class PurchaseTasks:
    def __init__(self, tasks: TaskOwner) -> None:
        self._tasks = tasks

    async def finish(self, work: Coroutine[Any, Any, T], *, name: str) -> T:
        """Its result. Cancelling this wait leaves the work alone."""
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        # Nobody may be left to look at it.
        result.add_done_callback(lambda done: None if done.cancelled() else done.exception())

        async def run() -> None:
            try:
                outcome = await work
            except asyncio.CancelledError:
                result.cancel()
                raise
            except BaseException as error:
                if not result.done():
                    result.set_exception(error)
            else:
                if not result.done():
                    result.set_result(outcome)

        self._tasks.start(run(), name=name)
        return await asyncio.shield(result)
