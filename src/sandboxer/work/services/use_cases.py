"""The use cases of services. The edges call these and nothing else of the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Conflict, Forbidden, NotFound
from sandboxer.kernel.values import brief_value_class
from sandboxer.sandboxes.dependencies import actor_of
from sandboxer.sandboxes.exposure import Exposure, Inspect
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.use_cases import lifetime, pause
from sandboxer.store.repository import Also
from sandboxer.store.rows import Page
from sandboxer.work.services import deployment
from sandboxer.work.services.dependencies import SYSTEM, ServiceDependencies
from sandboxer.work.services.deployment import Redeployment
from sandboxer.work.services.domains import Domains, MakeTarget, ServiceTargets, T
from sandboxer.work.services.lifecycle import (
    ALIVE,
    KEPT,
    NewService,
    Redeploy,
    SandboxStatus,
    Signal,
    Spec,
    State,
    runs_alike,
)
from sandboxer.work.services.logs import ServiceLog
from sandboxer.work.services.reconciler import Supervisor
from sandboxer.work.services.records import Service, drop_domain, rows
from sandboxer.work.services.repository import Step

# A caller who waits is answered when the service reaches one of these states.
_SETTLED = frozenset({State.RUNNING, State.UNHEALTHY, State.STOPPED, State.FAILED, State.CRASH_LOOPING})
_MARGIN_S = 5.0


@brief_value_class
class ServiceUseCases:
    dependencies: ServiceDependencies
    supervisor: Supervisor
    domains: Domains
    # The platform's domain, below which every service has a name.
    domain: str

    def targets(self, make: MakeTarget[T]) -> ServiceTargets[T]:
        """Returns the names of services for the reverse proxy."""
        return ServiceTargets(self.dependencies, self.supervisor, make, domain=self.domain)

    def host(self, service: Service) -> str:
        return f"{service.slug}.{self.domain}"

    async def create(
        self, wanted: NewService, caller: Caller, *, wait: bool = True, also: Also | None = None
    ) -> Service:
        """Makes a sandbox, writes the files into it and starts the process; with `wait`, returns when that
        has succeeded or failed.

        `also` is written in the transaction of the record, with its id. Raises Conflict for a name that is
        taken, and whatever refuses a sandbox.
        """
        service = await deployment.create(self.dependencies, self.supervisor, wanted, caller, also=also)
        return await self._settled(service) if wait else service

    async def recall(self, service_id: str, caller: Caller, *, wait: bool) -> Service | None:
        """Returns the service of a create whose answer was lost, or None if nothing was made."""
        try:
            service = self.get(service_id, caller)
        except NotFound:
            return None
        return await self._settled(service) if wait else service

    async def list(
        self, caller: Caller, *, state: State | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[Service]:
        """Returns services, newest first, without those that were removed. The owner sees everyone's."""
        account = None if caller.is_owner else caller.account
        query = rows.matching(account=account, state=state).where(rows.is_left)
        return await self.dependencies.repository.page(query, cursor=cursor, limit=limit)

    def get(self, service_id: str, caller: Caller) -> Service:
        """Returns the service with this id or name. Raises NotFound."""
        return self.dependencies.repository.visible(service_id, caller)

    def glance(self, service: Service) -> Sandbox | None:
        """Returns the service's sandbox from memory, or None if it is gone."""
        return self.dependencies.sandboxes.repository.peek(service.sandbox_id)

    def exposure(self, service: Service) -> Exposure | None:
        """Returns what was found when it was opened to everyone; None: nobody looked since the start."""
        return self.dependencies.exposures.get(service.id)

    async def sandbox(self, service: Service) -> Sandbox:
        return await self.dependencies.sandboxes.visible(service.sandbox_id, SYSTEM)

    async def change(
        self,
        service_id: str,
        caller: Caller,
        spec: Spec,
        *,
        wait: bool = True,
        inspect: Inspect | None = None,
    ) -> Service:
        """Changes settings. A change of the program starts a new process, as a redeploy does.

        One that is opened to everyone is looked at first, as `inspect` says.
        """
        service = self.get(service_id, caller)
        if spec.is_public and not service.spec.is_public:
            await self.dependencies.before_opening(service, caller, inspect)
        if not runs_alike(service.spec, spec):
            return await self._redeploy(service, spec, caller, wait=wait)
        return await self._keep_spec(service, spec, caller)

    async def redeploy(
        self,
        service_id: str,
        caller: Caller,
        wanted: Redeploy,
        *,
        wait: bool = True,
        may_wake: bool = True,
    ) -> Service:
        """Replaces the process. Raises Conflict if the new one never becomes healthy; the old one then goes
        on.

        `may_wake` says whether the caller may wake a sleeping sandbox, which costs; without it that is
        Forbidden.
        """
        service = self.get(service_id, caller)
        if wanted.files:
            await self._up(service, caller, may_wake=may_wake)
            await deployment.write_files(self.dependencies, service.sandbox_id, wanted.files)
        spec = service.spec
        if wanted.bootstrap is not None or wanted.command is not None:
            spec = replace(spec, bootstrap=wanted.bootstrap, command=wanted.command)
        if wanted.env is not None:
            spec = replace(spec, env=dict(wanted.env))
        return await self._redeploy(service, spec, caller, wait=wait, may_wake=may_wake)

    async def freeze(self, service_id: str, caller: Caller) -> Service:
        """Puts the service to sleep. One that sleeps already counts as success."""
        service = self.get(service_id, caller)
        if service.state not in (*ALIVE, State.SLEEPING):
            raise Conflict(
                why=f"it is {service.state}, nothing of it can sleep",
                reason="not_running",
                hint=f"See why: GET /v1/services/{service.name}/logs.",
            )
        await pause.freeze(self.dependencies.sandboxes, service.sandbox_id, caller)
        return await self.supervisor.reconciler(service.id).settle()

    async def thaw(self, service_id: str, caller: Caller) -> Service:
        service = self.get(service_id, caller)
        if self.dependencies.sandbox_status(service) is SandboxStatus.FROZEN:
            await pause.thaw(self.dependencies.sandboxes, service.sandbox_id, caller)
        return await self.supervisor.reconciler(service.id).settle()

    async def stop(self, service_id: str, caller: Caller) -> Service:
        """Ends the process, then stops the sandbox, whose disk is kept for the retention time. A stopped one
        counts as success.
        """
        service = self.get(service_id, caller)
        reconciler = self.supervisor.reconciler(service.id)
        async with reconciler.alone() as service:
            if service.state is State.STOPPED and not service.is_wanted:
                return service
            sandbox_status = self.dependencies.sandbox_status(service)
            if sandbox_status is SandboxStatus.FROZEN:
                await pause.thaw(self.dependencies.sandboxes, service.sandbox_id, SYSTEM)
            await reconciler.end_process(service, service.spec.stop_timeout_s)
            stopped = Step(
                signal=Signal.STOP,
                reason="stopped by its owner",
                actor=actor_of(caller),
                changes={"is_wanted": False, "process_id": None, "restart_at": None, "crashes": ()},
            )
            service = await self.dependencies.repository.move(service.id, stopped)
            if sandbox_status in (SandboxStatus.UP, SandboxStatus.FROZEN):
                await pause.stop(self.dependencies.sandboxes, service.sandbox_id, caller)
        return service

    async def start(self, service_id: str, caller: Caller, *, wait: bool = True) -> Service:
        """Starts the service, waking it if it sleeps. One that runs already counts as success."""
        service = self.get(service_id, caller)
        if service.state is State.SLEEPING:
            return await self.thaw(service_id, caller)
        reconciler = self.supervisor.reconciler(service.id)
        async with reconciler.alone() as service:
            if service.state not in KEPT:
                await self._up(service, caller)
                service = await self.dependencies.repository.amend(
                    service.id, "started", actor=actor_of(caller), is_wanted=True, crashes=()
                )
                service = await reconciler.launch(service, "started by its owner")
        return await self._settled(service) if wait else service

    async def remove(self, service_id: str, caller: Caller, *, despite_lock: bool = False) -> Service:
        """Removes the service with its sandbox, log and domains. `despite_lock` says that a second proof
        allowed it.
        """
        service = self.get(service_id, caller)
        await lifetime.destroy(
            self.dependencies.sandboxes, service.sandbox_id, caller, despite_lock=despite_lock
        )
        # Its secrets are deleted with it.
        bare = replace(service.spec, env={}, bootstrap=None)
        step = Step(
            signal=Signal.REMOVE,
            reason="removed by its owner",
            actor=actor_of(caller),
            changes={"is_wanted": False, "vault": None, "process_id": None, "spec": bare},
            also=lambda conn: drop_domain(conn, service.id),
        )
        removed = await self.dependencies.repository.move(service.id, step)
        self.supervisor.let_go(service.id)
        self.dependencies.forget(service)
        return removed

    def log(self, service_id: str, caller: Caller) -> ServiceLog:
        """Returns the log of the service. Raises NotFound."""
        return self.dependencies.log(self.get(service_id, caller).id)

    async def change_vault(
        self,
        service_id: str,
        caller: Caller,
        values: Mapping[str, str | None],
        *,
        replacing: bool,
    ) -> Service:
        """Changes secret values; None removes a name. A process keeps the values it was started with."""
        service = self.get(service_id, caller)

        def decide(current: Service) -> Mapping[str, object]:
            kept: dict[str, str | None] = {} if replacing else dict(self.dependencies.vault.open(current))
            left = {name: value for name, value in {**kept, **values}.items() if value is not None}
            return {
                "vault": self.dependencies.vault.close(current.id, left),
                "vault_names": tuple(sorted(left)),
                "vault_at": self.dependencies.clock.now(),
            }

        return await self.dependencies.repository.amend(
            service.id, "vault_changed", actor=actor_of(caller), decide=decide
        )

    async def _redeploy(
        self, service: Service, spec: Spec, caller: Caller, *, wait: bool, may_wake: bool = True
    ) -> Service:
        reconciler = self.supervisor.reconciler(service.id)
        async with reconciler.alone() as service:
            if service.state is State.CREATING:
                raise Conflict(
                    why="it is still being made",
                    reason="creating",
                    hint=f"See how far it is: GET /v1/services/{service.name}/logs.",
                )
            await self._up(service, caller, may_wake=may_wake)
            if service.state is State.SLEEPING:
                service = await self.dependencies.repository.move(
                    service.id, Step(signal=Signal.WAKE, reason="woken for a redeploy")
                )
            if service.state in (State.RUNNING, State.UNHEALTHY):
                new = Redeployment(self.dependencies, reconciler, service, spec, actor_of(caller))
                return await new.replace_process()
            now = self.dependencies.clock.now()
            await reconciler.end_process(service, spec.stop_timeout_s)
            service = await self.dependencies.repository.amend(
                service.id,
                "redeployed",
                actor=actor_of(caller),
                spec=spec,
                is_wanted=True,
                crashes=(),
                port=spec.port,
                deployed_at=now,
            )
            service = await reconciler.launch(service, "redeployed")
        return await self._settled(service) if wait else service

    async def _keep_spec(self, service: Service, spec: Spec, caller: Caller) -> Service:
        changed = await self.dependencies.repository.amend(
            service.id, "changed", actor=actor_of(caller), spec=spec
        )
        self.supervisor.reconciler(service.id).stir()
        return changed

    async def _up(self, service: Service, caller: Caller, *, may_wake: bool = True) -> None:
        """Makes sure that the sandbox runs. Raises what refuses that."""
        sandbox_status = self.dependencies.sandbox_status(service)
        if not may_wake and sandbox_status not in (
            SandboxStatus.UP,
            SandboxStatus.COMING,
            SandboxStatus.GONE,
        ):
            raise Forbidden(
                why=f"its sandbox is {sandbox_status.value}, and this key may not wake it",
                reason="missing_scope",
                scope="sandboxes:manage",
                hint="Use a key with the scope sandboxes:manage, or start the service by one first.",
            )
        if sandbox_status is SandboxStatus.FROZEN:
            await pause.thaw(self.dependencies.sandboxes, service.sandbox_id, caller)
        elif sandbox_status in (SandboxStatus.STOPPED, SandboxStatus.HALTED, SandboxStatus.REAPED):
            await pause.resume(self.dependencies.sandboxes, service.sandbox_id, caller)
        elif sandbox_status is SandboxStatus.GONE:
            raise Conflict(
                why="its sandbox is gone, and its disk with it",
                reason="sandbox_gone",
                hint=f"Remove it (DELETE /v1/services/{service.name}), and create it again.",
            )

    async def _settled(self, service: Service) -> Service:
        limit = service.spec.health.start_timeout_s + _MARGIN_S
        return await self.dependencies.repository.until(
            service.id, lambda s: s.state in _SETTLED, timeout_s=limit
        )
