"""What happens to images without a caller: their account is dry, paid again or ends, nobody paid in time; and
at the start, records and reality are brought together.

Sleeps until a record names a moment or something happened to an account that keeps some. It compares, and
never relies on having heard of a change, so a crash loses nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from sandboxer.artifacts.capping import read_capped
from sandboxer.artifacts.images.published.book import Step
from sandboxer.artifacts.images.published.collecting import SPARED, Kept, Tier, collectable
from sandboxer.artifacts.images.published.desk import PASSING, PREFIX, ImageDesk
from sandboxer.artifacts.images.published.records import PublishedImage
from sandboxer.artifacts.snapshots.keeper import Purse, drop_unrecorded, read_purses
from sandboxer.artifacts.snapshots.lifecycle import USABLE, Signal, State
from sandboxer.backends.contract import Snapshots
from sandboxer.kernel.errors import SandboxerError
from sandboxer.money.dryness import Standing
from sandboxer.sandboxes.capping import Reached
from sandboxer.sandboxes.disks import keeper_of
from sandboxer.sandboxes.loops.timer import wait_until

log = logging.getLogger(__name__)
ACTOR = "system:images"
RETRY = timedelta(seconds=30)
_FAR = datetime.max.replace(tzinfo=UTC)
_OURS = (f"{PREFIX}_", f"{PASSING}_")
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
        self._awake = asyncio.Event()
        self._accounts: frozenset[str] = frozenset()
        self._retry_at: datetime | None = None
        # When we last looked at caps; None: not since the start.
        self._looked_at: datetime | None = None
        desk.book.on_change(self._awake.set)

    async def reconcile(self) -> None:
        """Once, at the start. Raises nothing for one image's sake."""
        living = {one.id: one for one in await self._desk.book.living()}
        made = {id_ for id_, one in living.items() if one.state is not State.TAKING}
        await asyncio.to_thread(self._desk.lists.sweep, made)
        for name, backend in self._desk.sandboxes.room.backends.items():
            if not isinstance(backend, Snapshots):
                continue
            there = {disk_id for disk_id in await backend.kept() if disk_id.startswith(_OURS)}
            mine = {one.id for one in living.values() if one.backend == name}
            await drop_unrecorded(backend, there - mine)
            for image in (living[id_] for id_ in mine):
                try:
                    await self._settle(image, backend, is_there=image.id in there)
                except Exception:
                    # One image must not keep the server from starting for all others.
                    log.exception("image %s could not be reconciled", image.id)

    async def catch_up(self) -> None:
        """Before anyone can ask for anything: a cap that was reached meanwhile ended the charge then."""
        now = self._desk.clock.now()
        usable = [one for one in await self._desk.book.living() if one.state in USABLE]
        capped = await self._desk.book.store.read(lambda conn: read_capped(conn, usable, now=now))
        for one in usable:
            reached = capped.reached.get(one.id)
            if reached is not None and one.state is State.KEPT:
                await self._dry(one, now, reached)

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
        now, self._retry_at = self._desk.clock.now(), None
        try:
            living = await self._desk.book.living()
            self._accounts = frozenset(one.account for one in living)
            usable = [one for one in living if one.state in USABLE]
            read = self._desk.book.store.read
            purses = await read(lambda conn: read_purses(conn, self._accounts))
            since = self._looked_at
            capped = await read(lambda conn: read_capped(conn, usable, now=now, since=since))
            self._looked_at = capped.seen_until
        except Exception:
            # An outermost loop: the next round tries again.
            log.exception("the keeper of images could not look")
            return now + RETRY
        for image in living:
            await self._attend(image, purses[image.account], now, capped.reached.get(image.id))
        await self._collect(living, purses, now)
        unpaid = [
            one.expires_at for one in living if one.state is State.UNPAID and one.expires_at is not None
        ]
        return min([*unpaid, capped.look_at or _FAR, self._retry_at or _FAR])

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
            # Nobody was answered for it.
            await keeper_of(self._desk.sandboxes.room.backends.get(image.backend), image.backend).drop(
                image.id
            )
            await self._move(image, Signal.FAIL, "server_restarted", {}, {})
        elif image.state in USABLE and (not is_there or await _is_missed(backend, image.id)):
            await self._move(image, Signal.MISSED, "missing_on_host", {}, {})

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

    def _hear(self, topics: frozenset[str]) -> None:
        if topics & self._accounts:
            self._awake.set()


def _is_due_and_locked(image: PublishedImage, now: datetime) -> bool:
    is_due = image.state is State.UNPAID and image.expires_at is not None and image.expires_at <= now
    return is_due and image.locked_at is not None and image.reason != SPARED


async def _is_missed(backend: Snapshots, disk_id: str) -> bool:
    try:
        await backend.check_kept(disk_id)
    except SandboxerError:
        return True
    return False
