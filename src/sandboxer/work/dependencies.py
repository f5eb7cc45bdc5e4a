"""This module builds the use cases of the package: commands and files, code execution, sessions and services.

Each `open_*` function reads what was recorded, finds what still runs, and starts the loops. The edges hold
the returned objects and nothing else of the package.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from sandboxer.accounts.authority import AuthorityRepository
from sandboxer.identity.keys import Caller
from sandboxer.identity.seal import Seal
from sandboxer.kernel.addresses import DialJudge
from sandboxer.kernel.budget import Budget
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import SandboxerError
from sandboxer.kernel.tasks import own_tasks
from sandboxer.kernel.values import value_class
from sandboxer.observe.webhooks.use_cases import Webhooks
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import LIVE
from sandboxer.sandboxes.passing import Endings
from sandboxer.sandboxes.use_cases.access import ActivityKind, open_line
from sandboxer.sandboxes.use_cases.admission import Slots
from sandboxer.store.engine import Store
from sandboxer.work.exec import Exec, Overdue
from sandboxer.work.execute.one_shot import OneShots, Places
from sandboxer.work.files import Archives, SandboxFiles
from sandboxer.work.jobs.records import JobPolicy
from sandboxer.work.jobs.repository import JobRepository
from sandboxer.work.jobs.runner import Runner
from sandboxer.work.jobs.use_cases import Jobs
from sandboxer.work.languages import HostImages
from sandboxer.work.lines import Lines
from sandboxer.work.processes import Processes, Terminals
from sandboxer.work.services.dependencies import ServiceDependencies, Vault
from sandboxer.work.services.domains import Domains, Rechecking, Resolve, asking, system_resolver
from sandboxer.work.services.lifecycle import DomainPolicy
from sandboxer.work.services.reconciler import Supervisor
from sandboxer.work.services.repository import ServiceRepository
from sandboxer.work.services.use_cases import ServiceUseCases
from sandboxer.work.sessions.reconciler import SessionReconciler
from sandboxer.work.sessions.records import Session, Signal, State
from sandboxer.work.sessions.repository import ACTOR, SessionRepository, Step, over
from sandboxer.work.sessions.shelf import Shelf, ShelfBounds
from sandboxer.work.sessions.survivors import Survivors
from sandboxer.work.sessions.use_cases import Sessions
from sandboxer.work.watchers import Watchers

# The platform acts as this caller when it ends overdue processes; it may reach into every sandbox.
OVERDUE = Caller(public_key="system:overdue", account="system", is_owner=True)


@value_class
class Work:
    exec: Exec
    processes: Processes
    files: SandboxFiles
    archives: Archives
    terminals: Terminals
    watchers: Watchers
    overdue: Overdue

    async def run(self, living: Iterable[str]) -> None:
        """Enforces time limits until it is cancelled, including those of sandboxes in `living` that started
        before this server.
        """
        async with own_tasks() as tasks:
            self.watchers.begin(tasks)
            for sandbox_id in living:
                await self.overdue.adopt(sandbox_id)
            await self.overdue.run()


def open_work(sandboxes: SandboxDependencies, clock: Clock, budget: Budget) -> Work:
    lines = Lines(sandboxes)
    overdue = Overdue(clock, lambda id_: open_line(sandboxes, id_, OVERDUE, activity=ActivityKind.PROCESSES))
    files = SandboxFiles(lines)
    return Work(
        exec=Exec(lines, clock),
        processes=Processes(lines, clock, overdue),
        files=files,
        watchers=Watchers(files, budget),
        archives=Archives(lines),
        terminals=Terminals(lines),
        overdue=overdue,
    )


@value_class
class Execution:
    one_shots: OneShots
    jobs: Jobs
    images: HostImages
    endings: Endings


@asynccontextmanager
async def open_execution(
    sandboxes: SandboxDependencies,
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
    """Opens one-shot runs and jobs. On leaving, jobs keep running in their sandboxes and the next server
    finds them.
    """
    async with own_tasks() as tasks:
        endings = Endings(sandboxes, store, clock, tasks)
        repository = JobRepository(store, clock, webhooks, kept_bytes=policy.kept_bytes)
        places = Places(sandboxes=sandboxes, authorities=authorities, slots=slots)
        runner = Runner(
            repository=repository, clock=clock, places=places, endings=endings, images=images, budget=budget
        )
        jobs = Jobs(repository, runner, policy, tasks)
        await jobs.adopt()
        await endings.sweep(at_start=True)
        tasks.start(jobs.run(), name="jobs")
        tasks.start(endings.run(), name="ends of runs")
        one_shots = OneShots(places, store, clock, endings)
        yield Execution(one_shots=one_shots, jobs=jobs, images=images, endings=endings)


log = logging.getLogger(__name__)
# How long one sandbox may take to say what became of its interpreter.
ADOPT_S = 10.0


@asynccontextmanager
async def open_sessions(
    store: Store, clock: Clock, sandboxes: SandboxDependencies, images: HostImages, budget: Budget
) -> AsyncIterator[Sessions]:
    """Opens sessions. Sandboxes must have been reconciled before. On leaving, interpreters keep running."""
    async with own_tasks() as tasks:
        shelf = Shelf(ShelfBounds.beside(budget.bounds))
        repository = SessionRepository(store, clock, sandboxes, tasks, shelf)
        sessions, loop = Sessions(repository, images), SessionReconciler(repository, tasks)
        for session in await repository.load():
            await _take_up(session, sessions, repository)
        tasks.start(loop.run(), name="sessions")
        survivors = Survivors(sessions, repository)
        sandboxes.start_hooks.append(survivors)
        try:
            yield sessions
        finally:
            sandboxes.start_hooks.remove(survivors)
            await repository.write_down()


async def _take_up(session: Session, sessions: Sessions, repository: SessionRepository) -> None:
    sandbox = repository.sandboxes.repository.peek(session.sandbox_id)
    try:
        if sandbox is None:
            await repository.move(session.id, over(ACTOR, "sandbox_ended"))
        elif sandbox.state in LIVE:
            async with asyncio.timeout(ADOPT_S):
                await sessions.adopt(session)
        elif session.state is not State.DIED:
            reason = f"sandbox_{sandbox.state.value}"
            await repository.move(session.id, Step(signal=Signal.GONE, actor=ACTOR, reason=reason))
    except (SandboxerError, OSError) as error:
        # TimeoutError too: one sandbox that does not answer must not keep the platform from starting.
        log.warning("could not find the interpreter of %s again: %r", session.id, error)


@asynccontextmanager
async def open_services(
    sandboxes: SandboxDependencies,
    store: Store,
    clock: Clock,
    seal: Seal,
    *,
    state_dir: Path,
    domain: str,
    domain_port: int,
    judge: DialJudge,
    domain_policy: DomainPolicy,
    resolve: Resolve | None = None,
) -> AsyncIterator[ServiceUseCases]:
    """Opens services. Sandboxes must have been reconciled before. On leaving, services keep running
    unattended.

    `domain` is the platform's own, below which every service has a name. `domain_port`, `judge` and `resolve`
    (which finds the addresses of a name) serve the proof that a domain belongs to somebody.
    """
    repository = ServiceRepository(store, clock)
    await repository.load()
    dependencies = ServiceDependencies(
        repository=repository,
        sandboxes=sandboxes,
        clock=clock,
        vault=Vault(seal),
        folder=state_dir / "services",
    )
    ask = asking(
        port=domain_port, judge=judge, resolve=resolve or system_resolver(), served_here=repository.proof_of
    )
    async with own_tasks() as tasks:
        supervisor = Supervisor(dependencies, tasks)
        await supervisor.adopt()
        rechecking = Rechecking(repository, clock, ask, domain_policy)
        tasks.start(rechecking.run(), name="proofs of domains")
        yield ServiceUseCases(dependencies, supervisor, Domains(repository, clock, ask, ours=domain), domain)
