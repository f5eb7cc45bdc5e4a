"""What happens to snapshots without a caller: their time is over, their account is dry or paid again, has met
a spending cap or ends, somebody looks how large they are; and at the start, records and reality are brought
together. See `vigil` for what wakes it.
"""

from __future__ import annotations

import logging
from datetime import datetime

from sandboxer.artifacts.snapshots.book import Step
from sandboxer.artifacts.snapshots.desk import SnapshotDesk
from sandboxer.artifacts.snapshots.lifecycle import USABLE, Signal, State
from sandboxer.artifacts.snapshots.records import Snapshot
from sandboxer.artifacts.vigil import FAR, RETRY, SPARED, Purse, Vigil
from sandboxer.backends.contract import Snapshots
from sandboxer.kernel.errors import Conflict, NotFound
from sandboxer.money.dryness import Standing
from sandboxer.sandboxes.capping import Reached
from sandboxer.sandboxes.disks import keeper_of

log = logging.getLogger(__name__)
ACTOR = "system:snapshots"
PREFIX = "snp_"


def demanded(
    snapshot: Snapshot, purse: Purse, *, now: datetime, reached: Reached | None = None
) -> Signal | None:
    """The step that time and money demand of it, or the cap it has met. Pure.

    A lock holds against time, not money for good.
    """
    if snapshot.state not in USABLE:
        return None
    if purse.is_ending:
        return Signal.DROP
    if snapshot.state is State.UNPAID:
        if purse.standing is Standing.ALIVE and reached is None:
            return Signal.PAID
        return Signal.RETENTION_OVER if _is_due(snapshot, now) else None
    if snapshot.rate_msats and (purse.standing is Standing.REAPED or reached is not None):
        return Signal.DRY
    return Signal.EXPIRE if _is_due(snapshot, now) and snapshot.locked_at is None else None


def looked_at(snapshot: Snapshot) -> datetime:
    """When time alone will demand something of it."""
    if snapshot.state not in USABLE or snapshot.expires_at is None:
        return FAR
    if snapshot.state is State.KEPT and snapshot.locked_at is not None:
        return FAR
    return snapshot.expires_at


