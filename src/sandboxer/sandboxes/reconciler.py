"""The reconciler brings records and reality together: at start, and whenever a sandbox ends unasked.

At start, what runs goes on; what was half made or half removed by a server that died is removed; what ended
is recorded. What has no record is left alone and quarantined (see `quarantine.py`), except what nobody has
ever had. From then on it hears of sandboxes that end unasked, and records what became of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
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
from sandboxer.money.policy import Standing
from sandboxer.sandboxes.charging import is_frozen
from sandboxer.sandboxes.demands import Condition, wanted
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import LIVE, Signal, State
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.repository import Step
from sandboxer.sandboxes.use_cases.lifetime import end_due, expire_overdue, remove
from sandboxer.sandboxes.use_cases.memory import found_kept, remembered, stop_as_before
from sandboxer.sandboxes.use_cases.pause import stopped_changes

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
    # Its time was over while no server ran.
    OVERDUE = "overdue"
    # Half made, half removed.
    GIVE_UP = "give_up"
    FINISH = "finish"


_ENDS = (Verdict.ENDED, Verdict.OVERDUE)


def judge(state: State, presence: Presence) -> Verdict:
    """Return what to do about a sandbox of this recorded state that is found like this. Pure and total."""
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
    """Compare every record with reality and repair the difference, once, at start.

    Trouble with one sandbox is logged and left for the next start.
    """
    limit = asyncio.Semaphore(AT_ONCE)
    found: dict[Verdict, list[tuple[Sandbox, Observation]]] = {verdict: [] for verdict in Verdict}
    async with asyncio.TaskGroup() as group:
        for sandbox in await dependencies.repository.load():
            group.create_task(_look(dependencies, sandbox, limit, found))
    # Ends come first: their meters ended before the server came back, and nothing is charged beyond them.
    await _settle_ends(dependencies, found, limit)
    for verdict in (one for one in Verdict if one not in _ENDS):
        async with asyncio.TaskGroup() as group:
            for sandbox, seen in found[verdict]:
                group.create_task(_settle(dependencies, sandbox, seen, verdict, limit))
    if not dependencies.repository.is_charged:
        await _end_grace(dependencies)
    for sandbox in await dependencies.repository.to_take_up():
        try:
            await dependencies.repository.take_up(sandbox)
        except Exception:
            log.exception("%s does not pay yet", sandbox.id)
    for backend in dependencies.backends.values():
        if isinstance(backend, Spares):
            for sandbox_id in await backend.spares():
                await _settle_spare(dependencies, backend, sandbox_id)


async def _end_grace(dependencies: SandboxDependencies) -> None:
    """Let what was out of sats go on, where nothing is charged any more: nobody else would."""
    for sandbox in list(dependencies.repository.living()):
        if (demand := wanted(sandbox, Condition(standing=Standing.ALIVE))) is not None:
            await _record(dependencies, sandbox, demand.signal, "charging_ended")


async def _settle_ends(
    dependencies: SandboxDependencies,
    found: Mapping[Verdict, list[tuple[Sandbox, Observation]]],
    limit: asyncio.Semaphore,
) -> None:
    """Each account's in the order in which they ended: its bucket is judged with each of them, and must not
    be found dry by one that had ended before."""
    now = dependencies.clock.now()
    ends: dict[str, list[tuple[datetime, Sandbox, Observation, Verdict]]] = {}
    for verdict in _ENDS:
        for sandbox, seen in found[verdict]:
            moment = witnessed(seen, dependencies.last_witnessed, now)
            if verdict is Verdict.OVERDUE:
                moment = sandbox.expires_at or now
            ends.setdefault(sandbox.account, []).append((moment, sandbox, seen, verdict))

    async def settle_account(mine: list[tuple[datetime, Sandbox, Observation, Verdict]]) -> None:
        for _, sandbox, seen, verdict in sorted(mine, key=lambda end: (end[0], end[1].id)):
            await _settle(dependencies, sandbox, seen, verdict, limit)

    async with asyncio.TaskGroup() as group:
        for mine in ends.values():
            group.create_task(settle_account(mine))


async def _settle_spare(dependencies: SandboxDependencies, backend: Backend, sandbox_id: str) -> None:
    """Remove a warm sandbox of the last server, unless it got a record."""
    try:
        if (sandbox := await dependencies.repository.find(sandbox_id)) is not None:
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
    verdict = judge(State.FROZEN if as_frozen else sandbox.state, seen.presence)
    is_overdue = sandbox.state is not State.EXPIRED and end_due(sandbox, now=dependencies.clock.now())
    if is_overdue and verdict not in (Verdict.ENDED, Verdict.GIVE_UP, Verdict.FINISH):
        verdict = Verdict.OVERDUE
    found[verdict].append((sandbox, seen))


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
            # No line survived the last server, so the recorded activity may be outdated.
            dependencies.activity.look_at(sandbox.id)
        case Verdict.ENDED:
            await record_end(dependencies, sandbox, seen, actor=ACTOR, by=dependencies.last_witnessed)
        case Verdict.OVERDUE:
            await expire_overdue(dependencies, sandbox, actor=ACTOR)
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
            await stop_as_before(dependencies, sandbox, handle)
        case Verdict.THAW_AGAIN if handle is not None and isinstance(backend, Freezes):
            await backend.thaw(handle)
        case _:
            log.error("sandbox %s: nothing can be done for %s", sandbox.id, verdict)


async def _size_as_recorded(dependencies: SandboxDependencies, sandbox: Sandbox) -> None:
    """Give it the resources of its record: a crash during a boost may have left more than is paid for."""
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


DEATHS = "system:deaths"
# A backend whose watch breaks is asked again after this.
PAUSE = timedelta(seconds=1)


async def watch_deaths(dependencies: SandboxDependencies, backend: Backend) -> None:
    while True:
        try:
            async with asyncio.TaskGroup() as group:
                async for sandbox_id in backend.deaths():
                    group.create_task(bury(dependencies, backend, sandbox_id))
        except* Exception as errors:
            # An outermost loop: a watch that breaks is begun again.
            log.warning("the watch for deaths of %s broke: %s", backend.name, errors.exceptions)
        await dependencies.clock.sleep(PAUSE)


async def bury(dependencies: SandboxDependencies, backend: Backend, sandbox_id: str) -> None:
    """Record one death, after whatever operation is under way on that sandbox."""

    heard_at = dependencies.clock.now()

    async def act() -> None:
        sandbox = dependencies.repository.peek(sandbox_id)
        if dependencies.warm.drop(sandbox_id):
            await backend.teardown(sandbox_id)
        if sandbox is None or sandbox.handle is None or sandbox.state not in LIVE:
            return
        seen = await dependencies.backend_of(sandbox).recover(sandbox.handle)
        await record_end(dependencies, sandbox, seen, actor=DEATHS, by=heard_at)

    try:
        await dependencies.operations.free(sandbox_id)
        await dependencies.operations.perform(sandbox_id, "death", act)
    except Exception:
        # An outermost loop: the next start will look at this sandbox again.
        log.exception("could not write down the death of %s", sandbox_id)


def witnessed(seen: Observation, by: datetime | None, now: datetime) -> datetime:
    """Return the last moment at which it was seen alive, which is where its meter ends. Pure.

    It is the earliest of what the backend says, of `by` (what the server knows) and of now.
    """
    return min(moment for moment in (seen.last_seen_alive, by, now) if moment is not None)


async def record_end(
    dependencies: SandboxDependencies, sandbox: Sandbox, seen: Observation, *, actor: str, by: datetime | None
) -> None:
    """Record an end: `stopped` if its disk can be started again, otherwise `failed`, and nothing is left.

    `by` is the moment by which it was dead, as far as this server knows.
    """
    if seen.presence in (Presence.RUNNING, Presence.FROZEN):
        return
    backend = dependencies.backend_of(sandbox)
    reason = seen.reason or "exited"
    now = dependencies.clock.now()
    ended = witnessed(seen, by, now)
    facts = {"last_seen_alive": ended.isoformat()}
    if seen.presence is Presence.STOPPED and isinstance(backend, Stops):
        changes = stopped_changes(sandbox, ended, dependencies.retention)
        memory_mb = await found_kept(dependencies, sandbox)
        halted = Step(
            signal=Signal.HALTED,
            actor=actor,
            reason=reason,
            changes=changes,
            decide=lambda one: remembered(one, memory_mb),
            data=facts,
            at=ended,
        )
        await dependencies.repository.move(sandbox.id, halted)
        return
    try:
        # Done before the record says that nothing is left: a server killed in between must not leave
        # something without a record.
        await backend.teardown(sandbox.id)
    except Exception:
        # A failed sandbox that still holds something is stale: see `stale`.
        log.exception("the remains of %s could not be removed", sandbox.id)
    changes = {"handle": None, "expires_at": now + dependencies.retention}
    lost = Step(signal=Signal.LOST, actor=actor, reason=reason, changes=changes, data=facts, at=ended)
    await dependencies.repository.move(sandbox.id, lost)
