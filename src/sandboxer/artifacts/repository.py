"""The repositories of everything that is kept and charged by its size: the only writers of such records.

Before a record is written it passes `_admit`, which checks funds (`accounts/storage.py`); the charge follows
the record in the transaction of every step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from sqlalchemy import Connection

from sandboxer.artifacts.charges import KeepCharges, meter_id
from sandboxer.artifacts.images.published import records as images
from sandboxer.artifacts.images.published.records import PublishedImage
from sandboxer.artifacts.records import BEGUN, DISKS, OVER, PAID, KeptRecord, Signal, State
from sandboxer.artifacts.snapshots import records as snapshots
from sandboxer.artifacts.snapshots.records import Snapshot
from sandboxer.kernel.clock import Clock
from sandboxer.money.metering import find_meter
from sandboxer.observe import events
from sandboxer.store.engine import Store
from sandboxer.store.repository import Repository
from sandboxer.store.rows import Rows
from sandboxer.store.steps import Change, Lifecycle, Step

K = TypeVar("K", bound=KeptRecord)


class KeptRepository(Repository[K, Step[K, Signal]]):
    # What a noun says of itself.
    rows: Rows[K]
    states: Lifecycle[State, Signal] = DISKS

    def __init__(self, store: Store, clock: Clock, charges: KeepCharges | None) -> None:
        """`charges` None means that nothing is charged on this platform."""
        super().__init__(store, clock, self.rows, self.states)
        self._charges = charges

    async def living(self, account: str | None = None) -> Sequence[K]:
        return await self.store.read(lambda conn: self.rows.living(conn, account))

    async def has_locked(self, account: str) -> bool:
        """Tells whether a second proof guards anything of this kind that the account keeps."""
        return any(one.locked_at is not None for one in await self.living(account))

    def rate(self, account: str, profile: str, size_bytes: int) -> int:
        return 0 if self._charges is None else self._charges.rate(account, profile, size_bytes)

    @property
    def is_charged(self) -> bool:
        return self._charges is not None

    async def rate_to_take_up(self, record: K) -> int:
        """Returns what it costs and does not pay, since nothing was charged when it last changed; or 0."""
        if self._charges is None or record.state not in PAID:
            return 0
        meter = await self.store.read(lambda conn: find_meter(conn, self._meter_of(record)))
        if meter is not None and meter.rate:
            return 0
        return record.rate_msats or self.rate(record.account, *record.priced())

    def _meter_of(self, record: K) -> str:
        return meter_id(record.id)

    def admit(self, conn: Connection, record: K, *, now: datetime) -> None:
        """Checks that its account may keep one of this size. Raises InsufficientCredit, Forbidden (a cap)."""
        if self._charges is not None:
            self._charges.admit(conn, record, now=now)

    def _facts(self, change: Change[K, Step[K, Signal]]) -> Mapping[str, object]:
        """Returns what its events say besides the step."""
        return {}

    def _charge(
        self, conn: Connection, charges: KeepCharges, before: K, change: Change[K, Step[K, Signal]]
    ) -> None:
        charges.apply(conn, change.after, now=change.now, at=change.entries[-1].step.at)

    def _admit(self, conn: Connection, wanted: K, now: datetime) -> K:
        self.admit(conn, wanted, now=now)
        return wanted

    def _record(self, conn: Connection, change: Change[K, Step[K, Signal]]) -> None:
        before, after, facts = change.before, change.after, self._facts(change)
        if before is None:
            events.record(
                conn,
                subject=after.id,
                kind=f"{self.noun}.{after.state.value}",
                actor=after.created_by,
                reason=after.reason,
                at=change.now,
                data=facts,
            )
            return
        if self._charges is not None:
            self._charge(conn, self._charges, before, change)
        for entry in change.entries:
            step, states = entry.step, {"from": entry.before.state.value, "to": entry.after.state.value}
            events.record(
                conn,
                subject=after.id,
                kind=step.kind or f"{self.noun}.{entry.after.state.value}",
                actor=step.actor,
                reason=step.reason,
                at=change.now,
                data={**states, **facts, **step.data},
            )


class SnapshotRepository(KeptRepository[Snapshot]):
    noun = "snapshot"
    rows = snapshots.rows

    def _admit(self, conn: Connection, wanted: Snapshot, now: datetime) -> Snapshot:
        """Sets the parent to what the sandbox's disk descends from now."""
        admitted = super()._admit(conn, wanted, now)
        return replace(admitted, parent_id=snapshots.head_of(conn, wanted.sandbox_id) or wanted.parent_id)

    def _charge(
        self,
        conn: Connection,
        charges: KeepCharges,
        before: Snapshot,
        change: Change[Snapshot, Step[Snapshot, Signal]],
    ) -> None:
        if change.entries[-1].step.signal is Signal.TAKEN:
            # It may be larger than the estimate.
            charges.admit(conn, change.after, now=change.now)
        super()._charge(conn, charges, before, change)

    def _facts(self, change: Change[Snapshot, Step[Snapshot, Signal]]) -> Mapping[str, object]:
        return {} if change.before is None else {"sandbox_id": change.after.sandbox_id}


class ImageRepository(KeptRepository[PublishedImage]):
    noun = "image"
    rows = images.rows

    def _meter_of(self, record: PublishedImage) -> str:
        return meter_of(record)

    async def demand_funds(self, account: str, profile: str) -> None:
        """Raises InsufficientCredit for an account that may keep nothing, before an archive is received and
        not after.
        """
        charges, now = self._charges, self.clock.now()
        if charges is not None and not charges.is_free(account, profile):
            await self.store.write(
                lambda conn: charges.demand_funds(conn, account, more=0, size_mb=0, now=now)
            )

    def _charge(
        self,
        conn: Connection,
        charges: KeepCharges,
        before: PublishedImage,
        change: Change[PublishedImage, Step[PublishedImage, Signal]],
    ) -> None:
        after, now = change.after, change.now
        if before.state in BEGUN and after.state is State.KEPT:
            # Its size is known only now.
            charges.admit(conn, after, now=now)
        if before.hands != after.hands:
            charges.admit(conn, after, now=now)
            charges.end(conn, meter_of(before), now=now)
        charges.apply(conn, after, now=now, at=change.entries[-1].step.at, meter=meter_of(after))

    def _record(self, conn: Connection, change: Change[PublishedImage, Step[PublishedImage, Signal]]) -> None:
        if change.after.state in OVER:
            images.drop_grants(conn, change.after.id)
        super()._record(conn, change)

    def _facts(self, change: Change[PublishedImage, Step[PublishedImage, Signal]]) -> Mapping[str, object]:
        return {"source": change.after.source} if change.before is None else {}


def meter_of(image: PublishedImage) -> str:
    return f"meter:{image.id}" if not image.hands else f"meter:{image.id}:{image.hands}"
