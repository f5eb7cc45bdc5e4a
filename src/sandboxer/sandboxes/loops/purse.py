"""Brings sandboxes in line with the purse of their account: dry → grace, paid → back, not paid → reaped.

Looks at an account when anything happened to it or to its paying sandboxes, and at all of them at the start.
It compares the bucket's standing with the sandboxes' states and never relies on having heard the event, so
a crash loses nothing. Also moves sandboxes in and out of the slots of a tier, and when the tier ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection

from sandboxer.accounts.authority import load_authority
from sandboxer.accounts.entitlements import Entitlement, Move, moves
from sandboxer.backends.contract import Stops
from sandboxer.money.buckets import load_bucket
from sandboxer.money.dryness import Standing
from sandboxer.sandboxes.book import Step
from sandboxer.sandboxes.charging import (
    DRY_WHILE_FROZEN,
    OCCUPYING,
    due,
    entitlement_of,
    is_frozen,
    living_of,
)
from sandboxer.sandboxes.destroy import remove
from sandboxer.sandboxes.lifecycle import LIVE, Signal, State
from sandboxer.sandboxes.loops.timer import wait_until
from sandboxer.sandboxes.pause import stopped_changes
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.room import Room
from sandboxer.store.engine import Store

log = logging.getLogger(__name__)
ACTOR = "system:purse"
RETRY = timedelta(seconds=5)
_FAR = datetime.max.replace(tzinfo=UTC)
# Their charge stays the same.
_QUIET = frozenset({Signal.WORK_BEGAN, Signal.WORK_ENDED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    standing: Standing
    entitlement: Entitlement | None


def wanted(sandbox: Sandbox, standing: Standing) -> Signal | None:
    """The step that money demands of it now. Pure. One at rate zero is not touched by an empty bucket."""
    if sandbox.state is State.GRACE:
        if standing is Standing.REAPED:
            return Signal.GRACE_OVER
        if standing is Standing.ALIVE:
            return Signal.PAID_WHILE_FROZEN if is_frozen(sandbox) else Signal.PAID
        return None
    if standing is Standing.ALIVE or sandbox.state not in LIVE:
        return None
    paid_for = due(sandbox)
    return Signal.DRY if paid_for is not None and paid_for[1] > 0 else None


class Purse:
    def __init__(self, room: Room, store: Store) -> None:
        self._room = room
        self._store = store
        self._stirred: set[str] = set()
        self._awake = asyncio.Event()
        # When to look at an account although nothing happened: its tier ends, or acting failed.
        self._later: dict[str, datetime] = {}
        room.book.on_change(self._follow)

    async def run(self) -> None:
        leave: Callable[[], None] = self._store.on_commit(self._hear)
        self._stirred |= {s.account for s in self._room.book.living() if not s.terms.is_free}
        try:
            while True:
                self._awake.clear()
                await self._round()
                if not self._stirred:
                    moment = min(self._later.values(), default=_FAR)
                    await wait_until(moment, self._awake, self._room.clock)
        finally:
            leave()

    async def _round(self) -> None:
        now = self._room.clock.now()
        self._stirred |= {account for account, moment in self._later.items() if moment <= now}
        paying = {s.account for s in self._room.book.living() if not s.terms.is_free}
        stirred, self._stirred = self._stirred, set()
        for account in stirred:
            self._later.pop(account, None)
        for account in sorted(stirred & paying):
            try:
                await self.attend(account)
            except Exception:
                # An outermost loop: one account's trouble must not keep the others alive for free.
                log.exception("the purse could not attend to %s", account)
                self._later[account] = self._room.clock.now() + RETRY

    async def attend(self, account: str) -> None:
        """Do what the account's condition demands of each of its sandboxes."""
        condition = await self._store.read(lambda conn: _condition(conn, account))
        if await self._change_sides(account, condition.entitlement):
            condition = await self._store.read(lambda conn: _condition(conn, account))
        for sandbox in self._of(account):
            if wanted(sandbox, condition.standing) is not None:
                await self._carry_out(sandbox, condition.standing)

    def _of(self, account: str) -> list[Sandbox]:
        return [s for s in self._room.book.living() if s.account == account and not s.terms.is_free]

    async def _change_sides(self, account: str, entitlement: Entitlement | None) -> bool:
        now = self._room.clock.now()
        living = [living_of(s) for s in self._of(account) if s.state in OCCUPYING]
        changed = moves(living, entitlement, now=now)
        for move in changed:
            await self._change_side(move)
        if entitlement is not None and entitlement.is_live(now):
            self._later[account] = entitlement.until
        return bool(changed)

    async def _change_side(self, move: Move) -> None:
        await self._room.book.amend(
            move.id,
            kind="sandbox.terms_changed",
            actor=ACTOR,
            reason="entitled" if move.to_free else "pays_per_second",
            decide=lambda sandbox: {"terms": replace(sandbox.terms, is_entitled=move.to_free)},
        )

    async def _carry_out(self, sandbox: Sandbox, standing: Standing) -> None:
        if standing is Standing.REAPED and not isinstance(self._room.backend_of(sandbox), Stops):
            # What cannot be kept without running is removed.
            await remove(self._room, sandbox, actor=ACTOR, reason=Signal.GRACE_OVER.value)
            return
        sandbox_id = sandbox.id

        async def act() -> None:
            # Looked at again: another operation may have ended while this one waited for its turn.
            while (sandbox := self._room.book.peek(sandbox_id)) is not None:
                signal = wanted(sandbox, standing)
                if signal is None:
                    return
                await self._step(sandbox, signal)

        await self._room.operations.perform(sandbox_id, "money", act)

    async def _step(self, sandbox: Sandbox, signal: Signal) -> None:
        room = self._room
        reason = signal.value
        changes: dict[str, object] = {}
        if signal is Signal.DRY and is_frozen(sandbox):
            reason = DRY_WHILE_FROZEN
        if signal is Signal.GRACE_OVER:
            await _stop(room, sandbox)
            changes = dict(stopped_changes(sandbox, room.clock.now(), room.retention))
        await room.book.move(sandbox.id, Step(signal=signal, actor=ACTOR, reason=reason, changes=changes))

    def _hear(self, topics: frozenset[str]) -> None:
        accounts = {topic for topic in topics if not topic.startswith(("sbx_", "money."))}
        if accounts:
            self._stirred |= accounts
            self._awake.set()

    def _follow(self, sandbox: Sandbox, steps: Sequence[Step]) -> None:
        if not sandbox.terms.is_free and any(step.signal not in _QUIET for step in steps):
            self._stirred.add(sandbox.account)
            self._awake.set()


async def _stop(room: Room, sandbox: Sandbox) -> None:
    backend = room.backend_of(sandbox)
    if sandbox.handle is not None and isinstance(backend, Stops):
        await backend.stop(sandbox.handle)


def _condition(conn: Connection, account: str) -> Condition:
    bucket = load_bucket(conn, account)
    return Condition(
        standing=bucket.health.standing, entitlement=entitlement_of(load_authority(conn, account))
    )
