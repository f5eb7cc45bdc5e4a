"""Where the rooms meet: the only place that knows concrete classes, and the order they open and close in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import httpx

from sandboxer.access.egress.room import open_egress
from sandboxer.access.ports.targets import Target
from sandboxer.access.room import Access, open_access
from sandboxer.access.secrets.room import open_secrets
from sandboxer.access.ssh.room import open_ssh
from sandboxer.accounts import records
from sandboxer.accounts.audit import SUBJECT as AUDIT
from sandboxer.accounts.authority import AuthorityBook
from sandboxer.accounts.limiter import Limiter
from sandboxer.accounts.limits import LimitPolicy, Network, parse_networks
from sandboxer.accounts.offers import NO_OFFERS, PaymentOffers
from sandboxer.accounts.tree import accounts_above
from sandboxer.artifacts.garbage.trees import Trees
from sandboxer.artifacts.images.published.records import owners_of_images
from sandboxer.artifacts.room import Artifacts, open_artifacts
from sandboxer.artifacts.snapshots.charging import KeepCharges
from sandboxer.artifacts.snapshots.records import owners_of_snapshots
from sandboxer.artifacts.volumes.records import owners_of_volumes
from sandboxer.backends.contract import Backend
from sandboxer.backends.namespaces.settings import NamespacesSettings, Overcommit
from sandboxer.backends.registry import find_opener
from sandboxer.identity.authenticate import Authenticator
from sandboxer.identity.genesis.registry import HttpRegistry
from sandboxer.identity.key_life import KeyLife
from sandboxer.identity.keys import OWNER_ACCOUNT, Keys
from sandboxer.identity.nonces import NonceBook
from sandboxer.identity.owner import ensure_owner
from sandboxer.identity.seal import Seal, open_seal
from sandboxer.identity.sessions.token_keys import require_session_secret
from sandboxer.identity.wallet_identity import WalletIdentity, open_wallet_identity
from sandboxer.kernel.clock import Clock, SystemClock
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.tasks import own_tasks
from sandboxer.money.buckets import set_policy
from sandboxer.money.pricing import Pricing
from sandboxer.money.timer import BucketTimer
from sandboxer.money.usage_feed import DailyFeed, SegmentFeed
from sandboxer.observe.events import Events
from sandboxer.observe.metrics import Metrics
from sandboxer.observe.pruning import keep_events_pruned
from sandboxer.observe.webhooks.feeds import EventFeed
from sandboxer.observe.webhooks.room import Webhooks, open_webhooks
from sandboxer.payments.room import Payments, PaymentSettings, open_payments
from sandboxer.sandboxes.activity import Activity
from sandboxer.sandboxes.book import Book
from sandboxer.sandboxes.charging import Charging
from sandboxer.sandboxes.figures import keep_figures
from sandboxer.sandboxes.lifecycle import LIVE
from sandboxer.sandboxes.loops import start_loops
from sandboxer.sandboxes.loops.delegation import DelegationEnds
from sandboxer.sandboxes.loops.purse import Purse
from sandboxer.sandboxes.operations import Operations
from sandboxer.sandboxes.profiles import Profiles, load_profiles
from sandboxer.sandboxes.reconcile import reconcile
from sandboxer.sandboxes.room import Room
from sandboxer.sandboxes.slots import Slots
from sandboxer.sandboxes.unpaid import undo_unpaid
from sandboxer.sandboxes.use_cases import SandboxUseCases
from sandboxer.sandboxes.warm import Kind, WarmPool
from sandboxer.sandboxes.whose import owners_of
from sandboxer.settings import Settings
from sandboxer.store.engine import Store, open_store
from sandboxer.store.idempotency import abandon_all_in_flight, keep_pruned
from sandboxer.store.lock import hold_database, hold_state_dir
from sandboxer.work.execute.room import Execution, open_execution
from sandboxer.work.forgetting import keep_forgetting, kept
from sandboxer.work.jobs.records import owners_of_jobs
from sandboxer.work.room import Work, open_work
from sandboxer.work.services.room import open_services
from sandboxer.work.services.use_cases import ServiceUseCases
from sandboxer.work.sessions.room import open_sessions
from sandboxer.work.sessions.sessions import Sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """Everything an edge may hold."""

    settings: Settings
    clock: Clock
    store: Store
    metrics: Metrics
    events: Events
    webhooks: Webhooks
    keys: Keys
    nonces: NonceBook
    authenticator: Authenticator
    wallets: WalletIdentity
    key_life: KeyLife
    authorities: AuthorityBook
    limiter: Limiter
    limits: LimitPolicy
    trusted_proxies: tuple[Network, ...]
    pricing: Pricing
    backends: Mapping[str, Backend]
    sandboxes: SandboxUseCases
    slots: Slots
    work: Work
    execution: Execution
    sessions: Sessions
    services: ServiceUseCases
    access: Access
    artifacts: Artifacts
    payments: Payments
    # What a 402 says beside the prices.
    payment_offers: PaymentOffers = NO_OFFERS


@asynccontextmanager
async def open_platform(
    settings: Settings, *, clock: Clock | None = None, backends: Mapping[str, Backend] | None = None
) -> AsyncIterator[Platform]:
    """A running platform: reconciled, its loops turning. On leaving, sandboxes keep running.

    `backends` that are given are used instead of those the settings name, and are not closed.
    """
    clock = clock or SystemClock()
    require_session_secret(settings.session_secret, production=settings.production)
    trusted_proxies = parse_networks(settings.trusted_proxies)
    async with AsyncExitStack() as closing:
        closing.enter_context(hold_state_dir(settings.state_dir))
        closing.enter_context(hold_database(settings.database_url))
        store = await asyncio.to_thread(open_store, settings.database_url, durability=settings.durability)
        closing.push_async_callback(store.close)
        await store.write(abandon_all_in_flight)
        metrics = Metrics()
        events = Events(store)
        closing.callback(events.close)
        seal = open_seal(settings.master_key_file)
        keys = Keys(store, seal, clock=clock)
        await ensure_owner(keys, settings.owner_file, url=settings.url)
        wallets = await _open_wallets(settings, store, seal, clock, keys, closing)
        authorities = await _open_accounts(store, clock, closing)
        webhooks = await _open_webhooks(settings, store, clock, seal, closing)
        nonces = NonceBook(clock.now(), journal_dir=settings.state_dir)
        closing.callback(nonces.close)
        metrics.nonces.set_function(lambda: len(nonces))
        profiles = load_profiles(settings.profiles_dir)
        if backends is None:
            backends = await _open_backends(settings, closing)
        payments = await closing.enter_async_context(
            open_payments(_payment_settings(settings), store, clock, keys, wallets.siwx, seal, webhooks)
        )
        sandboxes, work = await closing.enter_async_context(
            _open_rooms(settings, store, clock, profiles, backends, metrics, keys, payments)
        )
        above = await _open_above(settings, store, clock, seal, authorities, webhooks, sandboxes, closing)
        yield Platform(
            settings=settings,
            clock=clock,
            store=store,
            metrics=metrics,
            events=events,
            webhooks=webhooks,
            keys=keys,
            nonces=nonces,
            authenticator=Authenticator(keys, nonces),
            wallets=wallets,
            key_life=KeyLife(keys, store, clock),
            authorities=authorities,
            limiter=Limiter(),
            limits=_limits(settings),
            trusted_proxies=trusted_proxies,
            pricing=settings.prices,
            backends=backends,
            sandboxes=sandboxes,
            slots=above.slots,
            work=work,
            access=above.access,
            artifacts=above.artifacts,
            execution=above.execution,
            sessions=above.sessions,
            services=above.services,
            payments=payments,
            payment_offers=payments.offers,
        )


def _open_artifacts(
    settings: Settings,
    sandboxes: SandboxUseCases,
    store: Store,
    clock: Clock,
    authorities: AuthorityBook,
    slots: Slots,
) -> AbstractAsyncContextManager[Artifacts]:
    charges = KeepCharges(pricing=settings.prices, holds=settings.holds) if settings.charging else None
    return open_artifacts(
        sandboxes,
        store,
        clock,
        authorities=authorities,
        slots=slots,
        charges=charges,
        policy=settings.snapshot_policy,
        image_policy=settings.image_policy,
        spool_dir=settings.state_dir / "imports",
        lists_dir=settings.state_dir / "image-lists",
        default_profile=settings.default_profile,
        volume_policy=settings.volume_policy,
        trees=Trees(settings.images_dir, is_ours=settings.images_dir.is_relative_to(settings.state_dir)),
        garbage_grace=settings.garbage_kept_for,
    )


@asynccontextmanager
async def _open_rooms(
    settings: Settings,
    store: Store,
    clock: Clock,
    profiles: Profiles,
    backends: Mapping[str, Backend],
    metrics: Metrics,
    keys: Keys,
    payments: Payments,
) -> AsyncIterator[tuple[SandboxUseCases, Work]]:
    charging = None
    await store.write(lambda conn: set_policy(conn, grace=settings.grace, reserve=settings.holds.slice))
    if settings.charging:
        charging = Charging(pricing=settings.prices, holds=settings.holds)
    # Leaving: the loops end first, then the pool is emptied, then operations still under way are undone.
    async with own_tasks() as operations:
        room = Room(
            book=Book(store, clock, charging),
            clock=clock,
            backends=backends,
            profiles=profiles,
            operations=Operations(operations),
            activity=Activity(clock),
            warm=WarmPool(backends, _warm_kinds(settings, profiles)),
            default_profile=settings.default_profile,
            retention=settings.retention_time,
            trust_max=settings.highest_trust,
        )
        sandboxes = SandboxUseCases(room)
        work = open_work(sandboxes, clock)
        keep_figures(metrics, room)
        await reconcile(room)
        if payments.x402 is not None:
            await undo_unpaid(room, store)
            await payments.x402.reconciler.adopt()
        living = [sandbox.id for sandbox in room.book.living() if sandbox.state in LIVE]
        try:
            async with own_tasks() as loops:
                start_loops(room, loops)
                loops.start(DelegationEnds(room, store, keys).run(), name="ends of delegated keys")
                if charging is not None:
                    loops.start(BucketTimer(store, clock).run(), name="buckets")
                    loops.start(Purse(room, store).run(), name="purse")
                if payments.x402 is not None:
                    loops.start(payments.x402.reconciler.run(), name="payments")
                loops.start(work.run(living), name="overdue processes")
                loops.start(keep_pruned(store, clock), name="idempotency keys")
                old = kept(jobs_for=settings.job_policy.retention, records_for=settings.records_kept_for)
                loops.start(keep_forgetting(store, clock, old), name="old records of work")
                loops.start(
                    keep_events_pruned(store, clock, kept=settings.events_kept_for, spared=(AUDIT,)),
                    name="old events",
                )
                yield sandboxes, work
        finally:
            await room.warm.drain()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Above:
    """The rooms that stand on sandboxes."""

    slots: Slots
    execution: Execution
    sessions: Sessions
    services: ServiceUseCases
    access: Access
    artifacts: Artifacts


async def _open_above(
    settings: Settings,
    store: Store,
    clock: Clock,
    seal: Seal,
    authorities: AuthorityBook,
    webhooks: Webhooks,
    sandboxes: SandboxUseCases,
    closing: AsyncExitStack,
) -> _Above:
    slots = Slots(sandboxes.room, store)
    # First: whatever starts a process needs them.
    secrets = await closing.enter_async_context(open_secrets(sandboxes, store, clock, seal))
    pricing = settings.prices if settings.charging else None
    egress = await closing.enter_async_context(
        open_egress(
            sandboxes, store, seal, secrets=secrets.vault, pricing=pricing, never=settings.never_reached
        )
    )
    execution = await closing.enter_async_context(
        open_execution(
            sandboxes,
            store,
            clock,
            authorities=authorities,
            slots=slots,
            webhooks=webhooks,
            policy=settings.job_policy,
        )
    )
    sessions = await closing.enter_async_context(open_sessions(store, clock, sandboxes))
    services = await closing.enter_async_context(
        open_services(
            sandboxes,
            store,
            clock,
            seal,
            state_dir=settings.state_dir,
            domain=settings.proxy_domain,
            domain_port=settings.domain_proof_port,
            allow_private=settings.webhook_allow_private,
            domain_policy=settings.domain_policy,
        )
    )
    ssh = await open_ssh(sandboxes, store, clock)
    access = closing.enter_context(
        open_access(
            sandboxes,
            store,
            clock,
            seal,
            secrets=secrets,
            ssh=ssh,
            egress=egress,
            targets=services.targets(Target),
        )
    )
    artifacts = await closing.enter_async_context(
        _open_artifacts(settings, sandboxes, store, clock, authorities, slots)
    )
    return _Above(
        slots=slots,
        execution=execution,
        sessions=sessions,
        services=services,
        access=access,
        artifacts=artifacts,
    )


async def _open_webhooks(
    settings: Settings, store: Store, clock: Clock, seal: Seal, closing: AsyncExitStack
) -> Webhooks:
    feeds = (
        EventFeed(
            lambda conn, subjects: (
                owners_of(conn, subjects)
                | owners_of_jobs(conn, subjects)
                | owners_of_snapshots(conn, subjects)
                | owners_of_images(conn, subjects)
                | owners_of_volumes(conn, subjects)
            )
        ),
        SegmentFeed(),
        DailyFeed(),
    )
    return await closing.enter_async_context(
        open_webhooks(
            store,
            clock,
            seal,
            feeds,
            allow_private=settings.webhook_allow_private,
            above=accounts_above,
        )
    )


async def _open_wallets(
    settings: Settings, store: Store, seal: Seal, clock: Clock, keys: Keys, closing: AsyncExitStack
) -> WalletIdentity:
    registry = None
    if settings.genesis_registry_url is not None:
        client = await closing.enter_async_context(httpx.AsyncClient())
        registry = HttpRegistry(settings.genesis_registry_url, client, clock)
    elif settings.genesis_demanded:
        raise InvalidRequest(field="genesis_registry_url", why="genesis_demanded needs a registry to ask")
    return await open_wallet_identity(
        store,
        seal,
        clock,
        keys,
        url=settings.url,
        session_secret=settings.session_secret,
        production=settings.production,
        allow_test_networks=settings.allow_test_networks,
        registry=registry,
        genesis_level=settings.genesis_level,
    )


async def _open_accounts(store: Store, clock: Clock, closing: AsyncExitStack) -> AuthorityBook:
    now = clock.now()
    await store.write(lambda conn: records.ensure(conn, OWNER_ACCOUNT, actor="system:start", now=now))
    authorities = AuthorityBook(store, clock)
    closing.callback(authorities.close)
    return authorities


def _payment_settings(settings: Settings) -> PaymentSettings:
    key = settings.x402_signer_key
    return PaymentSettings(
        url=settings.url,
        state_dir=settings.state_dir,
        charging=settings.charging,
        x402=settings.x402,
        signer_key=None if key is None else key.get_secret_value(),
        fixed_rates=settings.fixed_rates,
        rates=settings.rates,
        chains=settings.chain_plans,
        invoices=settings.invoices,
        hot_wallet=settings.hot_wallet_plan,
        gift_cards=settings.gift_cards,
        mail=settings.mail_server,
        tiers=settings.prices.tiers,
    )


def _limits(settings: Settings) -> LimitPolicy:
    return LimitPolicy(
        tiers=settings.prices.tiers,
        bucket_only=settings.limit_bucket_only,
        address=settings.limit_address,
        auth_address=settings.limit_auth,
        auth_key=settings.limit_auth,
    )


async def _open_backends(settings: Settings, closing: AsyncExitStack) -> Mapping[str, Backend]:
    opened = {}
    for name in settings.backends:
        opener = find_opener(name)
        own = namespaces_settings(settings) if name == "ext.namespaces" else settings
        backend = await closing.enter_async_context(opener(own))
        opened[backend.name] = backend
    return opened


def namespaces_settings(settings: Settings) -> NamespacesSettings:
    """What the default backend needs to know of the settings."""
    return NamespacesSettings(
        state_dir=settings.state_dir,
        images_dir=settings.images_dir,
        guest_dir=settings.guest_dir,
        pool_size_mb=settings.pool_size_mb,
        overcommit=Overcommit(
            memory=settings.overcommit_memory, cpu=settings.overcommit_cpu, pids=settings.overcommit_pids
        ),
    )


def _warm_kinds(settings: Settings, profiles: Profiles) -> dict[Kind, int]:
    wanted = {}
    for profile_id, number in settings.warm_pool.items():
        profile = profiles.get(profile_id)
        wanted[Kind(profile.backend, profile.image, profile.resources, profile.trust)] = number
    return wanted
