"""What a backend holds that no record accounts for: left by a crash or by someone's hand, or known to another
database. See `quarantine.py` for how long it stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from sandboxer.backends.contract import SeesStrays
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Forbidden
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.quarantine import Held, Kind, Unknown


async def find(dependencies: SandboxDependencies, caller: Caller) -> Sequence[Held]:
    require_owner(caller)
    return await dependencies.quarantine.look()


async def reap(dependencies: SandboxDependencies, caller: Caller) -> Sequence[Held]:
    """Remove it, and say what was removed."""
    require_owner(caller)
    return await dependencies.quarantine.reap()


def require_owner(caller: Caller) -> None:
    if not caller.is_owner:
        raise Forbidden(why="this concerns the whole host; only the owner key may do it")


class UnknownSandboxes:
    """Sandboxes without a record, or whose record says that nothing is left of them."""

    kinds = frozenset({Kind.SANDBOX})

    def __init__(self, dependencies: SandboxDependencies) -> None:
        self._dependencies = dependencies

    async def find(self) -> Sequence[Unknown]:
        found = []
        for name, backend in self._dependencies.backends.items():
            for sandbox_id in await backend.inventory():
                why = await self._why(sandbox_id)
                if why is not None:
                    found.append(Unknown(id=sandbox_id, kind=Kind.SANDBOX, backend=name, why=why))
        return found

    async def remove(self, unknown: Unknown) -> bool:
        if await self._why(unknown.id) is None:
            return False
        await self._dependencies.backends[unknown.backend].teardown(unknown.id)
        return True

    async def _why(self, sandbox_id: str) -> str | None:
        dependencies = self._dependencies
        # Asked after the inventory was taken: what is made has its record (or its place in the pool) before.
        if dependencies.warm.holds(sandbox_id) or dependencies.operations.running(sandbox_id) is not None:
            return None
        sandbox = await dependencies.repository.find(sandbox_id)
        if sandbox is None:
            return "it has no record"
        holds_nothing = sandbox.state in (State.FAILED, State.DESTROYED)
        return f"its record says it is {sandbox.state.value}" if holds_nothing else None


class StrayProcesses:
    """Processes of sandboxes that are in no sandbox: left by a create that died half-way."""

    kinds = frozenset({Kind.PROCESS})

    def __init__(self, dependencies: SandboxDependencies) -> None:
        self._dependencies = dependencies

    async def find(self) -> Sequence[Unknown]:
        return [
            Unknown(id=id_, kind=Kind.PROCESS, backend=name, why=why)
            for name, backend in self._dependencies.backends.items()
            if isinstance(backend, SeesStrays)
            for id_, why in (await backend.strays()).items()
        ]

    async def remove(self, unknown: Unknown) -> bool:
        backend = self._dependencies.backends[unknown.backend]
        if not isinstance(backend, SeesStrays) or unknown.id not in await backend.strays():
            return False
        await backend.end_stray(unknown.id)
        return True
