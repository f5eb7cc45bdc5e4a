"""Looking at sandboxes and at what this host can do, without changing anything."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, select

from sandboxer.accounts.tables import accounts
from sandboxer.backends.contract import Capacity, Fingerprint, KnowsCapacity, Usage
from sandboxer.identity.keys import Caller, keys
from sandboxer.kernel.errors import IllegalTransition, InvalidRequest, SandboxerError
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import LIVE, State
from sandboxer.sandboxes.records import Sandbox, sandboxes
from sandboxer.store.rows import Page

MAX_LIMIT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
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
    labels: Mapping[str, str],
    state: State | None,
    cursor: str | None,
    limit: int,
) -> Page[Sandbox]:
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidRequest(field="limit", why=f"{limit} is not between 1 and {MAX_LIMIT}")
    account = None if caller.is_owner else caller.account
    states = () if state is None else (state,)
    return await dependencies.repository.page(
        account=account, labels=labels, states=states, cursor=cursor, limit=limit
    )


async def usage(dependencies: SandboxDependencies, sandbox_id: str, caller: Caller) -> Usage:
    sandbox = await dependencies.visible(sandbox_id, caller)
    if sandbox.handle is None or sandbox.state not in LIVE | {State.STOPPED}:
        raise IllegalTransition(signal="usage", state=sandbox.state.value)
    return await dependencies.backend_of(sandbox).usage(sandbox.handle)


async def reachability(dependencies: SandboxDependencies, sandbox_id: str, caller: Caller) -> Reachability:
    """Asks the supervisor inside; an answer is the only proof."""
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
    """What is known of a backend here; asked once, since it may be slow and a create is not."""
    known = dependencies.known_fingerprints.get(backend)
    if known is None and backend in dependencies.backends:
        known = dependencies.known_fingerprints[backend] = await dependencies.backends[backend].fingerprint()
    return known


async def fingerprints(dependencies: SandboxDependencies) -> Mapping[str, Fingerprint]:
    """Asked anew, so that a mended host is seen without a restart."""
    for name, backend in dependencies.backends.items():
        dependencies.known_fingerprints[name] = await backend.fingerprint()
    return dict(dependencies.known_fingerprints)


async def capacities(dependencies: SandboxDependencies) -> Mapping[str, Capacity]:
    """Of the backends that count what they promise."""
    return {
        name: await backend.capacity()
        for name, backend in dependencies.backends.items()
        if isinstance(backend, KnowsCapacity)
    }


def owners_of(conn: Connection, subjects: Iterable[str]) -> dict[str, str]:
    """The account of each subject of an event that has one: a sandbox, a key or an account; anything else is
    the operator's alone.
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
