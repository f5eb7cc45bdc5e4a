"""The snapshot repository is the only writer of snapshot records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from sandboxer.artifacts.charges import Charged, KeepCharges
from sandboxer.artifacts.repository import KeptRepository
from sandboxer.artifacts.snapshots import records
from sandboxer.artifacts.snapshots.lifecycle import OVER, Signal, State, next_state
from sandboxer.artifacts.snapshots.records import Snapshot
from sandboxer.kernel.clock import Clock
from sandboxer.store import steps
from sandboxer.store.engine import Store

Step = steps.Step[Snapshot, Signal]
# The lifecycle of everything whose disk is kept like a snapshot's.
LIFECYCLE = steps.Lifecycle[Signal](next_state=next_state, ended=OVER | {State.LOST})


class SnapshotRepository(KeptRepository[Snapshot, Step]):
    noun = "snapshot"

    def __init__(self, store: Store, clock: Clock, charges: KeepCharges | None) -> None:
        super().__init__(store, clock, records.rows, LIFECYCLE, charges)

    def rate(self, snapshot: Snapshot, size_bytes: int) -> int:
        if self._charges is None:
            return 0
        return self._charges.rate(snapshot.account, snapshot.profile, size_bytes)

    def _admit(self, conn: Connection, wanted: Snapshot, now: datetime) -> Snapshot:
        """Sets the parent to what the sandbox's disk descends from now."""
        admitted = super()._admit(conn, wanted, now)
        return replace(admitted, parent_id=records.head_of(conn, wanted.sandbox_id) or wanted.parent_id)

    def _charged(self, record: Snapshot) -> Charged:
        return record

    def _charge(self, conn: Connection, charges: KeepCharges, change: steps.Change[Snapshot, Step]) -> None:
        if change.entries[-1].step.signal is Signal.TAKEN:
            # It may be larger than the estimate.
            charges.admit(conn, change.after, now=change.now)
        super()._charge(conn, charges, change)

    def _facts(self, change: steps.Change[Snapshot, Step]) -> Mapping[str, object]:
        return {} if change.before is None else {"sandbox_id": change.after.sandbox_id}
