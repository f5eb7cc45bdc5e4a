"""Service targets tell the reverse proxy which port of which sandbox a host name or a service's id stands
for.

They fit the protocol `Targets` of `access/ports/targets.py` by shape: the two packages do not import each
other, so a function given at wiring makes the value that is returned.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from sandboxer.kernel.errors import NotFound
from sandboxer.work.services.dependencies import ServiceDependencies
from sandboxer.work.services.lifecycle import State
from sandboxer.work.services.records import Service
from sandboxer.work.services.specs import PORTS
from sandboxer.work.services.supervisor import Supervisor

# A request for a running service may wait this long: its process may have just ended without anybody having
# noticed.
_BLINK_S = 5.0
_COMING = frozenset({State.CREATING, State.STARTING, State.RESTARTING, State.SLEEPING, State.STOPPED})


# How long a request waits for the reconciler to notice that the sandbox runs again.
_WAKING_S = 5.0


class HasSandbox(Protocol):
    @property
    def sandbox_id(self) -> str: ...


T = TypeVar("T", bound=HasSandbox)
T_co = TypeVar("T_co", bound=HasSandbox, covariant=True)


class MakeTarget(Protocol[T_co]):
    """Makes the value that the proxy reads."""

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
        """Returns the target of a service's proven domain, or of `{slug}.{domain}`."""
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
        """Starts the process again after its sandbox was woken. The reconciler handles and
        reports failures.
        """
        service = self._dependencies.repository.by_sandbox(target.sandbox_id)
        if service is None:
            return
        self._supervisor.reconciler(service.id).stir()
        try:
            await self._dependencies.repository.until(service.id, _is_up, timeout_s=_WAKING_S)
        except NotFound:
            # It was removed meanwhile; the next request is answered accordingly.
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
