"""The supervisor runs one reconciler for each service and tells it what happens to the service's sandbox."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from sandboxer.kernel.errors import SandboxerError
from sandboxer.kernel.tasks import TaskOwner
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.repository import Step
from sandboxer.work.services.dependencies import SYSTEM, ServiceDependencies
from sandboxer.work.services.lifecycle import Signal, State
from sandboxer.work.services.reconciler import ServiceReconciler
from sandboxer.work.services.repository import Step as ServiceStep

log = logging.getLogger(__name__)
HALF_MADE = "the platform was restarted while it was being made; remove it and create it again"


class Supervisor:
    def __init__(self, dependencies: ServiceDependencies, tasks: TaskOwner) -> None:
        self._dependencies = dependencies
        self._tasks = tasks
        self._reconcilers: dict[str, ServiceReconciler] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        dependencies.sandboxes.dependencies.repository.on_change(self._hear)

    async def adopt(self) -> None:
        """Gives up services that were half made when the server stopped, and starts reconcilers for the
        others.
        """
        for service in self._dependencies.repository.living():
            if service.state is State.CREATING:
                await self._dependencies.repository.move(
                    service.id, ServiceStep(signal=Signal.BROKE, reason=HALF_MADE)
                )
                try:
                    await self._dependencies.sandboxes.destroy(service.sandbox_id, SYSTEM, despite_lock=True)
                except SandboxerError as error:
                    log.warning("the sandbox of half-made %s is left: %s", service.id, error)
            self.keep(service.id)

    def keep(self, service_id: str) -> ServiceReconciler:
        reconciler = ServiceReconciler(self._dependencies, service_id, self._tasks)
        self._reconcilers[service_id] = reconciler
        self._running[service_id] = self._tasks.start(reconciler.run(), name=f"reconciler of {service_id}")
        return reconciler

    def reconciler(self, service_id: str) -> ServiceReconciler:
        return self._reconcilers[service_id]

    def let_go(self, service_id: str) -> None:
        self._reconcilers.pop(service_id, None)
        task = self._running.pop(service_id, None)
        if task is not None:
            task.cancel()

    def _hear(self, sandbox: Sandbox, steps: Sequence[Step]) -> None:
        service = self._dependencies.repository.by_sandbox(sandbox.id)
        reconciler = None if service is None else self._reconcilers.get(service.id)
        if reconciler is not None:
            reconciler.stir()
