"""What happens to volumes without a caller: their account is dry or paid again, has met a spending cap or
ends; and at the start, records and reality are brought together.

Sleeps until a record names a moment or something happened to an account that has some. It compares, and never
relies on having heard of a change, so a crash loses nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection

from sandboxer.artifacts.capping import Capped, read_capped
from sandboxer.artifacts.snapshots.keeper import Purse, read_purses
from sandboxer.artifacts.volumes.book import Step
from sandboxer.artifacts.volumes.desk import VolumeDesk
from sandboxer.artifacts.volumes.lifecycle import USABLE, Signal, State
from sandboxer.artifacts.volumes.policy import MB
from sandboxer.artifacts.volumes.records import Volume
from sandboxer.backends.contract import Volumes
from sandboxer.money.dryness import Standing
from sandboxer.sandboxes.capping import Reached
from sandboxer.sandboxes.loops.timer import wait_until

log = logging.getLogger(__name__)
ACTOR = "system:volumes"
RETRY = timedelta(seconds=30)
# The reason of one that was spared once because it is locked.
SPARED = "unpaid_and_locked"
_FAR = datetime.max.replace(tzinfo=UTC)


def demanded(volume: Volume, purse: Purse, *, now: datetime, reached: Reached | None = None) -> Signal | None:
    """The step that money demands of it, or the cap it has met. Pure."""
    if volume.state not in USABLE:
        return None
    if purse.is_ending:
        return Signal.DROP
    if volume.state is State.UNPAID:
        if purse.standing is Standing.ALIVE and reached is None:
            return Signal.PAID
        is_due = volume.expires_at is not None and volume.expires_at <= now
        return Signal.RETENTION_OVER if is_due else None
    if volume.rate_msats and (purse.standing is Standing.REAPED or reached is not None):
        return Signal.DRY
    return None


class VolumeKeeper:
    def __init__(self, desk: VolumeDesk) -> None:
        self._desk = desk
        self._awake = asyncio.Event()
        self._accounts: frozenset[str] = frozenset()
        self._not_before: dict[str, datetime] = {}
        # When we last looked at caps; None: not since the start.
        self._looked_at: datetime | None = None
        desk.book.on_change(self._awake.set)

    async def reconcile(self) -> None:
        """Once, at the start. Raises nothing for one volume's sake."""
        living = {one.id: one for one in await self._desk.book.living()}
        for name, backend in self._desk.sandboxes.room.backends.items():
            if not isinstance(backend, Volumes):
                continue
            there = set(await backend.volumes())
            mine = {one.id for one in living.values() if one.backend == name}
            await _drop_unrecorded(backend, there - mine)
            for volume in (living[id_] for id_ in mine):
                try:
                    await self._settle(volume, backend, is_there=volume.id in there)
                except Exception:
                    # One volume must not keep the server from starting for all others.
                    log.exception("volume %s could not be reconciled", volume.id)

    async def catch_up(self) -> None:
        """Before anyone can ask for anything: a cap that was reached meanwhile ended the charge then."""
        now = self._desk.clock.now()
        usable = [one for one in await self._desk.book.living() if one.state in USABLE]
        capped = await self._desk.book.store.read(lambda conn: read_capped(conn, usable, now=now))
        for one in usable:
            reached = capped.reached.get(one.id)
            if reached is not None and one.state is State.READY:
                await self._carry_out(one, Signal.DRY, now, reached)

    async def run(self) -> None:
        leave: Callable[[], None] = self._desk.book.store.on_commit(self._hear)
        try:
            while True:
                self._awake.clear()
                await wait_until(await self._round(), self._awake, self._desk.clock)
        finally:
            leave()

    async def _round(self) -> datetime:
        """Do what is due; returns when to look again although nothing happened."""
        try:
            living = await self._desk.book.living()
            self._accounts = frozenset(one.account for one in living)
            now = self._desk.clock.now()
            purses, capped = await self._desk.book.store.read(lambda conn: self._read(conn, living, now))
            self._looked_at = capped.seen_until
        except Exception:
            # An outermost loop: the next round tries again.
            log.exception("the keeper of volumes could not look")
            return self._desk.clock.now() + RETRY
        for volume in living:
            await self._attend(volume, purses[volume.account], capped.reached.get(volume.id))
        late = self._not_before
        moments = [late.get(one.id) or one.expires_at or _FAR for one in living]
        return min([*moments, capped.look_at or _FAR])

    def _read(
        self, conn: Connection, living: Sequence[Volume], now: datetime
    ) -> tuple[dict[str, Purse], Capped]:
        usable = [one for one in living if one.state in USABLE]
        return read_purses(conn, self._accounts), read_capped(conn, usable, now=now, since=self._looked_at)

    async def _attend(self, volume: Volume, purse: Purse, reached: Reached | None) -> None:
        now = self._desk.clock.now()
        if self._not_before.get(volume.id, now) > now:
            return
        try:
            self._not_before.pop(volume.id, None)
            signal = demanded(volume, purse, now=now, reached=reached)
            if signal is not None:
                await self._carry_out(volume, signal, now, reached)
            elif volume.state is State.DROPPING:
                # Begun, and not come to its end: the backend failed.
                await self._desk.remove(volume, Signal.DROP, actor=ACTOR, reason=volume.reason)
        except Exception as error:
            # One volume's trouble must not stop the clock of all; an attached one goes after its sandbox.
            log.warning("the keeper could not attend to %s: %s", volume.id, error)
            self._not_before[volume.id] = now + RETRY

    async def _carry_out(
        self, volume: Volume, signal: Signal, now: datetime, reached: Reached | None
    ) -> None:
        desk = self._desk
        until = now + desk.policy.retention
        match signal:
            case Signal.DRY:
                data: dict[str, object] = {"dropped_at": until.isoformat()}
                if reached is not None:
                    data |= {"cap": reached.cap, "limit_sats": reached.limit_sats}
                step = Step(
                    signal=signal,
                    actor=ACTOR,
                    reason="out_of_sats" if reached is None else "spending_cap",
                    changes={"expires_at": until},
                    data=data,
                    at=None if reached is None else reached.at,
                )
                await desk.book.move(volume.id, step)
            case Signal.PAID:
                step = Step(signal=signal, actor=ACTOR, reason="paid", changes={"expires_at": None})
                await desk.book.move(volume.id, step)
            case Signal.RETENTION_OVER if volume.locked_at is not None and volume.reason != SPARED:
                await self._spare(volume, until)
            case _:
                await desk.remove(volume, signal, actor=ACTOR, reason=signal.value)

    async def _spare(self, volume: Volume, until: datetime) -> None:
        """Nobody paid, and it is locked: told loudly, and kept for once more the same time."""
        step = Step(
            signal=None,
            actor=ACTOR,
            reason=SPARED,
            kind="volume.overdue",
            changes={"expires_at": until, "reason": SPARED},
            data={"dropped_at": until.isoformat()},
        )
        await self._desk.book.move(volume.id, step)

    async def _settle(self, volume: Volume, backend: Volumes, *, is_there: bool) -> None:
        """After a start: finish what was begun, and say what is missing."""
        match volume.state:
            case State.MAKING:
                # Nobody was answered for it.
                await backend.drop_volume(volume.id)
                await self._desk.book.move(
                    volume.id, Step(signal=Signal.FAIL, actor=ACTOR, reason="server_restarted")
                )
            case State.DROPPING:
                await self._desk.remove(volume, Signal.DROP, actor=ACTOR, reason=volume.reason)
            case State.READY | State.UNPAID if not is_there:
                await self._desk.book.move(
                    volume.id, Step(signal=Signal.MISSED, actor=ACTOR, reason="missing_on_host")
                )
            case State.READY | State.UNPAID:
                usage = await backend.volume_usage(volume.id)
                if usage.limit_bytes not in (0, volume.size_mb * MB):
                    # A change of its size that was not written down.
                    await backend.resize_volume(volume.id, size_mb=volume.size_mb)

    def _hear(self, topics: frozenset[str]) -> None:
        if topics & self._accounts:
            self._awake.set()


async def _drop_unrecorded(backend: Volumes, volume_ids: set[str]) -> None:
    """What a crash left: there, and nobody knows what for."""
    for volume_id in sorted(volume_ids):
        try:
            await backend.drop_volume(volume_id)
            log.info("dropped %s: it has no record", volume_id)
        except Exception:
            log.exception("%s could not be dropped", volume_id)
