"""Hears of sandboxes that ended unasked, and writes down what became of them."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta

from sandboxer.backends.contract import Backend, Observation, Presence, Stops
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import LIVE, Signal
from sandboxer.sandboxes.pause import stopped_changes
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.repository import Step

log = logging.getLogger(__name__)
ACTOR = "system:deaths"
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
    """Write down one death, after whatever is under way: a create that ends well knows nothing of it."""

    heard_at = dependencies.clock.now()

    async def act() -> None:
        sandbox = dependencies.repository.peek(sandbox_id)
        if dependencies.warm.drop(sandbox_id):
            await backend.teardown(sandbox_id)
        if sandbox is None or sandbox.handle is None or sandbox.state not in LIVE:
            return
        seen = await dependencies.backend_of(sandbox).recover(sandbox.handle)
        await record_end(dependencies, sandbox, seen, actor=ACTOR, by=heard_at)

    try:
        await dependencies.operations.free(sandbox_id)
        await dependencies.operations.perform(sandbox_id, "death", act)
    except Exception:
        # An outermost loop: the next start will look at this sandbox again.
        log.exception("could not write down the death of %s", sandbox_id)


def witnessed(seen: Observation, by: datetime | None, now: datetime) -> datetime:
    """The last moment at which anybody had it in sight alive: the only end of its meter. Pure.

    `by`: the backend's word, or the server's own, whichever was earlier. A clock may have lied to either.
    """
    return min(moment for moment in (seen.last_seen_alive, by, now) if moment is not None)


async def record_end(
    dependencies: SandboxDependencies, sandbox: Sandbox, seen: Observation, *, actor: str, by: datetime | None
) -> None:
    """`stopped` if the disk is there and can be started again, else `failed` and nothing is left.

    It was dead by `by`, as far as this server knows.
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
        step = Step(
            signal=Signal.HALTED,
            actor=actor,
            reason=reason,
            changes=changes,
            data=facts,
            at=ended,
        )
        await dependencies.repository.move(sandbox.id, step)
        return
    try:
        # Before the record says that nothing is left: a server killed between the two would leave something
        # that nobody answers for.
        await backend.teardown(sandbox.id)
    except Exception:
        # A failed sandbox that still holds something is stale: see `stale`.
        log.exception("the remains of %s could not be removed", sandbox.id)
    changes = {"handle": None, "expires_at": now + dependencies.retention}
    lost = Step(
        signal=Signal.LOST,
        actor=actor,
        reason=reason,
        changes=changes,
        data=facts,
        at=ended,
    )
    await dependencies.repository.move(sandbox.id, lost)
