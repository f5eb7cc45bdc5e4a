"""At start: bring records and reality together after whatever happened to the server or the host.

What runs goes on; what was half made or half removed by a server that died is removed; what ended is written
down. What has no record is left alone and quarantined (see `quarantine.py`), except what nobody has ever had.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from enum import StrEnum

from sandboxer.backends.contract import (
    Backend,
    Freezes,
    Observation,
    Presence,
    Resizes,
    Spares,
    Stops,
)
from sandboxer.kernel.errors import SandboxerError
from sandboxer.sandboxes.charging import is_frozen
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.destroy import remove
from sandboxer.sandboxes.lifecycle import LIVE, Signal, State
from sandboxer.sandboxes.loops.deaths import record_end
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.repository import Step

log = logging.getLogger(__name__)
ACTOR = "system:reconcile"
AT_ONCE = 16


class Verdict(StrEnum):
    GO_ON = "go_on"
    # Its processes are gone; the disk may be there.
    ENDED = "ended"
    # An act of the backend whose record a crash prevented: write it down, or take it back.
    RECORD_FREEZE = "record_freeze"
    RECORD_THAW = "record_thaw"
    STOP_AGAIN = "stop_again"
    THAW_AGAIN = "thaw_again"
    # Half made, half removed.
    GIVE_UP = "give_up"
    FINISH = "finish"


def judge(state: State, presence: Presence) -> Verdict:
    """What to do about a sandbox of this recorded state that is found like this. Pure and total."""
    if state in (State.REQUESTED, State.PROVISIONING):
        return Verdict.GIVE_UP
    if state in (State.EXPIRED, State.DESTROYING):
        return Verdict.FINISH
    if state in (State.FAILED, State.DESTROYED):
        return Verdict.GO_ON
    if presence is Presence.GONE or (presence is Presence.STOPPED and state in LIVE):
        return Verdict.ENDED
    if state in (State.STOPPED, State.REAPED):
        return Verdict.GO_ON if presence is Presence.STOPPED else Verdict.STOP_AGAIN
    if presence is Presence.FROZEN:
        wanted = {State.FROZEN: Verdict.GO_ON, State.GRACE: Verdict.THAW_AGAIN}
        return wanted.get(state, Verdict.RECORD_FREEZE)
    return Verdict.RECORD_THAW if state is State.FROZEN else Verdict.GO_ON


async def reconcile(dependencies: SandboxDependencies) -> None:
    """Raises nothing for one sandbox's sake: what cannot be settled is logged and left for the next start."""
    limit = asyncio.Semaphore(AT_ONCE)
    found: dict[Verdict, list[tuple[Sandbox, Observation]]] = {verdict: [] for verdict in Verdict}
    async with asyncio.TaskGroup() as group:
        for sandbox in await dependencies.repository.load():
            group.create_task(_look(dependencies, sandbox, limit, found))
    # Ends come first: their meters ended before the server came back, and nothing is charged beyond them.
    for verdict in sorted(Verdict, key=lambda one: one is not Verdict.ENDED):
        async with asyncio.TaskGroup() as group:
            for sandbox, seen in found[verdict]:
                group.create_task(_settle(dependencies, sandbox, seen, verdict, limit))
    for backend in dependencies.backends.values():
        if isinstance(backend, Spares):
            for sandbox_id in await backend.spares():
                await _settle_spare(dependencies, backend, sandbox_id)


async def _settle_spare(dependencies: SandboxDependencies, backend: Backend, sandbox_id: str) -> None:
    """One that stood ready when the last server died is worth nothing, unless it got its record."""
    try:
        sandbox = await dependencies.repository.find(sandbox_id)
        if sandbox is not None:
            await dependencies.give_away(sandbox)
            return
        await backend.teardown(sandbox_id)
        log.info("removed %s of %s: it stood ready, and nobody had it", sandbox_id, backend.name)
    except Exception:
        log.exception("%s of %s could not be removed", sandbox_id, backend.name)


