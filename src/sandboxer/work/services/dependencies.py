"""This module holds what every action on a service works with. `work/dependencies.py` builds it once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from pathlib import Path

from sandboxer.backends.guest import Guest
from sandboxer.identity.keys import Caller
from sandboxer.identity.seal import Seal
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import TooLarge
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.charging import is_frozen
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.exposure import Exposure, Inspect, before_opening
from sandboxer.sandboxes.use_cases.access import ActivityKind, open_line
from sandboxer.work.services.lifecycle import SandboxStatus, sandbox_status
from sandboxer.work.services.logs import ServiceLog
from sandboxer.work.services.records import Service
from sandboxer.work.services.repository import ACTOR, ServiceRepository

MAX_BYTES = 64 * 1024


class Vault:
    """The vault keeps the secret environment of a service: it is sealed at rest and opened only to start a
    process.
    """

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def open(self, service: Service) -> dict[str, str]:
        if service.vault is None:
            return {}
        found: dict[str, str] = json.loads(self._seal.open(service.vault, context=_context(service.id)))
        return found

    def close(self, service_id: str, values: Mapping[str, str]) -> bytes | None:
        """Returns the sealed values, or None if there are none. Raises TooLarge."""
        if not values:
            return None
        text = json.dumps(dict(values)).encode()
        if len(text) > MAX_BYTES:
            raise TooLarge(what="the vault", limit=f"{MAX_BYTES} bytes")
        return self._seal.close(text, context=_context(service_id))


def _context(service_id: str) -> str:
    return f"service-vault:{service_id}"


# The platform acts as this caller when it keeps services running; it may reach into every sandbox.
SYSTEM = Caller(public_key=ACTOR, account="system", is_owner=True)


@value_class
class ServiceDependencies:
    repository: ServiceRepository
    sandboxes: SandboxDependencies
    clock: Clock
    vault: Vault
    # Where logs are kept, a folder for each service.
    folder: Path
    # By sandbox: when its last request came.
    requests: dict[str, datetime] = field(default_factory=dict)
    # By service: what was found when it was opened to everyone, since the server started.
    exposures: dict[str, Exposure] = field(default_factory=dict)
    _logs: dict[str, ServiceLog] = field(default_factory=dict)

    def log(self, service_id: str) -> ServiceLog:
        if (known := self._logs.get(service_id)) is None:
            known = self._logs[service_id] = ServiceLog(self.folder / service_id)
        return known

    def forget(self, service: Service) -> None:
        """Removes the log of a service of which nothing is left."""
        self.log(service.id).remove()
        self._logs.pop(service.id, None)
        self.exposures.pop(service.id, None)
        self.requests.pop(service.sandbox_id, None)

    async def before_opening(self, service: Service, caller: Caller, inspect: Inspect | None) -> None:
        """Looks at what a public service would show. Raises Conflict if that keeps it closed."""
        found = await before_opening(self.sandboxes, service.sandbox_id, caller, inspect, is_public=True)
        if found is not None:
            self.exposures[service.id] = found
            for one in found.findings:
                self.note(service, f"whoever reaches it may be shown {one.path}")

    def note(self, service: Service, text: str) -> None:
        """Writes a message of the platform into the service's log."""
        self.log(service.id).write(self.clock.now(), service.run, "system", text)

    def next_run(self, service: Service) -> int:
        """Returns the number of the next process. Numbers of failed redeploys are not used again."""
        return max(service.run, self.log(service.id).last_run) + 1

    def sandbox_status(self, service: Service) -> SandboxStatus:
        if (sandbox := self.sandboxes.repository.peek(service.sandbox_id)) is None:
            return SandboxStatus.GONE
        return sandbox_status(sandbox.state, sandbox.reason, is_frozen=is_frozen(sandbox))

    def has_visitors(self, service: Service) -> bool:
        """Tells whether somebody works in the service's sandbox or is connected to one of its ports."""
        return self.sandboxes.activity.pulse(service.sandbox_id).open_lines > 0

    async def guest(self, service: Service) -> Guest:
        """Returns the guest without counting as activity: a service that only waits must be able to fall
        asleep.
        """
        async with open_line(
            self.sandboxes, service.sandbox_id, SYSTEM, activity=ActivityKind.PROCESSES
        ) as guest:
            return guest

    async def environment(self, service: Service) -> Mapping[str, str]:
        return self.sandboxes.environment(await self.sandboxes.visible(service.sandbox_id, SYSTEM))

    def last_words(self, service: Service, *, run: int | None = None) -> str:
        """Returns the last lines that the process printed, as part of a reason that a person can act on."""
        lines = [
            line.text
            for line in self.log(service.id).tail(40)
            if line.stream != "system" and line.run == (service.run if run is None else run)
        ]
        return "\n".join(lines[-5:])[-1000:]
