"""Sandboxes and their work, with the loops that turn for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandboxer.accounts.audit import SUBJECT as AUDIT
from sandboxer.identity.keys import Keys
from sandboxer.kernel.tasks import own_tasks
from sandboxer.money.holds import set_policy
from sandboxer.money.timekeeper import Timekeeper
from sandboxer.money.timer import BucketTimer
from sandboxer.observe.metrics import Metrics
from sandboxer.observe.pruning import keep_events_pruned
from sandboxer.payments.room import Payments
from sandboxer.sandboxes.activity import Activity
from sandboxer.sandboxes.binding import keep_counting
from sandboxer.sandboxes.book import Book
from sandboxer.sandboxes.charging import Charging
from sandboxer.sandboxes.figures import keep_figures
from sandboxer.sandboxes.lifecycle import LIVE
from sandboxer.sandboxes.loops import start_loops
from sandboxer.sandboxes.loops.delegation import DelegationEnds
from sandboxer.sandboxes.loops.purse import Purse
from sandboxer.sandboxes.operations import Operations
from sandboxer.sandboxes.profiles import Profiles
from sandboxer.sandboxes.quarantine.use_cases import Quarantine
from sandboxer.sandboxes.reconcile import reconcile
from sandboxer.sandboxes.room import Room
from sandboxer.sandboxes.stale import StrayProcesses, UnknownSandboxes
from sandboxer.sandboxes.unpaid import undo_unpaid
from sandboxer.sandboxes.use_cases import SandboxUseCases
from sandboxer.sandboxes.warm import Kind, WarmPool
from sandboxer.settings import Settings
from sandboxer.store.engine import Store
from sandboxer.store.kept_answers import keep_pruned
from sandboxer.wiring.backends import BoundBackends
from sandboxer.work.forgetting import keep_forgetting, kept
from sandboxer.work.room import Work, open_work


@asynccontextmanager
async def open_sandbox_rooms(
    settings: Settings,
    store: Store,
    keeper: Timekeeper,
    profiles: Profiles,
    bound: BoundBackends,
    metrics: Metrics,
    keys: Keys,
    payments: Payments,
) -> AsyncIterator[tuple[SandboxUseCases, Work]]:
    charging, clock = None, keeper.clock
    storage = settings.storage_policy
    await store.write(
        lambda conn: set_policy(
            conn, grace=settings.grace, reserve=settings.holds.slice, deposit=storage.deposit
        )
    )
    if settings.charging:
        charging = Charging(pricing=settings.prices, holds=settings.holds, storage=storage)
    # Leaving: the loops end first, then the pool is emptied, then operations still under way are undone.
    async with own_tasks() as operations:
        room = Room(
            book=Book(store, clock, charging),
            clock=clock,
            backends=bound.backends,
            profiles=profiles,
            operations=Operations(operations),
            activity=Activity(clock),
            warm=WarmPool(bound.backends, _warm_kinds(settings, profiles)),
            quarantine=Quarantine(store, clock, settings.quarantine_time),
            is_adopted=bound.is_adopted,
            default_profile=settings.default_profile,
            retention=settings.retention_time,
            trust_max=settings.highest_trust,
            last_witnessed=keeper.last_witnessed,
        )
        room.quarantine.sources += [UnknownSandboxes(room), StrayProcesses(room)]
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
                loops.start(keeper.run(), name="the server's time")
                loops.start(DelegationEnds(room, store, keys).run(), name="ends of delegated keys")
                if charging is not None:
                    loops.start(BucketTimer(store, clock).run(), name="buckets")
                    loops.start(Purse(room, store).run(), name="purse")
                if payments.x402 is not None:
                    loops.start(payments.x402.reconciler.run(), name="payments")
                loops.start(work.run(living), name="overdue processes")
                loops.start(keep_counting(store, bound.backends, clock), name="installation's count")
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


def _warm_kinds(settings: Settings, profiles: Profiles) -> dict[Kind, int]:
    wanted = {}
    for profile_id, number in settings.warm_pool.items():
        profile = profiles.get(profile_id)
        wanted[Kind(profile.backend, profile.image, profile.resources, profile.trust)] = number
    return wanted
