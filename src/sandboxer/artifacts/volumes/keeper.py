"""What happens to volumes without a caller: their account is dry or paid again, has met a spending cap or
ends; and at the start, records and reality are brought together. See `vigil` for what wakes it.
"""

from __future__ import annotations

import logging
from datetime import datetime

from sandboxer.artifacts.vigil import FAR, RETRY, SPARED, Purse, Vigil
from sandboxer.artifacts.volumes.book import Step
from sandboxer.artifacts.volumes.desk import VolumeDesk
from sandboxer.artifacts.volumes.lifecycle import USABLE, Signal, State
from sandboxer.artifacts.volumes.policy import MB
from sandboxer.artifacts.volumes.records import Volume
from sandboxer.backends.contract import Volumes
from sandboxer.money.dryness import Standing
from sandboxer.sandboxes.capping import Reached

log = logging.getLogger(__name__)
ACTOR = "system:volumes"


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
        self._not_before: dict[str, datetime] = {}
        self._vigil = Vigil(desk.book.store, desk.clock, desk.book.living, lambda one: one.state in USABLE)
        desk.book.on_change(self._vigil.wake)

    async def reconcile(self) -> None:
        """Once, at the start. Raises nothing for one volume's sake."""
        living = {one.id: one for one in await self._desk.book.living()}
        for name, backend in self._desk.sandboxes.room.backends.items():
            if not isinstance(backend, Volumes):
                continue
            there = set(await backend.volumes())
            mine = {one.id for one in living.values() if one.backend == name}
            for volume in (living[id_] for id_ in mine):
                try:
                    await self._settle(volume, backend, is_there=volume.id in there)
                except Exception:
                    # One volume must not keep the server from starting for all others.
                    log.exception("volume %s could not be reconciled", volume.id)

    async def catch_up(self) -> None:
        """Before anyone can ask for anything: a cap that was reached meanwhile ended the charge then."""
        for one, reached in await self._vigil.capped_meanwhile():
            if one.state is State.READY:
                await self._carry_out(one, Signal.DRY, self._desk.clock.now(), reached)

    async def run(self) -> None:
        await self._vigil.run(self._round)

    async def _round(self) -> datetime:
        """Do what is due; returns when to look again although nothing happened."""
        try:
            seen = await self._vigil.look()
        except Exception:
            # An outermost loop: the next round tries again.
            log.exception("the keeper of volumes could not look")
            return self._desk.clock.now() + RETRY
        for volume in seen.living:
            await self._attend(volume, seen.purses[volume.account], seen.capped.reached.get(volume.id))
        late = self._not_before
        moments = [late.get(one.id) or one.expires_at or FAR for one in seen.living]
        return min([*moments, seen.capped.look_at or FAR])

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
                # Nobody was answered for it; in an older copy of the database it may be in use by now.
                if not self._desk.sandboxes.room.is_adopted:
                    await backend.drop_volume(volume.id)
                await self._desk.book.move(
                    volume.id, Step(signal=Signal.FAIL, actor=ACTOR, reason="server_restarted")
                )
            case State.DROPPING:
                await self._desk.remove(volume, Signal.DROP, actor=ACTOR, reason=volume.reason)
            case State.READY | State.UNPAID if not is_there:
                # Nobody knows when it went: it pays until it was last seen.
                seen = self._desk.sandboxes.room.last_witnessed
                await self._desk.book.move(
                    volume.id, Step(signal=Signal.MISSED, actor=ACTOR, reason="missing_on_host", at=seen)
                )
            case State.READY | State.UNPAID:
                usage = await backend.volume_usage(volume.id)
                if usage.limit_bytes not in (0, volume.size_mb * MB):
                    # A change of its size that was not written down.
                    await backend.resize_volume(volume.id, size_mb=volume.size_mb)
