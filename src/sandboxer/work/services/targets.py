"""Names of services for the reverse proxy: which port of which sandbox a host name or a service's id means.

Fits `Targets` of `access/ports/targets.py` by its shape alone: the two packages do not know each other, so
the value that is answered with is made by a function given at wiring.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from sandboxer.kernel.errors import NotFound
from sandboxer.work.services.dependencies import ServiceDependencies
from sandboxer.work.services.lifecycle import State
from sandboxer.work.services.records import Service
from sandboxer.work.services.specs import PORTS
from sandboxer.work.services.supervisor import Supervisor

# While it runs: it may have ended a moment ago, and nobody noticed yet.
_BLINK_S = 5.0
_COMING = frozenset({State.CREATING, State.STARTING, State.RESTARTING, State.SLEEPING, State.STOPPED})


# How long a request waits until its service's reconciler has seen that the sandbox runs again.
_WAKING_S = 5.0


class HasSandbox(Protocol):
    @property
    def sandbox_id(self) -> str: ...


T = TypeVar("T", bound=HasSandbox)
T_co = TypeVar("T_co", bound=HasSandbox, covariant=True)


class MakeTarget(Protocol[T_co]):
    """Makes the value the proxy reads."""

    def __call__(
        self, *, sandbox_id: str, port: int, account: str, is_public: bool, wakes: bool, hold_s: float
    ) -> T_co: ...


class ServiceTargets(Generic[T]):
    def __init__(
        self, dependencies: ServiceDependencies, supervisor: Supervisor, make: MakeTarget[T], *, domain: str
    ) -> None:
        self._dependencies = dependencies
        self._supervisor = supervisor
        self._make = make
        self._suffix = f".{domain.lower()}"

    async def by_domain(self, host: str) -> T | None:
        """A proven domain of a service, or `{slug}.{domain}`."""
        name = host.lower().rstrip(".")
        repository = self._dependencies.repository
        service = repository.by_domain(name)
        if service is None and name.endswith(self._suffix):
            service = repository.by_slug(name.removesuffix(self._suffix))
        return None if service is None else self._target(service)

    async def by_service(self, service_id: str) -> T | None:
        service = self._dependencies.repository.peek(service_id)
        return None if service is None else self._target(service)

    def present_port(self, sandbox_id: str, port: int) -> int:
        service = self._dependencies.repository.by_sandbox(sandbox_id)
        if service is None or service.spec.port is not None or port not in PORTS:
            return port
        return service.port or port

    def proof_of(self, host: str) -> str | None:
        return self._dependencies.repository.proof_of(host)

    async def woken(self, target: T) -> None:
        """Its sandbox runs again: so shall its process. Trouble is the reconciler's to mend, and to tell
        of."""
        service = self._dependencies.repository.by_sandbox(target.sandbox_id)
        if service is None:
            return
        self._supervisor.reconciler(service.id).stir()
        try:
            await self._dependencies.repository.until(service.id, _is_up, timeout_s=_WAKING_S)
        except NotFound:
            # Removed meanwhile: the next one who asks hears so.
            return

    def touched(self, sandbox_id: str) -> None:
        self._dependencies.requests[sandbox_id] = self._dependencies.clock.now()

    def _target(self, service: Service) -> T:
        hold_s = 0.0
        if service.is_wanted and service.state in _COMING:
            hold_s = service.spec.health.start_timeout_s
        elif service.state in (State.RUNNING, State.UNHEALTHY):
            hold_s = min(_BLINK_S, service.spec.health.start_timeout_s)
        return self._make(
            sandbox_id=service.sandbox_id,
            port=service.port or service.spec.port or PORTS[0],
            account=service.account,
            is_public=service.spec.is_public,
            wakes=service.spec.wakes and service.is_wanted,
            hold_s=hold_s,
        )


def _is_up(service: Service) -> bool:
    return service.state not in (State.SLEEPING, State.STOPPED)
