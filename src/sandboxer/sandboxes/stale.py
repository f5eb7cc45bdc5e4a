"""What a backend holds that no record accounts for: left by a crash, or by someone's hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Forbidden
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.room import Room


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleSandbox:
    sandbox_id: str
    backend: str
    why: str


async def find(room: Room, caller: Caller) -> Sequence[StaleSandbox]:
    require_owner(caller)
    return await find_all(room)


async def reap(room: Room, caller: Caller) -> Sequence[StaleSandbox]:
    """Remove it, and say what was removed."""
    require_owner(caller)
    stale = await find_all(room)
    for item in stale:
        await room.backends[item.backend].teardown(item.sandbox_id)
    return stale


async def find_all(room: Room) -> Sequence[StaleSandbox]:
    found = []
    for name, backend in room.backends.items():
        for sandbox_id in await backend.inventory():
            why = await _why_stale(room, sandbox_id)
            if why is not None:
                found.append(StaleSandbox(sandbox_id=sandbox_id, backend=name, why=why))
    return found


def require_owner(caller: Caller) -> None:
    if not caller.is_owner:
        raise Forbidden(why="this concerns the whole host; only the owner key may do it")


async def _why_stale(room: Room, sandbox_id: str) -> str | None:
    # Asked after the inventory was taken: what is made has its record (or its place in the pool) before.
    if room.warm.holds(sandbox_id) or room.operations.running(sandbox_id) is not None:
        return None
    sandbox = await room.book.find(sandbox_id)
    if sandbox is None:
        return "it has no record"
    holds_nothing = sandbox.state in (State.FAILED, State.DESTROYED)
    return f"its record says it is {sandbox.state.value}" if holds_nothing else None
