"""The book of volumes: the only writer of their records.

Each step is one short transaction that changes the record, lets the charge follow, and tells of it;
`lifecycle.next_state` decides, `version` fences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from sandboxer.artifacts import stepping
from sandboxer.artifacts.snapshots.charging import KeepCharges
from sandboxer.artifacts.snapshots.lifecycle import State as KeptState
from sandboxer.artifacts.volumes import records
from sandboxer.artifacts.volumes.lifecycle import OVER, Signal, State, next_state
from sandboxer.artifacts.volumes.policy import MB
from sandboxer.artifacts.volumes.records import Volume
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, NotFound
from sandboxer.observe import events
from sandboxer.store.engine import Store

_TRIES = 8
Also = Callable[[Connection, str], None]


Step = stepping.Step[Volume, Signal]
_LIFECYCLE = stepping.Lifecycle[Signal](next_state=next_state, ended=OVER | {State.LOST})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Paid:
    """A volume as the charges of kept disks see it."""

    id: str
    version: int
    account: str
    created_by: str
    profile: str
    state: KeptState
    size_bytes: int
    rate_msats: int


_KEPT = {State.READY: KeptState.KEPT, State.UNPAID: KeptState.UNPAID, State.MAKING: KeptState.TAKING}


def paid(volume: Volume) -> _Paid:
    return _Paid(
        id=volume.id,
        version=volume.version,
        account=volume.account,
        created_by=volume.created_by,
        # No profile is free of what is stored without a sandbox.
        profile="",
        state=_KEPT.get(volume.state, KeptState.DROPPED),
        size_bytes=volume.size_mb * MB,
        rate_msats=volume.rate_msats,
    )


class VolumeBook:
    def __init__(self, store: Store, clock: Clock, charges: KeepCharges | None) -> None:
        self.store = store
        self._clock = clock
        self._charges = charges
        self._watchers: list[Callable[[], None]] = []

    def on_change(self, watcher: Callable[[], None]) -> None:
        """Called after every commit. Must be quick and not raise."""
        self._watchers.append(watcher)

    async def find(self, volume_id: str) -> Volume | None:
        return await self.store.read(lambda conn: records.load(conn, volume_id))

    async def living(self, account: str | None = None) -> Sequence[Volume]:
        return await self.store.read(lambda conn: records.load_living(conn, account))

    def rate(self, account: str, size_mb: int) -> int:
        return 0 if self._charges is None else self._charges.rate(account, "", size_mb * MB)

    def admit(self, conn: Connection, volume: Volume, *, now: datetime) -> None:
        """May its account have one that costs this much?"""
        if self._charges is not None:
            self._charges.admit(conn, paid(volume), now=now)

    async def open(self, wanted: Volume, *, check: Callable[[Connection], None], also: Also | None) -> Volume:
        now = self._clock.now()

        def write(conn: Connection) -> None:
            check(conn)
            refuse_name(conn, wanted.account, wanted.name)
            self.admit(conn, wanted, now=now)
            records.insert_record(conn, wanted)
            if also is not None:
                also(conn, wanted.id)
            tell(conn, wanted, "volume.making", wanted.created_by, "requested", now, {})

        try:
            await self.store.write(write)
        except IntegrityError:
            # Another server's database may let two look at once.
            raise _taken(wanted.name) from None
        self._told()
        return wanted

    async def move(self, volume_id: str, step: Step) -> Volume:
        """Raises IllegalTransition, NotFound, and what the step's checks raise."""
        for _ in range(_TRIES):
            before = await self.find(volume_id)
            if before is None:
                raise NotFound(what="volume", id=volume_id)
            now = self._clock.now()
            after = stepping.stepped(before, step, _LIFECYCLE, now)

            def write(conn: Connection, b: Volume = before, a: Volume = after, at: datetime = now) -> bool:
                return self._write(conn, b, a, step, at)

            try:
                is_written = await self.store.write(write)
            except IntegrityError:
                # All that can be taken is its name.
                raise _taken(after.name) from None
            if is_written:
                self._told()
                return after
        raise Conflict(why=f"volume {volume_id} is changing too fast")

    def _write(self, conn: Connection, before: Volume, after: Volume, step: Step, now: datetime) -> bool:
        if not records.replace_record(conn, before, after):
            return False
        if step.check_stored is not None:
            step.check_stored(conn, after)
        if step.also is not None:
            step.also(conn)
        if self._charges is not None:
            self._charges.apply(conn, paid(after), now=now, at=step.at)
        data = {"from": before.state.value, "to": after.state.value, **step.data}
        kind = step.kind or f"volume.{after.state.value}"
        tell(conn, after, kind, step.actor, step.reason, now, data)
        return True

    def _told(self) -> None:
        for watcher in self._watchers:
            watcher()


def refuse_name(conn: Connection, account: str, name: str) -> None:
    """Raises Conflict if another volume of the account has it."""
    if records.load_named(conn, account, name) is not None:
        raise _taken(name)


def _taken(name: str) -> Conflict:
    return Conflict(
        why=f"there is a volume {name} already",
        reason="name_taken",
        hint="Give it another name, or drop that one first.",
    )


def tell(
    conn: Connection,
    volume: Volume,
    kind: str,
    actor: str,
    reason: str,
    at: datetime,
    data: Mapping[str, object],
) -> None:
    facts = {"name": volume.name, **data}
    events.record(conn, subject=volume.id, kind=kind, actor=actor, reason=reason, at=at, data=facts)
