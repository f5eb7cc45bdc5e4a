"""Writes `ready` ⇄ `active` once the truth has differed from the record for a second (decision 0003)."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from sandboxer.sandboxes.book import Step
from sandboxer.sandboxes.idleness import runs_commands
from sandboxer.sandboxes.lifecycle import Signal, State
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.room import Room

log = logging.getLogger(__name__)
ACTOR = "system:activity"
LAG = timedelta(seconds=1)
# How often an active sandbox without an open line is asked whether a background process still runs.
BACKGROUND_LAG = timedelta(seconds=15)


async def record_activity(room: Room) -> None:
    """Sleeps while nothing stirs; otherwise looks once a second at the sandboxes that turned."""
    while True:
        await room.activity.stirred.wait()
        await room.clock.sleep(LAG)
        now = room.clock.now()
        for sandbox_id in tuple(room.activity.unsettled):
            try:
                await _settle(room, sandbox_id, now)
            except Exception as error:
                # An outermost loop: one sandbox's trouble must not stop the record of all.
                log.warning("activity of %s not recorded: %r", sandbox_id, error)
                room.activity.unsettled.discard(sandbox_id)
        if not room.activity.unsettled:
            room.activity.stirred.clear()


async def _settle(room: Room, sandbox_id: str, now: datetime) -> None:
    sandbox = room.book.peek(sandbox_id)
    if sandbox is None or sandbox.state not in (State.READY, State.ACTIVE):
        room.activity.unsettled.discard(sandbox_id)
        return
    pulse = room.activity.pulse(sandbox_id)
    if now - pulse.since < LAG:
        return
    if not pulse.open_lines and await _background_runs(room, sandbox, now):
        return
    room.activity.unsettled.discard(sandbox_id)
    if pulse.open_lines and sandbox.state is State.READY:
        await _move(room, sandbox_id, Signal.WORK_BEGAN)
    elif not pulse.open_lines and sandbox.state is State.ACTIVE:
        await _move(room, sandbox_id, Signal.WORK_ENDED)


async def _background_runs(room: Room, sandbox: Sandbox, now: datetime) -> bool:
    """Looks at once when the lines closed, then seldom; while it is true the sandbox is (made) active."""
    pulse = room.activity.pulse(sandbox.id)
    if pulse.asked_at is not None and now - pulse.asked_at < BACKGROUND_LAG and pulse.asked_at >= pulse.since:
        return True
    if not await runs_commands(sandbox, room.backend_of(sandbox)):
        return False
    pulse.asked_at = now
    if sandbox.state is State.READY:
        await _move(room, sandbox.id, Signal.WORK_BEGAN)
    return True


async def _move(room: Room, sandbox_id: str, signal: Signal) -> None:
    await room.book.move(sandbox_id, Step(signal=signal, actor=ACTOR, reason=signal.value))
