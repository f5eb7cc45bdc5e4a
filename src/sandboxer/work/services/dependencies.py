"""Opens what services need: the repository is read and the reconcilers are started."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sandboxer.identity.seal import Seal
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.dial_judge import DialJudge
from sandboxer.kernel.tasks import own_tasks
from sandboxer.sandboxes.use_cases import SandboxUseCases
from sandboxer.store.engine import Store
from sandboxer.work.services.domain_proof import Resolve, asking, system_resolver
from sandboxer.work.services.domains import Domains, Rechecking
from sandboxer.work.services.keeping.means import Means, Vault
from sandboxer.work.services.keeping.supervisor import Supervisor
from sandboxer.work.services.repository import ServiceRepository
from sandboxer.work.services.specs import DomainPolicy
from sandboxer.work.services.use_cases import ServiceUseCases


@asynccontextmanager
async def open_services(
    sandboxes: SandboxUseCases,
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
    """After sandboxes were reconciled. On leaving, services go on and nobody keeps them.

    `domain` is the platform's own, below which every service has a name; `domain_port` and `judge`
    are for the proof that a domain is somebody's, as is `resolve`, which finds the addresses of a name.
    """
    repository = ServiceRepository(store, clock)
    await repository.load()
    means = Means(
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
        supervisor = Supervisor(means, tasks)
        await supervisor.adopt()
        rechecking = Rechecking(repository, clock, ask, domain_policy)
        tasks.start(rechecking.run(), name="proofs of domains")
        yield ServiceUseCases(means, supervisor, Domains(repository, clock, ask, ours=domain), domain)