async def _look(
    dependencies: SandboxDependencies,
    sandbox: Sandbox,
    limit: asyncio.Semaphore,
    found: Mapping[Verdict, list[tuple[Sandbox, Observation]]],
) -> None:
    async with limit:
        try:
            seen = await _observe(dependencies, sandbox)
        except Exception:
            # One sandbox must not keep the server from starting for all others.
            log.exception("sandbox %s could not be looked at", sandbox.id)
            return
    frozen_in_grace = sandbox.state is State.GRACE and is_frozen(sandbox)
    as_frozen = frozen_in_grace and seen.presence is Presence.FROZEN
    found[judge(State.FROZEN if as_frozen else sandbox.state, seen.presence)].append((sandbox, seen))


async def _settle(
    dependencies: SandboxDependencies,
    sandbox: Sandbox,
    seen: Observation,
    verdict: Verdict,
    limit: asyncio.Semaphore,
) -> None:
    async with limit:
        try:
            await _carry_out(dependencies, sandbox, seen, verdict)
        except Exception:
            # One sandbox must not keep the server from starting for all others.
            log.exception("sandbox %s could not be reconciled", sandbox.id)


async def _observe(dependencies: SandboxDependencies, sandbox: Sandbox) -> Observation:
    if sandbox.handle is None:
        return Observation(presence=Presence.GONE, reason="never_made")
    return await dependencies.backend_of(sandbox).recover(sandbox.handle)


async def _carry_out(
    dependencies: SandboxDependencies, sandbox: Sandbox, seen: Observation, verdict: Verdict
) -> None:
    backend = dependencies.backend_of(sandbox)
    handle = sandbox.handle
    match verdict:
        case Verdict.GO_ON:
            await _size_as_recorded(dependencies, sandbox)
            # Nobody's lines survived the server.
            dependencies.activity.look_at(sandbox.id)
        case Verdict.ENDED:
            await record_end(dependencies, sandbox, seen, actor=ACTOR, by=dependencies.last_witnessed)
        case Verdict.GIVE_UP:
            if not dependencies.is_adopted:
                await backend.teardown(sandbox.id)
            await _record(dependencies, sandbox, _giving_up(sandbox.state), "server_restarted")
        case Verdict.FINISH:
            await remove(dependencies, sandbox, actor=ACTOR, reason=sandbox.reason)
        case Verdict.RECORD_FREEZE:
            await _record(dependencies, sandbox, Signal.FREEZE, "found_frozen")
        case Verdict.RECORD_THAW:
            await _record(dependencies, sandbox, Signal.THAW, "found_running")
        case Verdict.STOP_AGAIN if handle is not None and isinstance(backend, Stops):
            await backend.stop(handle)
        case Verdict.THAW_AGAIN if handle is not None and isinstance(backend, Freezes):
            await backend.thaw(handle)
        case _:
            log.error("sandbox %s: nothing can be done for %s", sandbox.id, verdict)


async def _size_as_recorded(dependencies: SandboxDependencies, sandbox: Sandbox) -> None:
    """A crash between a boost and its record would leave CPUs and memory that nobody pays for."""
    backend = dependencies.backend_of(sandbox)
    if sandbox.state not in LIVE or sandbox.handle is None or not isinstance(backend, Resizes):
        return
    try:
        await backend.resize(sandbox.handle, sandbox.resources)
    except SandboxerError as error:
        log.warning("sandbox %s has not the size of its record: %s", sandbox.id, error)


def _giving_up(state: State) -> Signal:
    return Signal.REFUSED if state is State.REQUESTED else Signal.FAIL


async def _record(dependencies: SandboxDependencies, sandbox: Sandbox, signal: Signal, reason: str) -> None:
    changes: dict[str, object] = {}
    if signal in (Signal.REFUSED, Signal.FAIL):
        changes = {"handle": None, "expires_at": dependencies.clock.now() + dependencies.retention}
    await dependencies.repository.move(
        sandbox.id, Step(signal=signal, actor=ACTOR, reason=reason, changes=changes)
    )
