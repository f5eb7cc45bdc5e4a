"""x402 opened: the ways an operator named, the offers, the checkout and the loop that follows payments."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from sandboxer.identity.keys import Keys
from sandboxer.identity.siwx import Siwx
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.tasks import own_tasks
from sandboxer.payments.oracle.rates import Rates
from sandboxer.payments.rails import Rails
from sandboxer.payments.stacks.way import stacks_way
from sandboxer.payments.x402.asking import X402Asking
from sandboxer.payments.x402.checkout import Checkout
from sandboxer.payments.x402.config import NetworkSettings, X402Settings
from sandboxer.payments.x402.errands import Errands
from sandboxer.payments.x402.evm import opening as evm_opening
from sandboxer.payments.x402.offers import Offers, open_offer_key
from sandboxer.payments.x402.opening import Opener, Opening
from sandboxer.payments.x402.reconciler import Reconciler
from sandboxer.payments.x402.ways import Way, Ways
from sandboxer.store.engine import Store


async def _open_stacks(network: NetworkSettings, opening: Opening) -> list[Way]:
    return [stacks_way(network, opening.client, settle_seconds=opening.settle_timeout.total_seconds())]


# Who opens the ways of a network, by its CAIP-2 namespace.
OPENERS: Mapping[str, Opener] = {evm_opening.NAMESPACE: evm_opening.open_ways, "stacks": _open_stacks}


@dataclass(frozen=True, slots=True, kw_only=True)
class X402:
    settings: X402Settings
    ways: Ways
    rails: Rails
    offers: Offers
    checkout: Checkout
    reconciler: Reconciler
    asking: X402Asking
    errands: Errands
    rates: Rates
    keys: Keys


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
            errands=Errands(tasks),
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
