"""What happens to images without a caller: their account is dry, paid again or ends, nobody paid in time; and
at the start, records and reality are brought together. See `vigil` for what wakes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime

from sandboxer.artifacts.images.published.book import Step
from sandboxer.artifacts.images.published.collecting import Kept, Tier, collectable
from sandboxer.artifacts.images.published.desk import PASSING, ImageDesk
from sandboxer.artifacts.images.published.records import PublishedImage
from sandboxer.artifacts.snapshots.keeper import is_missed
from sandboxer.artifacts.snapshots.lifecycle import USABLE, Signal, State
from sandboxer.artifacts.vigil import FAR, RETRY, SPARED, Purse, Vigil
from sandboxer.backends.contract import Snapshots
from sandboxer.money.dryness import Standing
from sandboxer.sandboxes.capping import Reached

log = logging.getLogger(__name__)
ACTOR = "system:images"
_SIGNALS = {
    Tier.ENDED: Signal.DROP,
    Tier.ACCOUNT_ENDED: Signal.DROP,
    Tier.UNPAID: Signal.RETENTION_OVER,
}


def by_money(image: PublishedImage, standing: Standing, reached: Reached | None = None) -> Signal | None:
    """What an empty or a filled bucket, or the cap it has met, demands of it. Pure."""
    is_over = standing is Standing.REAPED or reached is not None
    if image.state is State.KEPT and image.rate_msats and is_over:
        return Signal.DRY
    if image.state is State.UNPAID and standing is Standing.ALIVE and reached is None:
        return Signal.PAID
    return None


class ImageKeeper:
    def __init__(self, desk: ImageDesk) -> None:
        self._desk = desk
        self._retry_at: datetime | None = None
        self._vigil = Vigil(desk.book.store, desk.clock, desk.book.living, lambda one: one.state in USABLE)
        desk.book.on_change(self._vigil.wake)

    async def reconcile(self) -> None:
        """Once, at the start. Raises nothing for one image's sake."""
        living = {one.id: one for one in await self._desk.book.living()}
        listed = {id_ for id_, one in living.items() if one.state is not State.TAKING}
        for name, backend in self._desk.sandboxes.room.backends.items():
            if not isinstance(backend, Snapshots):
                continue
            there = set(await backend.kept())
            listed |= there - living.keys()
            mine = {one.id for one in living.values() if one.backend == name}
            await _drop_passing(backend, there)
            for image in (living[id_] for id_ in mine):
                try:
                    await self._settle(image, backend, is_there=image.id in there)
                except Exception:
                    # One image must not keep the server from starting for all others.
                    log.exception("image %s could not be reconciled", image.id)
        # As long as there is a disk, somebody may come to know it again.
        await asyncio.to_thread(self._desk.lists.sweep, listed)

    async def catch_up(self) -> None:
        """Before anyone can ask for anything: a cap that was reached meanwhile ended the charge then."""
        for one, reached in await self._vigil.capped_meanwhile():
            if one.state is State.KEPT:
                await self._dry(one, self._desk.clock.now(), reached)

    async def run(self) -> None:
        await self._vigil.run(self._round)

    async def _round(self) -> datetime:
        """Do what is due; returns when to look again although nothing happened."""
        self._retry_at = None
        try:
            seen = await self._vigil.look()
        except Exception:
            # An outermost loop: the next round tries again.
            log.exception("the keeper of images could not look")
            return self._desk.clock.now() + RETRY
        living, now = seen.living, seen.now
        for image in living:
            await self._attend(image, seen.purses[image.account], now, seen.capped.reached.get(image.id))
        await self._collect(living, seen.purses, now)
        unpaid = [
            one.expires_at for one in living if one.state is State.UNPAID and one.expires_at is not None
        ]
        return min([*unpaid, seen.capped.look_at or FAR, self._retry_at or FAR])

    async def _attend(
        self, image: PublishedImage, purse: Purse, now: datetime, reached: Reached | None
    ) -> None:
        signal = by_money(image, purse.standing, reached)
        try:
            if signal is Signal.DRY:
                await self._dry(image, now, reached)
            elif signal is Signal.PAID:
                await self._move(image, signal, "paid", {"expires_at": None}, {})
            elif _is_due_and_locked(image, now):
                until = now + self._desk.policy.retention
                data = {"dropped_at": until.isoformat()}
                changes = {"expires_at": until, "reason": SPARED}
                await self._move(image, None, SPARED, changes, data, kind="image.overdue")
        except Exception:
            self._complain(image.id, now)

    async def _dry(self, image: PublishedImage, now: datetime, reached: Reached | None) -> None:
        until = now + self._desk.policy.retention
        why = "out_of_sats" if reached is None else "spending_cap"
        at = None if reached is None else reached.at
        data = {"dropped_at": until.isoformat()}
        await self._move(image, Signal.DRY, why, {"expires_at": until}, data, at=at)

    async def _collect(
        self, living: Sequence[PublishedImage], purses: dict[str, Purse], now: datetime
    ) -> None:
        busy = frozenset(one.id for one in living if self._desk.operations.running(one.id))
        kept = Kept(disks=frozenset(), in_use=busy | frozenset(self._desk.readers))
        ended = {account for account, purse in purses.items() if purse.is_ending}
        known = {one.id: one for one in living}
        for id_, tier in collectable(kept, living, ended_accounts=ended, now=now).items():
            try:
                signal = _SIGNALS[tier]
                await self._desk.remove(known[id_], signal, actor=ACTOR, reason=tier.value)
            except Exception:
                self._complain(id_, now)

    async def _settle(self, image: PublishedImage, backend: Snapshots, *, is_there: bool) -> None:
        """After a start: finish what was begun, and say what is missing."""
        if image.state is State.TAKING:
            # Nobody was answered for it; in an older copy of the database it may be whole by now.
            if not self._desk.sandboxes.room.is_adopted:
                await backend.drop(image.id)
            await self._move(image, Signal.FAIL, "server_restarted", {}, {})
        elif image.state in USABLE and (not is_there or await is_missed(backend, image.id)):
            # Nobody knows when it went: it pays until it was last seen.
            seen = self._desk.sandboxes.room.last_witnessed
            await self._move(image, Signal.MISSED, "missing_on_host", {}, {}, at=seen)

    async def _move(
        self,
        image: PublishedImage,
        signal: Signal | None,
        reason: str,
        changes: Mapping[str, object],
        data: Mapping[str, object],
        kind: str = "",
        at: datetime | None = None,
    ) -> None:
        step = Step(signal=signal, actor=ACTOR, reason=reason, changes=changes, data=data, kind=kind, at=at)
        await self._desk.book.move(image.id, step)

    def _complain(self, image_id: str, now: datetime) -> None:
        """One image's trouble must not stop the clock of all."""
        log.exception("the keeper could not attend to %s", image_id)
        self._retry_at = now + RETRY


def _is_due_and_locked(image: PublishedImage, now: datetime) -> bool:
    is_due = image.state is State.UNPAID and image.expires_at is not None and image.expires_at <= now
    return is_due and image.locked_at is not None and image.reason != SPARED


async def _drop_passing(backend: Snapshots, there: set[str]) -> None:
    """Copies that a killed server was publishing from: of something that is still there, and never the only
    one."""
    for disk_id in sorted(one for one in there if one.startswith(f"{PASSING}_")):
        try:
            await backend.drop(disk_id)
            log.info("dropped %s: a copy that was being published from", disk_id)
        except Exception:
            log.exception("%s could not be dropped", disk_id)
