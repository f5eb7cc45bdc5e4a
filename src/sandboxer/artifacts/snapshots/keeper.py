"""What happens to snapshots without a caller: their time is over, their account is dry or paid again, has met
a spending cap or ends, somebody looks how large they are; and at the start, records and reality are brought
together.

Sleeps until a record names a moment or something happened to an account that keeps some. It compares, and
never relies on having heard of a change, so a crash loses nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, select

from sandboxer.accounts.authority import KeyState
from sandboxer.accounts.tables import delegated_keys
from sandboxer.artifacts.capping import Capped, read_capped
from sandboxer.artifacts.snapshots.book import Step
from sandboxer.artifacts.snapshots.desk import SnapshotDesk
from sandboxer.artifacts.snapshots.lifecycle import USABLE, Signal, State
from sandboxer.artifacts.snapshots.records import Snapshot
from sandboxer.backends.contract import Snapshots
from sandboxer.kernel.errors import NotFound, SandboxerError
from sandboxer.money.buckets import load_bucket
from sandboxer.money.dryness import Standing
from sandboxer.sandboxes.capping import Reached
from sandboxer.sandboxes.disks import keeper_of
from sandboxer.sandboxes.loops.timer import wait_until

log = logging.getLogger(__name__)
ACTOR = "system:snapshots"
PREFIX = "snp_"
RETRY = timedelta(seconds=30)
# The reason of one that was spared once because it is locked.
SPARED = "unpaid_and_locked"
_FAR = datetime.max.replace(tzinfo=UTC)
_ENDING = (KeyState.ENDING.value, KeyState.ENDED.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Purse:
    """Of an account that keeps snapshots."""

    standing: Standing
    is_ending: bool


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
        return _FAR
    if snapshot.state is State.KEPT and snapshot.locked_at is not None:
        return _FAR
    return snapshot.expires_at


class SnapshotKeeper:
    def __init__(self, desk: SnapshotDesk) -> None:
        self._desk = desk
        self._awake = asyncio.Event()
        self._accounts: frozenset[str] = frozenset()
        self._not_before: dict[str, datetime] = {}
        # When we last looked at caps; None: not since the start.
        self._looked_at: datetime | None = None
        desk.book.on_change(self._follow)

    async def reconcile(self) -> None:
        """Once, at the start. Raises nothing for one snapshot's sake."""
        living = {one.id: one for one in await self._desk.book.living()}
        for name, backend in self._desk.sandboxes.room.backends.items():
            if not isinstance(backend, Snapshots):
                continue
            there = {disk_id for disk_id in await backend.kept() if disk_id.startswith(PREFIX)}
            mine = {one.id for one in living.values() if one.backend == name}
            await drop_unrecorded(backend, there - mine)
            for snapshot in (living[id_] for id_ in mine):
                try:
                    await self._settle(snapshot, is_there=snapshot.id in there)
                except Exception:
                    # One snapshot must not keep the server from starting for all others.
                    log.exception("snapshot %s could not be reconciled", snapshot.id)

    async def catch_up(self) -> None:
        """Before anyone can ask for anything: a cap that was reached meanwhile ended the charge then."""
        now = self._desk.clock.now()
        usable = [one for one in await self._desk.book.living() if one.state in USABLE]
        capped = await self._desk.store.read(lambda conn: read_capped(conn, usable, now=now))
        for one in usable:
            reached = capped.reached.get(one.id)
            if reached is not None and one.state is State.KEPT:
                await self._carry_out(one, Signal.DRY, now, reached)

    async def run(self) -> None:
        leave: Callable[[], None] = self._desk.store.on_commit(self._hear)
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
            purses, capped = await self._desk.store.read(lambda conn: self._read(conn, living, now))
            self._looked_at = capped.seen_until
        except Exception:
            # An outermost loop: the next round tries again.
            log.exception("the keeper of snapshots could not look")
            return self._desk.clock.now() + RETRY
        for snapshot in living:
            await self._attend(snapshot, purses[snapshot.account], capped.reached.get(snapshot.id))
        late = self._not_before
        return min([late.get(one.id) or looked_at(one) for one in living] + [capped.look_at or _FAR])

    def _read(
        self, conn: Connection, living: Sequence[Snapshot], now: datetime
    ) -> tuple[dict[str, Purse], Capped]:
        usable = [one for one in living if one.state in USABLE]
        return read_purses(conn, self._accounts), read_capped(conn, usable, now=now, since=self._looked_at)

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
                # Nobody was answered for it.
                await backend.drop(snapshot.id)
                await self._desk.book.move(
                    snapshot.id, Step(signal=Signal.FAIL, actor=ACTOR, reason="server_restarted")
                )
            case State.DROPPING:
                await self._desk.remove(snapshot, Signal.DROP, actor=ACTOR, reason=snapshot.reason)
            case State.KEPT | State.UNPAID if not is_there or await _is_missed(backend, snapshot.id):
                await self._desk.book.move(
                    snapshot.id, Step(signal=Signal.MISSED, actor=ACTOR, reason="missing_on_host")
                )

    def _hear(self, topics: frozenset[str]) -> None:
        if topics & self._accounts:
            self._awake.set()

    def _follow(self, snapshot: Snapshot) -> None:
        self._awake.set()


async def drop_unrecorded(backend: Snapshots, disk_ids: Iterable[str]) -> None:
    """What a crash left: kept, and nobody knows what for."""
    for disk_id in sorted(disk_ids):
        try:
            await backend.drop(disk_id)
            log.info("dropped %s: it has no record", disk_id)
        except Exception:
            log.exception("%s could not be dropped", disk_id)


def read_purses(conn: Connection, accounts: Iterable[str]) -> dict[str, Purse]:
    ending = select(delegated_keys.c.account).where(
        delegated_keys.c.account.in_(list(accounts)), delegated_keys.c.state.in_(_ENDING)
    )
    over = {row.account for row in conn.execute(ending)}
    return {one: Purse(standing=_standing(conn, one), is_ending=one in over) for one in accounts}


def _standing(conn: Connection, account: str) -> Standing:
    try:
        return load_bucket(conn, account).health.standing
    except NotFound:
        return Standing.ALIVE


async def _is_missed(backend: Snapshots, disk_id: str) -> bool:
    try:
        await backend.check_kept(disk_id)
    except SandboxerError:
        return True
    return False


def _is_due(snapshot: Snapshot, now: datetime) -> bool:
    return snapshot.expires_at is not None and snapshot.expires_at <= now
