"""The book of snapshots: the only writer of their records.

Each step is one short transaction that changes the record, lets the charge follow, and tells of it;
`lifecycle.next_state` decides, `version` fences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from sandboxer.artifacts import stepping
from sandboxer.artifacts.snapshots import records
from sandboxer.artifacts.snapshots.charging import KeepCharges
from sandboxer.artifacts.snapshots.lifecycle import OVER, Signal, State, next_state
from sandboxer.artifacts.snapshots.records import Snapshot
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, NotFound
from sandboxer.observe import events
from sandboxer.store.engine import Store

_TRIES = 8
Also = Callable[[Connection, str], None]
Watcher = Callable[[Snapshot], None]


Step = stepping.Step[Snapshot, Signal]
_LIFECYCLE = stepping.Lifecycle[Signal](next_state=next_state, ended=OVER | {State.LOST})


class SnapshotBook:
    def __init__(self, store: Store, clock: Clock, charges: KeepCharges | None) -> None:
        self._store = store
        self._clock = clock
        self._charges = charges
        self._watchers: list[Watcher] = []

    def on_change(self, watcher: Watcher) -> None:
        """Called with the new record after every commit. Must be quick and not raise."""
        self._watchers.append(watcher)

    async def find(self, snapshot_id: str) -> Snapshot | None:
        return await self._store.read(lambda conn: records.load(conn, snapshot_id))

    async def living(self, account: str | None = None) -> Sequence[Snapshot]:
        return await self._store.read(lambda conn: records.load_living(conn, account))

    def rate(self, snapshot: Snapshot, size_bytes: int) -> int:
        if self._charges is None:
            return 0
        return self._charges.rate(snapshot.account, snapshot.profile, size_bytes)

    async def open(
        self, wanted: Snapshot, *, check: Callable[[Connection], None], also: Also | None
    ) -> Snapshot:
        """Write a new record, being taken; its parent is what its sandbox's disk descends from now."""
        now = self._clock.now()

        def write(conn: Connection) -> Snapshot:
            check(conn)
            if self._charges is not None:
                self._charges.admit(conn, wanted, now=now)
            parent = records.head_of(conn, wanted.sandbox_id) or wanted.parent_id
            opened = replace(wanted, parent_id=parent)
            records.insert_record(conn, opened)
            if also is not None:
                also(conn, opened.id)
            _tell(conn, opened, "snapshot.taking", opened.created_by, "requested", now, {})
            return opened

        return self._told(await self._store.write(write))

    async def move(self, snapshot_id: str, step: Step) -> Snapshot:
        """Raises IllegalTransition, NotFound, and what `step.check` raises."""
        for _ in range(_TRIES):
            before = await self.find(snapshot_id)
            if before is None:
                raise NotFound(what="snapshot", id=snapshot_id)
            now = self._clock.now()
            after = stepping.stepped(before, step, _LIFECYCLE, now)

            def write(
                conn: Connection, b: Snapshot = before, a: Snapshot = after, at: datetime = now
            ) -> bool:
                if not records.replace_record(conn, b, a):
                    return False
                if step.check_stored is not None:
                    step.check_stored(conn, a)
                if self._charges is not None:
                    if step.signal is Signal.TAKEN:
                        # It may be larger than was guessed.
                        self._charges.admit(conn, a, now=at)
                    self._charges.apply(conn, a, now=at, at=step.at)
                if step.also is not None:
                    step.also(conn)
                kind = step.kind or f"snapshot.{a.state.value}"
                data = {"from": b.state.value, "to": a.state.value, "sandbox_id": a.sandbox_id, **step.data}
                _tell(conn, a, kind, step.actor, step.reason, at, data)
                return True

            if await self._store.write(write):
                return self._told(after)
        raise Conflict(why=f"snapshot {snapshot_id} is changing too fast")

    def _told(self, snapshot: Snapshot) -> Snapshot:
        for watcher in self._watchers:
            watcher(snapshot)
        return snapshot


def _tell(
    conn: Connection,
    snapshot: Snapshot,
    kind: str,
    actor: str,
    reason: str,
    at: datetime,
    data: Mapping[str, object],
) -> None:
    events.record(conn, subject=snapshot.id, kind=kind, actor=actor, reason=reason, at=at, data=data)
