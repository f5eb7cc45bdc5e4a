"""Opens what runs code: one-shots and jobs, and the clearing away after both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sandboxer.accounts.authority import AuthorityBook
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.tasks import own_tasks
from sandboxer.observe.webhooks.room import Webhooks
from sandboxer.sandboxes.slots import Slots
from sandboxer.sandboxes.use_cases import SandboxUseCases
from sandboxer.store.engine import Store
from sandboxer.work.execute.ending import Endings
from sandboxer.work.execute.one_shot import OneShots
from sandboxer.work.execute.placing import Places
from sandboxer.work.jobs.book import JobBook
from sandboxer.work.jobs.desk import Jobs
from sandboxer.work.jobs.policy import JobPolicy
from sandboxer.work.jobs.runner import Runner
from sandboxer.work.languages.offering import HostImages


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
    authorities: AuthorityBook,
    slots: Slots,
    webhooks: Webhooks,
    policy: JobPolicy,
    images: HostImages,
) -> AsyncIterator[Execution]:
    """On leaving, jobs keep running in their sandboxes; the next server finds them."""
    async with own_tasks() as tasks:
        endings = Endings(sandboxes, store, clock, tasks)
        book = JobBook(store, clock, webhooks, kept_bytes=policy.kept_bytes)
        places = Places(sandboxes=sandboxes, authorities=authorities, slots=slots)
        runner = Runner(book=book, clock=clock, places=places, endings=endings, images=images)
        jobs = Jobs(book, runner, clock, policy, tasks)
        await jobs.adopt()
        await endings.sweep(at_start=True)
        tasks.start(jobs.run(), name="jobs")
        tasks.start(endings.run(), name="ends of runs")
        yield Execution(one_shots=OneShots(places, store, clock, endings), jobs=jobs, images=images)
