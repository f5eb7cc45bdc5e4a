"""The order in which the rooms of a platform open and close."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from sandboxer.access.front.connections import Front
from sandboxer.accounts import records
from sandboxer.accounts.authority import AuthorityBook
from sandboxer.accounts.limiter import Limiter
from sandboxer.accounts.limits import LimitPolicy, parse_networks
from sandboxer.backends.contract import Backend
from sandboxer.identity.authenticate import Authenticator
from sandboxer.identity.key_life import KeyLife
from sandboxer.identity.keys import OWNER_ACCOUNT, Keys
from sandboxer.identity.master_key import open_master_key
from sandboxer.identity.nonces import NonceBook
from sandboxer.identity.owner import ensure_owner
from sandboxer.identity.seal import Seal
from sandboxer.identity.sessions.token_keys import require_session_secret
from sandboxer.kernel.budget import Budget
from sandboxer.kernel.clock import Clock, SystemClock, TimeSource
from sandboxer.kernel.tasks import own_tasks
from sandboxer.money.timekeeper import open_time
from sandboxer.observe.events import Events
from sandboxer.observe.metrics import Metrics
from sandboxer.payments.room import open_payments
from sandboxer.sandboxes.profiles import load_profiles
from sandboxer.settings import Settings
from sandboxer.store.engine import Store, open_store
from sandboxer.store.idempotency import abandon_all_in_flight
from sandboxer.store.lock import hold_database, hold_state_dir
from sandboxer.store.sealed import forget_plain, seal_old, seal_with
from sandboxer.wiring.backends import BoundBackends, open_bound
from sandboxer.wiring.outside import open_wallets, open_webhook_room, payment_settings
from sandboxer.wiring.platform import Platform
from sandboxer.wiring.probes import probes_of
from sandboxer.wiring.recursion import hold_recursion
from sandboxer.wiring.sandbox_rooms import open_sandbox_rooms
from sandboxer.wiring.upper_rooms import open_upper_rooms

log = logging.getLogger(__name__)


@asynccontextmanager
async def open_platform(
    settings: Settings,
    *,
    clock: Clock | None = None,
    time_source: TimeSource | None = None,
    backends: Mapping[str, Backend] | None = None,
) -> AsyncIterator[Platform]:
    """A running platform: reconciled, its loops turning. On leaving, sandboxes keep running.

    `backends` that are given are used instead of those the settings name, and are not closed. A `clock` that
    is given is believed as it is; a `time_source` stands in for the clocks of the host.
    """
    _make_ready(settings)
    trusted_proxies, budget = parse_networks(settings.trusted_proxies), Budget(settings.budget_bounds)
    async with _closing_with(budget) as closing:
        (store, bound), metrics = await _open_bound_store(settings, clock, backends, closing), Metrics()
        keeper = await closing.enter_async_context(open_time(store, metrics, clock=clock, source=time_source))
        clock = keeper.clock
        events, seal = _open_events(store, closing), await _open_seal(settings, store)
        keys = Keys(store, seal, clock=clock)
        await ensure_owner(keys, settings.owner_file, url=settings.url)
        wallets = await open_wallets(settings, store, seal, clock, keys, closing)
        authorities = await _open_accounts(store, clock, closing)
        webhooks = await open_webhook_room(settings, store, clock, seal, closing)
        nonces = _open_nonces(settings, clock, metrics, closing)
        profiles = load_profiles(settings.profiles_dir)
        payments = await closing.enter_async_context(
            open_payments(payment_settings(settings), store, clock, keys, wallets.siwx, seal, webhooks)
        )
        sandboxes, work = await closing.enter_async_context(
            open_sandbox_rooms(settings, store, keeper, profiles, bound, metrics, keys, payments)
        )
        above = await open_upper_rooms(
            settings, store, clock, seal, authorities, webhooks, sandboxes, closing, budget=budget
        )
        trying = await closing.enter_async_context(own_tasks())
        await keeper.witness()
        yield Platform(
            settings=settings,
            clock=clock,
            timekeeper=keeper,
            store=store,
            metrics=metrics,
            events=events,
            webhooks=webhooks,
            keys=keys,
            nonces=nonces,
            authenticator=Authenticator(keys, nonces, wall_ahead=lambda: keeper.trouble),
            wallets=wallets,
            key_life=KeyLife(keys, store, clock),
            authorities=authorities,
            limiter=Limiter(),
            limits=_limits(settings),
            trusted_proxies=trusted_proxies,
            budget=budget,
            front=Front(settings.connection_bounds, trusted_proxies),
            pricing=settings.prices,
            backends=bound.backends,
            sandboxes=sandboxes,
            slots=above.slots,
            work=work,
            access=above.access,
            artifacts=above.artifacts,
            execution=above.execution,
            sessions=above.sessions,
            services=above.services,
            payments=payments,
            probes=probes_of(settings, trying, store, nonces, bound.backends),
            payment_offers=payments.offers,
        )


def _make_ready(settings: Settings) -> None:
    """Hold this process to its limits, and refuse to start without what must not be improvised."""
    hold_recursion()
    require_session_secret(settings.session_secret, production=settings.production)


@asynccontextmanager
async def _closing_with(budget: Budget) -> AsyncIterator[AsyncExitStack]:
    """What is opened; the threads that work beside the loop end last."""
    async with AsyncExitStack() as closing:
        closing.callback(budget.lanes.close)
        yield closing


async def _open_store(settings: Settings, closing: AsyncExitStack) -> Store:
    """Ours alone: whoever served this database before can write to it no more."""
    closing.enter_context(hold_state_dir(settings.state_dir))
    claim = closing.enter_context(hold_database(settings.database_url))
    opening = partial(open_store, settings.database_url, durability=settings.durability, claim=claim)
    store = await asyncio.to_thread(opening)
    closing.push_async_callback(store.close)
    await store.write(claim.begin)
    watching = await closing.enter_async_context(own_tasks())
    watching.start(store.watch(), name="whether the database is there")
    return store


async def _open_seal(settings: Settings, store: Store) -> Seal:
    """From here on environments are sealed at rest, also those that an older program left in plain."""
    seal = await open_master_key(store, settings.master_key_file)
    seal_with(store.database, seal)
    sealed = 0
    while found := await store.write(seal_old):
        sealed += found
    if sealed:
        await asyncio.to_thread(forget_plain, store.database)
        log.info("sealed %d environments that an older version had kept in plain", sealed)
    return seal


async def _open_bound_store(
    settings: Settings, clock: Clock | None, backends: Mapping[str, Backend] | None, closing: AsyncExitStack
) -> tuple[Store, BoundBackends]:
    store = await _open_store(settings, closing)
    # By the wall clock: the server's own time begins with a write, and this may be the wrong database.
    bound = await open_bound(settings, store, clock or SystemClock(), backends, closing)
    await store.write(abandon_all_in_flight)
    return store, bound


def _open_events(store: Store, closing: AsyncExitStack) -> Events:
    events = Events(store)
    closing.callback(events.close)
    return events


def _open_nonces(settings: Settings, clock: Clock, metrics: Metrics, closing: AsyncExitStack) -> NonceBook:
    nonces = NonceBook(clock.now(), journal_dir=settings.state_dir)
    closing.callback(nonces.close)
    metrics.nonces.set_function(lambda: len(nonces))
    return nonces


async def _open_accounts(store: Store, clock: Clock, closing: AsyncExitStack) -> AuthorityBook:
    now = clock.now()
    await store.write(lambda conn: records.ensure(conn, OWNER_ACCOUNT, actor="system:start", now=now))
    authorities = AuthorityBook(store, clock)
    closing.callback(authorities.close)
    return authorities


def _limits(settings: Settings) -> LimitPolicy:
    return LimitPolicy(
        tiers=settings.prices.tiers,
        bucket_only=settings.limit_bucket_only,
        address=settings.limit_address,
        auth_address=settings.limit_auth,
        auth_key=settings.limit_auth,
        port_refusals=settings.limit_port_refusals,
        wakes_address=settings.limit_wakes,
        wakes_sandbox=settings.limit_wakes,
    )