class SnapshotKeeper:
    def __init__(self, desk: SnapshotDesk) -> None:
        self._desk = desk
        self._not_before: dict[str, datetime] = {}
        self._vigil = Vigil(desk.store, desk.clock, desk.book.living, lambda one: one.state in USABLE)
        desk.book.on_change(lambda _: self._vigil.wake())

    async def reconcile(self) -> None:
        """Once, at the start. Raises nothing for one snapshot's sake."""
        living = {one.id: one for one in await self._desk.book.living()}
        for name, backend in self._desk.sandboxes.room.backends.items():
            if not isinstance(backend, Snapshots):
                continue
            there = {disk_id for disk_id in await backend.kept() if disk_id.startswith(PREFIX)}
            mine = {one.id for one in living.values() if one.backend == name}
            for snapshot in (living[id_] for id_ in mine):
                try:
                    await self._settle(snapshot, is_there=snapshot.id in there)
                except Exception:
                    # One snapshot must not keep the server from starting for all others.
                    log.exception("snapshot %s could not be reconciled", snapshot.id)

    async def catch_up(self) -> None:
        """Before anyone can ask for anything: a cap that was reached meanwhile ended the charge then."""
        for one, reached in await self._vigil.capped_meanwhile():
            if one.state is State.KEPT:
                await self._carry_out(one, Signal.DRY, self._desk.clock.now(), reached)

    async def run(self) -> None:
        await self._vigil.run(self._round)

    async def _round(self) -> datetime:
        """Do what is due; returns when to look again although nothing happened."""
        try:
            seen = await self._vigil.look()
        except Exception:
            # An outermost loop: the next round tries again.
            log.exception("the keeper of snapshots could not look")
            return self._desk.clock.now() + RETRY
        for snapshot in seen.living:
            await self._attend(snapshot, seen.purses[snapshot.account], seen.capped.reached.get(snapshot.id))
        late = self._not_before
        return min([late.get(one.id) or looked_at(one) for one in seen.living] + [seen.capped.look_at or FAR])

    async def _attend(self, snapshot: Snapshot, purse: Purse, reached: Reached | None) -> None:
        now = self._desk.clock.now()
        if self._not_before.get(snapshot.id, now) > now:
            return
        try:
            self._not_before.pop(snapshot.id, None)
            signal = demanded(snapshot, purse, now=now, reached=reached)
            if signal is not None:
                await self._carry_out(snapshot, signal, now, reached)
            elif snapshot.state is State.DROPPING:
                # Begun, and not come to its end: the backend failed.
                await self._desk.remove(snapshot, Signal.DROP, actor=ACTOR, reason=snapshot.reason)
            elif snapshot.state in USABLE and not snapshot.is_measured:
                await self._measure(snapshot)
        except Exception:
            # One snapshot's trouble must not stop the clock of all.
            log.exception("the keeper could not attend to %s", snapshot.id)
            self._not_before[snapshot.id] = now + RETRY

    async def _carry_out(
        self, snapshot: Snapshot, signal: Signal, now: datetime, reached: Reached | None
    ) -> None:
        desk, retention = self._desk, self._desk.policy.retention
        match signal:
            case Signal.DRY:
                changes: dict[str, object] = {
                    "expires_at": now + retention,
                    "paid_expires_at": snapshot.expires_at,
                }
                data: dict[str, object] = {"dropped_at": (now + retention).isoformat()}
                if reached is not None:
                    data |= {"cap": reached.cap, "limit_sats": reached.limit_sats}
                step = Step(
                    signal=signal,
                    actor=ACTOR,
                    reason="out_of_sats" if reached is None else "spending_cap",
                    changes=changes,
                    data=data,
                    at=None if reached is None else reached.at,
                )
                await desk.book.move(snapshot.id, step)
            case Signal.PAID:
                changes = {"expires_at": snapshot.paid_expires_at, "paid_expires_at": None}
                await desk.book.move(
                    snapshot.id, Step(signal=signal, actor=ACTOR, reason="paid", changes=changes)
                )
            case Signal.RETENTION_OVER if snapshot.locked_at is not None and snapshot.reason != SPARED:
                await self._spare(snapshot, now)
            case _:
                await desk.remove(snapshot, signal, actor=ACTOR, reason=signal.value)

    async def _spare(self, snapshot: Snapshot, now: datetime) -> None:
        """Nobody paid, and it is locked: told loudly, and kept for once more the same time."""
        until = now + self._desk.policy.retention
        step = Step(
            signal=None,
            actor=ACTOR,
            reason=SPARED,
            kind="snapshot.overdue",
            changes={"expires_at": until, "reason": SPARED},
            data={"dropped_at": until.isoformat()},
        )
        await self._desk.book.move(snapshot.id, step)

    async def _measure(self, snapshot: Snapshot) -> None:
        """Exactly how large it is: it pays for that, not for what it might hold at most."""
        sizes = await self._desk.sizes(snapshot)
        if sizes is None:
            return
        size = sizes.referenced_bytes
        step = Step(
            signal=None,
            actor=ACTOR,
            reason="measured",
            kind="snapshot.measured",
            changes={
                "size_bytes": size,
                "is_measured": True,
                "rate_msats": self._desk.book.rate(snapshot, size),
            },
            data={"size_bytes": size},
        )
        await self._desk.book.move(snapshot.id, step)

    async def _settle(self, snapshot: Snapshot, *, is_there: bool) -> None:
        """After a start: finish what was begun, and say what is missing."""
        backend = keeper_of(self._desk.sandboxes.room.backends.get(snapshot.backend), snapshot.backend)
        match snapshot.state:
            case State.TAKING:
                # Nobody was answered for it; in an older copy of the database it may be whole by now.
                if not self._desk.sandboxes.room.is_adopted:
                    await backend.drop(snapshot.id)
                await self._desk.book.move(
                    snapshot.id, Step(signal=Signal.FAIL, actor=ACTOR, reason="server_restarted")
                )
            case State.DROPPING:
                await self._desk.remove(snapshot, Signal.DROP, actor=ACTOR, reason=snapshot.reason)
            case State.KEPT | State.UNPAID if not is_there or await is_missed(backend, snapshot.id):
                # Nobody knows when it went: it pays until it was last seen.
                seen = self._desk.sandboxes.room.last_witnessed
                await self._desk.book.move(
                    snapshot.id, Step(signal=Signal.MISSED, actor=ACTOR, reason="missing_on_host", at=seen)
                )


async def is_missed(backend: Snapshots, disk_id: str) -> bool:
    """Gone, or not what was kept. Raises what says neither: a host in trouble has lost nothing."""
    try:
        await backend.check_kept(disk_id)
    except (NotFound, Conflict):
        return True
    return False


def _is_due(snapshot: Snapshot, now: datetime) -> bool:
    return snapshot.expires_at is not None and snapshot.expires_at <= now
