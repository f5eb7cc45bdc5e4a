"""Opens and closes the parts of a platform in their order, and holds them for the edges. `/health` tries the
parts without which a request would fail.

`hold_recursion` holds the interpreter's recursion limit, which keeps what callers send from ending the
process. JSON that is nested deeper than the limit is an error. Without it, it runs over the end of the stack
and takes the whole server with it. `py_ecc`, which the Ethereum libraries bring along, raises the limit to
100,000 when it is imported: at that, one request of 100 KB of `[` ends the process.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import fields
from functools import partial

from sandboxer import __version__
from sandboxer.access.connections import Front
from sandboxer.accounts import records
from sandboxer.accounts.authority import AuthorityRepository, LocalUsers
from sandboxer.accounts.clients.use_cases import ClientDependencies, Clients
from sandboxer.accounts.limits import Limiter, LimitPolicy, Network, parse_networks
from sandboxer.accounts.records import NO_OFFERS, PaymentOffers
from sandboxer.backends.contract import Backend, HasParts
from sandboxer.backends.shared import write_there
from sandboxer.identity.authenticate import Authenticator
from sandboxer.identity.dependencies import WalletIdentity, ensure_owner
from sandboxer.identity.key_life import KeyLife
from sandboxer.identity.keys import OWNER_ACCOUNT, BearerTokens, Keys
from sandboxer.identity.nonces import NonceRepository
from sandboxer.identity.sandbox_tokens import SandboxTokens
from sandboxer.identity.seal import Seal, open_master_key
from sandboxer.identity.sessions.tokens import require_session_secret
from sandboxer.kernel.budget import Budget
from sandboxer.kernel.clock import Clock, SystemClock, TimeSource
from sandboxer.kernel.errors import NotAvailable
from sandboxer.kernel.tasks import TaskOwner, beside, own_tasks
from sandboxer.kernel.values import value_class
from sandboxer.money.heartbeat import Timekeeper, open_time
from sandboxer.money.pricing import Pricing
from sandboxer.observe.events import Events
from sandboxer.observe.metrics import Metrics, Probes
from sandboxer.observe.traces import SpanSink
from sandboxer.observe.webhooks.use_cases import Webhooks
from sandboxer.payments.dependencies import Payments, open_payments
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.settings import Settings
from sandboxer.settings.strangers import backends_of
from sandboxer.store.claim import probe as write_a_row
from sandboxer.store.engine import Store, open_store
from sandboxer.store.idempotency import abandon_all_in_flight
from sandboxer.store.lock import hold_database, hold_state_dir
from sandboxer.store.sealed import forget_plain, seal_old, seal_with
from sandboxer.wire.mcp import PATH
from sandboxer.wiring.backends import BoundBackends, open_bound
from sandboxer.wiring.dependencies import (
    UpperDependencies,
    open_sandboxes,
    open_upper_dependencies,
    open_wallets,
    open_webhook_delivery,
    payment_settings,
)
from sandboxer.work.dependencies import Work

log = logging.getLogger(__name__)
# Python's own. The stack of a thread has room for about thirty times as much.
LIMIT = 1000
# Either of them imports that library, sooner or later.
_RAISERS = ("eth_account", "web3")


@value_class
class Platform(UpperDependencies):
    """Holds everything that an edge may use."""

    settings: Settings
    clock: Clock
    timekeeper: Timekeeper
    store: Store
    metrics: Metrics
    events: Events
    webhooks: Webhooks
    keys: Keys
    nonces: NonceRepository
    authenticator: Authenticator
    wallets: WalletIdentity
    key_life: KeyLife
    bearers: BearerTokens
    sandbox_tokens: SandboxTokens
    local_users: LocalUsers
    clients: Clients
    authorities: AuthorityRepository
    limiter: Limiter
    limits: LimitPolicy
    trusted_proxies: tuple[Network, ...]
    front: Front
    # What callers may make this host hold.
    budget: Budget
    pricing: Pricing
    backends: Mapping[str, Backend]
    sandboxes: SandboxDependencies
    work: Work
    payments: Payments
    probes: Probes
    # What edges do beside requests; it ends before anything else does.
    edge_tasks: TaskOwner
    # None: nobody collects them.
    spans: SpanSink | None = None
    # What a 402 says beside the prices.
    payment_offers: PaymentOffers = NO_OFFERS


@asynccontextmanager
async def open_platform(
    settings: Settings,
    *,
    clock: Clock | None = None,
    time_source: TimeSource | None = None,
    backends: Mapping[str, Backend] | None = None,
) -> AsyncIterator[Platform]:
    """Yields a running platform: reconciled, with its loops started. On leaving, sandboxes keep running.

    `backends` that are given are used instead of those the settings name, and are not closed. A `clock` that
    is given is believed as it is; a `time_source` stands in for the clocks of the host.
    """
    _make_ready(settings)
    trusted_proxies, budget = parse_networks(settings.trusted_proxies), Budget(settings.budget_bounds)
    async with _closing_with(budget) as closing:
        (store, bound), metrics = await _open_bound_store(settings, clock, backends, closing), Metrics()
        time = await closing.enter_async_context(open_time(store, metrics, clock=clock, source=time_source))
        clock, events, seal = time.clock, _open_events(store, closing), await _open_seal(settings, store)
        keys = await _open_keys(settings, store, seal, clock)
        wallets = await open_wallets(settings, store, seal, clock, keys, closing)
        authorities = await _open_accounts(store, clock, closing)
        webhooks = await open_webhook_delivery(settings, store, clock, seal, closing)
        nonces = _open_nonces(settings, clock, metrics, closing)
        paying = open_payments(payment_settings(settings), store, clock, keys, wallets.siwx, seal, webhooks)
        payments = await _opened(paying, closing)
        sandboxes, work = await closing.enter_async_context(
            open_sandboxes(settings, store, time, bound, metrics, keys, payments, budget, authorities)
        )
        above = await open_upper_dependencies(
            settings, store, clock, seal, authorities, webhooks, sandboxes, closing, budget, wallets.gate
        )
        trying = await closing.enter_async_context(own_tasks())
        await time.witness()
        yield Platform(
            settings=settings,
            clock=clock,
            timekeeper=time,
            store=store,
            metrics=metrics,
            events=events,
            webhooks=webhooks,
            keys=keys,
            nonces=nonces,
            authenticator=Authenticator(keys, nonces, wall_ahead=lambda: time.trouble),
            wallets=wallets,
            key_life=KeyLife(keys, store, clock),
            bearers=BearerTokens(keys, store),
            sandbox_tokens=SandboxTokens(keys, store, seal.derive("tokens of sandboxes")),
            local_users=_local_users(settings, store, clock),
            clients=_open_clients(settings, store, clock, keys, webhooks, above),
            authorities=authorities,
            limiter=Limiter(),
            limits=settings.limits,
            trusted_proxies=trusted_proxies,
            budget=budget,
            front=Front(settings.connection_bounds, trusted_proxies, turns=budget.turns),
            pricing=settings.prices,
            backends=bound.backends,
            sandboxes=sandboxes,
            work=work,
            payments=payments,
            probes=probes_of(settings, trying, store, nonces, bound.backends),
            edge_tasks=await closing.enter_async_context(own_tasks()),
            spans=_open_spans(settings, closing),
            payment_offers=payments.offers,
            **{each.name: getattr(above, each.name) for each in fields(above)},
        )


def _open_clients(
    settings: Settings, store: Store, clock: Clock, keys: Keys, webhooks: Webhooks, above: UpperDependencies
) -> Clients:
    url = settings.url.rstrip("/")
    return Clients(
        ClientDependencies(
            store=store,
            clock=clock,
            keys=keys,
            key_life=KeyLife(keys, store, clock),
            bearers=BearerTokens(keys, store),
            slots=above.admission.slots,
            carrier=webhooks.carrier,
            limits=settings.limits,
            is_charged=settings.is_charged,
            allow_private=settings.webhook_allow_private,
            resources=(url + PATH, url),
        )
    )


def _make_ready(settings: Settings) -> None:
    """Sets the limits of this process, and refuses to start in production without its secrets."""
    hold_recursion()
    require_session_secret(settings.session_secret, production=settings.production)


@asynccontextmanager
async def _closing_with(budget: Budget) -> AsyncIterator[AsyncExitStack]:
    """Yields a stack that closes what is opened. The threads that work beside the loop end last."""
    async with AsyncExitStack() as closing:
        closing.callback(budget.queues.close)
        yield closing


async def _open_store(settings: Settings, closing: AsyncExitStack) -> Store:
    """Opens the store for this server alone: an earlier server of this database cannot write to it any
    more.
    """
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
    """Opens the seal. From here on environments are sealed at rest, also those that an older program left
    in plain.
    """
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
    names = await asyncio.to_thread(backends_of, settings)
    bound = await open_bound(settings, store, clock or SystemClock(), backends, closing, names=names)
    await store.write(abandon_all_in_flight)
    return store, bound


async def _open_keys(settings: Settings, store: Store, seal: Seal, clock: Clock) -> Keys:
    keys = Keys(store, seal, clock=clock)
    await ensure_owner(keys, settings.owner_file, url=settings.url)
    return keys


def _local_users(settings: Settings, store: Store, clock: Clock) -> LocalUsers:
    named = settings.socket_accounts
    return LocalUsers(store=store, clock=clock, accounts=named, sandboxes_from=settings.uid_base)


def _open_events(store: Store, closing: AsyncExitStack) -> Events:
    events = Events(store)
    closing.callback(events.close)
    return events


def _open_spans(settings: Settings, closing: AsyncExitStack) -> SpanSink | None:
    """Returns what sends spans to the collector, if the settings name one."""
    if settings.otlp_endpoint is None:
        return None
    try:
        otlp = importlib.import_module("sandboxer.observe.otlp")
    except ModuleNotFoundError as error:
        why = f"{error.name} is not installed; pip install 'sandboxer[otlp]', or unset otlp_endpoint"
        raise NotAvailable(what="otlp_endpoint", why=why) from error
    spans: SpanSink = otlp.OtlpSpans(settings.otlp_endpoint, __version__)
    closing.push_async_callback(asyncio.to_thread, spans.close)
    return spans


def _open_nonces(
    settings: Settings, clock: Clock, metrics: Metrics, closing: AsyncExitStack
) -> NonceRepository:
    nonces = NonceRepository(clock.now(), journal_dir=settings.state_dir)
    closing.callback(nonces.close)
    metrics.nonces.set_function(lambda: len(nonces))
    return nonces


async def _open_accounts(store: Store, clock: Clock, closing: AsyncExitStack) -> AuthorityRepository:
    now = clock.now()
    await store.write(lambda conn: records.ensure(conn, OWNER_ACCOUNT, actor="system:start", now=now))
    authorities = AuthorityRepository(store, clock)
    closing.callback(authorities.close)
    return authorities


async def _opened(paying: AbstractAsyncContextManager[Payments], closing: AsyncExitStack) -> Payments:
    payments = await closing.enter_async_context(paying)
    # A network's libraries may have been loaded only now.
    hold_recursion()
    return payments


def hold_recursion() -> None:
    """Sets the recursion limit back. A module raises it only when it is first imported, so it is imported
    here first, where the Ethereum libraries are loaded at all: call this again after whatever may have
    loaded them.
    """
    if any(name in sys.modules for name in _RAISERS):
        importlib.import_module("py_ecc")
    sys.setrecursionlimit(LIMIT)


def probes_of(
    settings: Settings,
    owner: TaskOwner,
    store: Store,
    nonces: NonceRepository,
    backends: Mapping[str, Backend],
) -> Probes:
    probes = Probes(owner)
    probes.add("store", partial(store.probe, write_a_row))
    # Each in a thread of its own: what hangs is a disk, and it must not take the loop with it.
    probes.add("nonces", lambda: beside(nonces.check))
    probes.add("state", lambda: beside(partial(write_there, settings.state_dir)))
    for name, backend in sorted(backends.items()):
        if isinstance(backend, HasParts):
            for part, attempt in backend.parts().items():
                probes.add(f"{name}/{part}", attempt)
    return probes
