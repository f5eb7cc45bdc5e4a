"""Builds what a platform is made of, from its settings.

Webhooks, wallets and payments talk to the outside; sandboxes have their loops; execution, sessions,
services, access and artifacts are built on sandboxes.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import httpx

from sandboxer.access.egress.use_cases import Egress, open_egress
from sandboxer.access.ports.ports import Ports
from sandboxer.access.ports.targets import Target
from sandboxer.access.secrets.use_cases import Secrets, open_secrets
from sandboxer.access.ssh import Ssh, open_ssh
from sandboxer.access.sudo import SudoHook
from sandboxer.accounts.audit import SUBJECT as AUDIT
from sandboxer.accounts.authority import AuthorityRepository
from sandboxer.accounts.delegation import accounts_above
from sandboxer.agents.inception.use_cases import Inception, open_inception
from sandboxer.agents.inside.use_cases import open_descriptions
from sandboxer.artifacts.charges import KeepCharges
from sandboxer.artifacts.dependencies import Artifacts, open_artifacts
from sandboxer.artifacts.garbage import Trees
from sandboxer.artifacts.images import list_images
from sandboxer.artifacts.images.builders.workshop import BuildPolicy
from sandboxer.artifacts.images.published import records as images
from sandboxer.artifacts.snapshots import records as snapshots
from sandboxer.artifacts.volumes import records as volumes
from sandboxer.backends.contract import GivesWay
from sandboxer.identity.dependencies import WalletIdentity, open_wallet_identity
from sandboxer.identity.genesis.gate import GenesisGate, HttpRegistry
from sandboxer.identity.keys import OWNER_ACCOUNT, Keys
from sandboxer.identity.seal import Seal
from sandboxer.kernel.addresses import DialJudge
from sandboxer.kernel.budget import Budget
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.tasks import TaskOwner, own_tasks
from sandboxer.kernel.values import value_class
from sandboxer.money.heartbeat import Timekeeper
from sandboxer.money.metering import end_charges, set_policy
from sandboxer.money.reconciler import BucketTimer
from sandboxer.money.usage_feed import DailyFeed, SegmentFeed
from sandboxer.observe.metrics import Metrics
from sandboxer.observe.retention import keep_events_pruned
from sandboxer.observe.webhooks.outbox import EventFeed
from sandboxer.observe.webhooks.use_cases import Webhooks
from sandboxer.payments.dependencies import Payments, PaymentSettings
from sandboxer.sandboxes.activity import Activity
from sandboxer.sandboxes.binding import keep_counting
from sandboxer.sandboxes.charging import Charging
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.hub_feeds import PROGRESS, USAGE, FinHubFeed, StateHubFeed
from sandboxer.sandboxes.lifecycle import LIVE
from sandboxer.sandboxes.loops import start_loops
from sandboxer.sandboxes.loops.credit import CreditLoop, DelegationEnds
from sandboxer.sandboxes.loops.precedence import PrecedenceLoop
from sandboxer.sandboxes.loops.timer import record_metrics
from sandboxer.sandboxes.operations import Operations
from sandboxer.sandboxes.passing import Endings
from sandboxer.sandboxes.profiles import Profiles, load_profiles
from sandboxer.sandboxes.quarantine import Quarantine
from sandboxer.sandboxes.reconciler import reconcile
from sandboxer.sandboxes.repository import SandboxRepository
from sandboxer.sandboxes.requests import Makers
from sandboxer.sandboxes.use_cases.admission import Admission, Purchases, Slots, undo_unpaid
from sandboxer.sandboxes.use_cases.inspection import StrayProcesses, UnknownSandboxes, owners_of
from sandboxer.sandboxes.warm import Kind, WarmPool
from sandboxer.settings import Settings
from sandboxer.store.engine import Store
from sandboxer.store.kept_answers import keep_pruned
from sandboxer.wiring.backends import BoundBackends
from sandboxer.wiring.routes import made_before, routes_of
from sandboxer.work.dependencies import (
    Execution,
    Work,
    open_execution,
    open_services,
    open_sessions,
    open_work,
)
from sandboxer.work.jobs import records as jobs
from sandboxer.work.languages import HostImages, ImageContent
from sandboxer.work.retention import keep_retention, kept
from sandboxer.work.services.use_cases import ServiceUseCases
from sandboxer.work.sessions.use_cases import Sessions


@value_class
class Access:
    """Holds the ways into sandboxes and out of them."""

    ports: Ports
    secrets: Secrets
    ssh: Ssh
    egress: Egress


@value_class
class UpperDependencies:
    """Holds what is built on sandboxes."""

    execution: Execution
    sessions: Sessions
    services: ServiceUseCases
    access: Access
    artifacts: Artifacts
    admission: Admission
    purchases: Purchases
    inception: Inception


@asynccontextmanager
async def open_sandboxes(
    settings: Settings,
    store: Store,
    timekeeper: Timekeeper,
    bound: BoundBackends,
    metrics: Metrics,
    keys: Keys,
    payments: Payments,
    budget: Budget,
    authorities: AuthorityRepository,
) -> AsyncIterator[tuple[SandboxDependencies, Work]]:
    clock, profiles = timekeeper.clock, load_profiles(settings.profiles_dir)
    charging = await _charging(settings, store, timekeeper)
    # Leaving: the loops end first, then the pool is emptied, then operations still under way are undone.
    async with own_tasks() as operations:
        dependencies = SandboxDependencies(
            repository=SandboxRepository(store, clock, charging, is_by_invitation=settings.is_by_invitation),
            clock=clock,
            backends=bound.backends,
            profiles=profiles,
            operations=Operations(operations),
            activity=Activity(clock),
            warm=WarmPool(bound.backends, _warm_kinds(settings, profiles)),
            quarantine=Quarantine(store, clock, settings.quarantine_time),
            is_adopted=bound.is_adopted,
            routes=routes_of(settings, bound, clock, authorities),
            default_profile=settings.default_profile,
            retention=settings.retention_time,
            trust_max=settings.highest_trust,
            makers=Makers(settings.image_makers),
            host_names=settings.host_names,
            last_witnessed=timekeeper.last_witnessed,
        )
        dependencies.quarantine.sources += [UnknownSandboxes(dependencies), StrayProcesses(dependencies)]
        work = open_work(dependencies, clock, budget)
        record_metrics(metrics, dependencies)
        await reconcile(dependencies)
        dependencies.routes.observed.remember(made_before(dependencies))
        if payments.x402 is not None:
            await undo_unpaid(dependencies, store)
            await payments.x402.reconciler.adopt()
        living = [sandbox.id for sandbox in dependencies.repository.living() if sandbox.state in LIVE]
        try:
            async with own_tasks() as loops:
                start_loops(dependencies, loops)
                _start_precedence(settings, dependencies, store, budget, loops)
                loops.start(timekeeper.run(), name="the server's time")
                loops.start(DelegationEnds(dependencies, store, keys).run(), name="ends of delegated keys")
                if charging is not None:
                    loops.start(BucketTimer(store, clock).run(), name="buckets")
                    loops.start(CreditLoop(dependencies, store).run(), name="credit loop")
                if payments.x402 is not None:
                    loops.start(payments.x402.reconciler.run(), name="payments")
                loops.start(work.run(living), name="overdue processes")
                loops.start(keep_counting(store, bound.marked, clock), name="installation's count")
                loops.start(keep_pruned(store, clock), name="idempotency keys")
                old = kept(jobs_for=settings.job_policy.retention, records_for=settings.records_kept_for)
                loops.start(keep_retention(store, clock, old), name="old records of work")
                loops.start(
                    keep_events_pruned(store, clock, kept=settings.events_kept_for, spared=(AUDIT,)),
                    name="old events",
                )
                yield dependencies, work
        finally:
            await dependencies.warm.drain()


async def _charging(settings: Settings, store: Store, timekeeper: Timekeeper) -> Charging | None:
    """Returns how sandboxes are charged, or ends what ran when they were, if nothing is charged any more."""
    storage = settings.storage_policy
    await store.write(
        lambda conn: set_policy(
            conn, grace=settings.grace, reserve=settings.holds.slice, deposit=storage.deposit
        )
    )
    if settings.is_charged:
        return Charging(pricing=settings.prices, holds=settings.holds, storage=storage)
    now = timekeeper.clock.now()
    await store.write(lambda conn: end_charges(conn, now=now, at=timekeeper.last_witnessed))
    return None


def _start_precedence(
    settings: Settings, dependencies: SandboxDependencies, store: Store, budget: Budget, loops: TaskOwner
) -> None:
    work = dependencies.operations.work
    for name, backend in dependencies.backends.items():
        if isinstance(backend, GivesWay):
            loop = PrecedenceLoop(
                dependencies.repository, store, backend, budget.queues, work, is_on=settings.heavy_gives_way
            )
            loops.start(loop.run(), name=f"who comes last on the processor of {name}")


def _warm_kinds(settings: Settings, profiles: Profiles) -> dict[Kind, int]:
    wanted = {}
    for profile_id, number in settings.warm_pool.items():
        profile = profiles.get(profile_id)
        kind = Kind(profile.backend, profile.image, profile.resources, profile.trust, profile.sudo)
        wanted[kind] = number
    return wanted


async def open_upper_dependencies(
    settings: Settings,
    store: Store,
    clock: Clock,
    seal: Seal,
    authorities: AuthorityRepository,
    webhooks: Webhooks,
    sandboxes: SandboxDependencies,
    closing: AsyncExitStack,
    budget: Budget,
    gate: GenesisGate | None,
) -> UpperDependencies:
    slots = Slots(sandboxes, store)
    # First: whatever starts a process needs them.
    secrets = await closing.enter_async_context(
        open_secrets(sandboxes, store, clock, seal, is_charged=settings.is_charged)
    )
    sandboxes.sudo_hooks.append(SudoHook(settings.guest_dir / "sudo"))
    pricing = settings.prices if settings.is_charged else None
    egress = await closing.enter_async_context(
        open_egress(
            sandboxes,
            store,
            seal,
            secrets=secrets.vault,
            pricing=pricing,
            never=settings.never_reached,
            packages=settings.packages,
        )
    )
    execution = await closing.enter_async_context(
        _open_execution(settings, sandboxes, store, clock, authorities, slots, webhooks, budget)
    )
    sessions = await closing.enter_async_context(
        open_sessions(store, clock, sandboxes, execution.images, budget)
    )
    services = await closing.enter_async_context(
        open_services(
            sandboxes,
            store,
            clock,
            seal,
            state_dir=settings.state_dir,
            domain=settings.proxy_domain,
            domain_port=settings.domain_proof_port,
            judge=DialJudge(allow_private=settings.webhook_allow_private, never=settings.never_reached),
            domain_policy=settings.domain_policy,
        )
    )
    ssh = await open_ssh(sandboxes, store, clock)
    ports = Ports(sandboxes, store, clock, seal, services.targets(Target))
    closing.callback(ports.passages.close)
    access = Access(ports=ports, secrets=secrets, ssh=ssh, egress=egress)
    artifacts = await closing.enter_async_context(
        _open_artifacts(settings, sandboxes, store, clock, authorities, slots, budget, execution.endings)
    )
    admission = _admission(settings, sandboxes, slots, authorities, artifacts, gate)
    return UpperDependencies(
        inception=await _open_inside(settings, sandboxes, store, slots, closing),
        admission=admission,
        purchases=Purchases(
            sandboxes=sandboxes, admission=admission, pricing=settings.prices, least=settings.holds.slice
        ),
        execution=execution,
        sessions=sessions,
        services=services,
        access=access,
        artifacts=artifacts,
    )


async def _open_inside(
    settings: Settings,
    sandboxes: SandboxDependencies,
    store: Store,
    slots: Slots,
    closing: AsyncExitStack,
) -> Inception:
    opening = open_inception(sandboxes, store, slots, is_charged=settings.is_charged, policy=settings.limits)
    inception = await closing.enter_async_context(opening)
    await closing.enter_async_context(open_descriptions(sandboxes, store, inception))
    return inception


def _admission(
    settings: Settings,
    sandboxes: SandboxDependencies,
    slots: Slots,
    authorities: AuthorityRepository,
    artifacts: Artifacts,
    gate: GenesisGate | None,
) -> Admission:
    return Admission(
        dependencies=sandboxes,
        slots=slots,
        authorities=authorities,
        gate=gate,
        is_gate_demanded=settings.genesis_demanded,
        sources=(artifacts.cloning, artifacts.builders, artifacts.volumes),
    )


def _open_execution(
    settings: Settings,
    sandboxes: SandboxDependencies,
    store: Store,
    clock: Clock,
    authorities: AuthorityRepository,
    slots: Slots,
    webhooks: Webhooks,
    budget: Budget,
) -> AbstractAsyncContextManager[Execution]:
    return open_execution(
        sandboxes,
        store,
        clock,
        authorities=authorities,
        slots=slots,
        webhooks=webhooks,
        policy=settings.job_policy,
        images=HostImages(lambda: _contents(settings.images_dir)),
        budget=budget,
    )


def _contents(images_dir: Path) -> Iterator[ImageContent]:
    for image in list_images(images_dir):
        # An older tree, `name@digest`, serves disks that lie over it, not new sandboxes.
        if "@" not in image.name:
            yield ImageContent(
                name=image.name, packages=image.packages, has_file=partial(_has_file, image.rootfs)
            )


def _has_file(rootfs: Path, path: str) -> bool:
    """Says whether an image has this file. Links may point anywhere, so none is followed."""
    return os.path.lexists(rootfs / path)


def _open_artifacts(
    settings: Settings,
    sandboxes: SandboxDependencies,
    store: Store,
    clock: Clock,
    authorities: AuthorityRepository,
    slots: Slots,
    budget: Budget,
    endings: Endings,
) -> AbstractAsyncContextManager[Artifacts]:
    charges = None
    if settings.is_charged:
        charges = KeepCharges(pricing=settings.prices, holds=settings.holds, storage=settings.storage_policy)
    return open_artifacts(
        sandboxes,
        store,
        clock,
        authorities=authorities,
        slots=slots,
        budget=budget,
        charges=charges,
        policy=settings.snapshot_policy,
        image_policy=settings.image_policy,
        spool_dir=settings.state_dir / "imports",
        lists_dir=settings.state_dir / "image-lists",
        default_profile=settings.default_profile,
        volume_policy=settings.volume_policy,
        trees=Trees(settings.images_dir, is_ours=settings.images_dir.is_relative_to(settings.state_dir)),
        garbage_grace=settings.garbage_kept_for,
        endings=endings,
        build_policy=BuildPolicy(
            default_registry=settings.default_registry,
            cache_mb=settings.build_cache_mb,
            disk_mb=settings.build_disk_mb,
        ),
    )


async def open_webhook_delivery(
    settings: Settings, store: Store, clock: Clock, seal: Seal, closing: AsyncExitStack
) -> Webhooks:
    feeds = (
        EventFeed(
            lambda conn, subjects: (
                owners_of(conn, subjects)
                | jobs.rows.owners(conn, subjects)
                | snapshots.rows.owners(conn, subjects)
                | images.rows.owners(conn, subjects)
                | volumes.rows.owners(conn, subjects)
            )
        ),
        SegmentFeed(),
        DailyFeed(),
        StateHubFeed(),
        FinHubFeed(settings.fixed_usd_per_btc),
    )
    webhooks = Webhooks(
        store,
        clock,
        seal,
        feeds,
        allow_private=settings.webhook_allow_private,
        never=settings.never_reached,
        above=accounts_above,
    )
    await tell_hubs(settings, webhooks)
    return await closing.enter_async_context(webhooks.delivering())


async def tell_hubs(settings: Settings, webhooks: Webhooks) -> None:
    """Lets the hubs that the settings name hear of every account from now on, unless they do already."""
    for url, path, kind in (
        (settings.state_hub_url, "/progress/", PROGRESS),
        (settings.fin_hub_url, "/usage/sandbox", USAGE),
    ):
        if url is not None:
            await webhooks.hear_once(
                OWNER_ACCOUNT, url.rstrip("/") + path, kinds=[kind], actor="system:settings"
            )


async def open_wallets(
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


def payment_settings(settings: Settings) -> PaymentSettings:
    key = settings.x402_signer_key
    return PaymentSettings(
        url=settings.url,
        state_dir=settings.state_dir,
        is_charged=settings.is_charged,
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
