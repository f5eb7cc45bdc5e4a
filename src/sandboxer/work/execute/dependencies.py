"""Opens what runs code: one-shots and jobs, and the clearing away after both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sandboxer.accounts.authority import AuthorityRepository
from sandboxer.kernel.budget import Budget
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.tasks import own_tasks
from sandboxer.observe.webhooks.use_cases import Webhooks
from sandboxer.sandboxes.admission import Slots
from sandboxer.sandboxes.use_cases import SandboxUseCases
from sandboxer.store.engine import Store
from sandboxer.work.execute.one_shot import OneShots, Places
from sandboxer.work.execute.removal import Endings
from sandboxer.work.jobs.policy import JobPolicy
from sandboxer.work.jobs.repository import JobRepository
from sandboxer.work.jobs.runner import Runner
from sandboxer.work.jobs.use_cases import Jobs
from sandboxer.work.languages.images import HostImages


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    one_shots: OneShots
    jobs: Jobs
    images: HostImages


@asynccontextmanager
async def open_execution(
    sandboxes: SandboxUseCases,
    store: Store,
    clock: Clock,
    *,
    authorities: AuthorityRepository,
    slots: Slots,
    webhooks: Webhooks,
    policy: JobPolicy,
    images: HostImages,
    budget: Budget,
) -> AsyncIterator[Execution]:
    """On leaving, jobs keep running in their sandboxes; the next server finds them."""
    async with own_tasks() as tasks:
        endings = Endings(sandboxes, store, clock, tasks)
        repository = JobRepository(store, clock, webhooks, kept_bytes=policy.kept_bytes)
        places = Places(sandboxes=sandboxes, authorities=authorities, slots=slots)
        runner = Runner(
            repository=repository, clock=clock, places=places, endings=endings, images=images, budget=budget
        )
        jobs = Jobs(repository, runner, clock, policy, tasks)
        await jobs.adopt()
        await endings.sweep(at_start=True)
        tasks.start(jobs.run(), name="jobs")
        tasks.start(endings.run(), name="ends of runs")
        yield Execution(one_shots=OneShots(places, store, clock, endings), jobs=jobs, images=images)
