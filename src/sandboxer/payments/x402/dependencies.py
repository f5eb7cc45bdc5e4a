"""x402 opened: the ways an operator named, the offers, the checkout and the loop that follows payments.

Purchases in tasks that the platform owns: a caller that vanishes does not take its payment along.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from sandboxer.identity.keys import Keys
from sandboxer.identity.siwx import Siwx
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.late import late
from sandboxer.kernel.tasks import TaskOwner, own_tasks
from sandboxer.payments.oracle.rates import Rates
from sandboxer.payments.rails import Rails
from sandboxer.payments.x402.checkout import Checkout
from sandboxer.payments.x402.config import NetworkSettings, X402Settings
from sandboxer.payments.x402.offers import Offers, X402Asking, open_offer_key
from sandboxer.payments.x402.reconciler import Reconciler
from sandboxer.payments.x402.ways import Opener, Opening, Way, Ways
from sandboxer.store.engine import Store

if TYPE_CHECKING:
    # Their libraries take seconds to import: only where such a network is configured.
    from sandboxer.payments.stacks import way as stacks
    from sandboxer.payments.x402.evm import ways as evm
else:
    stacks, evm = late("sandboxer.payments.stacks.way"), late("sandboxer.payments.x402.evm.ways")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
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
        opening = Opening(
            clock=clock,
            client=client,
            signer_key=signer_key or _from_file(settings),
            settle_timeout=settings.settle_timeout,
        )
        ways = Ways()
        for network in settings.networks:
            opener = openers.get(network.namespace)
            if opener is None:
                known = ", ".join(sorted(openers))
                raise InvalidRequest(field="x402", why=f"{network.network}: known are networks of {known}")
            for way in await opener(network, opening):
                ways.register(way)
        checks = {way.network: way.check for way in ways if way.check is not None}
        rails = Rails(ways, checks, clock)
        await rails.check_all()
        tasks.start(rails.run(), name="checks of payment networks")
        key = open_offer_key(state_dir / "offers.key")
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


def _from_file(settings: X402Settings) -> str | None:
    if settings.signer_key_file is None:
        return None
    path = Path(settings.signer_key_file)
    try:
        mode, text = path.stat().st_mode, path.read_text("ascii").strip()
    except (OSError, ValueError):
        raise InvalidRequest(field="x402", why=f"signer_key_file: {path} cannot be read") from None
    if mode & 0o077:
        raise InvalidRequest(field="x402", why=f"signer_key_file: others may read {path}; chmod 600 it")
    return text


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
