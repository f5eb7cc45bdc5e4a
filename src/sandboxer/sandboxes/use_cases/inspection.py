"""Looking at sandboxes, at what this host can do, and at what backends hold that no record accounts for.

Nothing is changed here but by the owner's word: `reap_stale` removes what has no record. See `quarantine.py`
for how long that stays otherwise.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection, select

from sandboxer.accounts.operators import demand_operator
from sandboxer.accounts.records import accounts
from sandboxer.backends.contract import Backend, Capacity, Fingerprint, KnowsCapacity, Usage
from sandboxer.backends.shared import SeesStrays, StandsElsewhere
from sandboxer.identity.keys import Caller, keys
from sandboxer.kernel.errors import IllegalTransition, InvalidRequest, SandboxerError, Unavailable
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import LIVE, State
from sandboxer.sandboxes.quarantine import Held, Kind, Unknown
from sandboxer.sandboxes.records import Sandbox, listed, sandboxes
from sandboxer.store.rows import Page

log = logging.getLogger(__name__)
MAX_LIMIT = 500


@value_class
class Reachability:
    sandbox: Sandbox
    is_reachable: bool
    # One question to the supervisor inside and its answer.
    latency_ms: float | None = None
    # Why not, when it is not.
    reason: str | None = None


async def list_sandboxes(
    dependencies: SandboxDependencies,
    caller: Caller,
    *,
    labels: Mapping[str, str] | None = None,
    states: Collection[State] = (),
    image: str | None = None,
    ready_since: datetime | None = None,
    cursor: str | None = None,
    limit: int = 50,
    oldest_first: bool = False,
) -> Page[Sandbox]:
    """List sandboxes, newest first unless it is said otherwise.

    Without `states`, destroyed ones are left out. The owner sees everyone's.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidRequest(field="limit", why=f"{limit} is not between 1 and {MAX_LIMIT}")
    account = None if caller.is_owner else caller.account
    query = listed(account, labels or {}, states, image=image, ready_since=ready_since)
    return await dependencies.repository.page(query, cursor=cursor, limit=limit, oldest_first=oldest_first)


async def usage(dependencies: SandboxDependencies, sandbox_id: str, caller: Caller) -> Usage:
    sandbox = await dependencies.visible(sandbox_id, caller)
    if sandbox.handle is None or sandbox.state not in LIVE | {State.STOPPED}:
        raise IllegalTransition(signal="usage", state=sandbox.state.value)
    return await dependencies.backend_of(sandbox).usage(sandbox.handle)


async def reachability(dependencies: SandboxDependencies, sandbox_id: str, caller: Caller) -> Reachability:
    """Ask the supervisor inside; only its answer proves that the sandbox is reachable."""
    sandbox = await dependencies.visible(sandbox_id, caller)
    if sandbox.handle is None or sandbox.state not in LIVE:
        return Reachability(sandbox=sandbox, is_reachable=False, reason=f"it is {sandbox.state.value}")
    started = time.perf_counter()
    try:
        guest = await dependencies.backend_of(sandbox).guest(sandbox.handle)
        await guest.ping()
    except SandboxerError as error:
        return Reachability(sandbox=sandbox, is_reachable=False, reason=str(error))
    spent = round((time.perf_counter() - started) * 1000, 3)
    return Reachability(sandbox=sandbox, is_reachable=True, latency_ms=spent)


async def fingerprint_of(dependencies: SandboxDependencies, backend: str) -> Fingerprint | None:
    """Return a backend's fingerprint. One that is healthy is asked once, because it may be slow and a create
    is not; another may have been mended meanwhile.
    """
    known = dependencies.known_fingerprints.get(backend)
    if (known is None or not known.healthy) and backend in dependencies.backends:
        known = dependencies.known_fingerprints[backend] = await dependencies.backends[backend].fingerprint()
    return known


async def fingerprints(dependencies: SandboxDependencies) -> Mapping[str, Fingerprint]:
    """Ask every backend again, so that a repaired host is seen without a restart."""
    for name, backend in dependencies.backends.items():
        dependencies.known_fingerprints[name] = await backend.fingerprint()
    return dict(dependencies.known_fingerprints)


async def capacities(dependencies: SandboxDependencies) -> Mapping[str, Capacity]:
    """Return the capacity of the backends that know theirs."""
    return {
        name: await backend.capacity()
        for name, backend in dependencies.backends.items()
        if isinstance(backend, KnowsCapacity)
    }


def owners_of(conn: Connection, subjects: Iterable[str]) -> dict[str, str]:
    """Return the account of each event subject that has one: a sandbox, a key or an account.

    Events of other subjects are for the operator alone.
    """
    wanted = list(subjects)
    found: dict[str, str] = {}
    for name, account in (
        (sandboxes.c.id, sandboxes.c.account),
        (keys.c.public_key, keys.c.account),
        (accounts.c.id, accounts.c.id.label("account")),
    ):
        rows = conn.execute(select(name.label("name"), account.label("account")).where(name.in_(wanted)))
        found |= {row.name: row.account for row in rows}
    return found


async def find_stale(dependencies: SandboxDependencies, caller: Caller) -> Sequence[Held]:
    """Return what backends hold without a record. Owner only."""
    demand_operator(caller)
    return await dependencies.quarantine.look()


async def reap_stale(dependencies: SandboxDependencies, caller: Caller) -> Sequence[Held]:
    """Remove everything without a record. Returns what was removed. Owner only."""
    demand_operator(caller)
    return await dependencies.quarantine.reap()


async def _inventory(name: str, backend: Backend) -> Sequence[str]:
    """Return what a backend has; nothing while its host, which is not this one, does not answer."""
    try:
        return await backend.inventory()
    except Unavailable as error:
        if not isinstance(backend, StandsElsewhere):
            raise
        log.warning("nothing is known of what %s has: %s", name, error)
        return ()


class UnknownSandboxes:
    """Finds sandboxes without a record, or whose record says that nothing is left of them."""

    kinds = frozenset({Kind.SANDBOX})

    def __init__(self, dependencies: SandboxDependencies) -> None:
        self._dependencies = dependencies

    async def find(self) -> Sequence[Unknown]:
        found = []
        for name, backend in self._dependencies.backends.items():
            for sandbox_id in await _inventory(name, backend):
                if (why := await self._why(sandbox_id, name)) is not None:
                    found.append(Unknown(id=sandbox_id, kind=Kind.SANDBOX, backend=name, why=why))
        return found

    async def remove(self, unknown: Unknown) -> bool:
        if await self._why(unknown.id, unknown.backend) is None:
            return False
        await self._dependencies.backends[unknown.backend].teardown(unknown.id)
        return True

    async def _why(self, sandbox_id: str, backend: str) -> str | None:
        dependencies = self._dependencies
        # Asked after the inventory was read: a sandbox gets its record, or its place in the pool, before it
        # is made.
        if dependencies.warm.holds(sandbox_id) or dependencies.operations.running(sandbox_id) is not None:
            return None
        if (sandbox := await dependencies.repository.find(sandbox_id)) is None:
            return "it has no record"
        if sandbox.backend != backend:
            # One that failed to make it, or to remove what it made of it.
            return f"its record says it is in {sandbox.backend}"
        holds_nothing = sandbox.state in (State.FAILED, State.DESTROYED)
        return f"its record says it is {sandbox.state.value}" if holds_nothing else None


class StrayProcesses:
    """Finds processes that belong to no sandbox: left by a create that died half-way."""

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
