"""An open line to one sandbox, with what every command in it needs. The only way this room reaches down."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sandboxer.backends.guest import Guest
from sandboxer.identity.keys import Caller
from sandboxer.sandboxes.access import ActivityKind
from sandboxer.sandboxes.use_cases import SandboxUseCases


@dataclass(frozen=True, slots=True)
class Line:
    guest: Guest
    # The sandbox's environment, for every command in it.
    env: Mapping[str, str]


class Lines:
    def __init__(self, sandboxes: SandboxUseCases) -> None:
        self._sandboxes = sandboxes

    @asynccontextmanager
    async def open(self, sandbox_id: str, caller: Caller, activity: ActivityKind) -> AsyncIterator[Line]:
        """The sandbox counts as working meanwhile. Raises NotFound, IllegalTransition, BackendLost."""
        sandbox = await self._sandboxes.get(sandbox_id, caller)
        async with self._sandboxes.line(sandbox_id, caller, activity=activity) as guest:
            yield Line(guest, self._sandboxes.environment(sandbox))
