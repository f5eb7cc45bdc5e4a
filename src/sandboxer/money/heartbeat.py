"""The timekeeper keeps the server's time: it writes a heartbeat, watches the wall clock and reports its
jumps.

The heartbeat is one small row, written every few seconds for the whole server, which makes gaps in time
visible. The next server reads from it how long no server ran, and up to when the last one had its sandboxes
in sight.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import field, replace
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import Connection, bindparam, func, insert, select, update

from sandboxer.kernel.clock import (
    SILENT_FOR,
    Beat,
    Clock,
    Finding,
    GuardedClock,
    HostTime,
    Look,
    TimeSource,
    is_same_boot,
    trusted_beat,
)
from sandboxer.kernel.values import value_class
from sandboxer.money.records import Gap, GapKind
from sandboxer.money.tables import money_policy, server_beats, time_gaps
from sandboxer.observe.events import events, record
from sandboxer.observe.metrics import Metrics
from sandboxer.store.engine import Store

log = logging.getLogger(__name__)
ACTOR = "system:clock"
SUBJECT = "server"
# The wall clock is compared every `LOOK`, which costs two readings; the heartbeat is written every `BEAT`.
LOOK = timedelta(seconds=1)
BEAT = timedelta(seconds=5)
PATIENCE_S = 2.0
_WORDS = {
    Finding.JUMPED: "the wall clock of this host was set; the server keeps its own time meanwhile",
    Finding.AGREES: "the wall clock of this host agrees with the server's time again",
    Finding.ADOPTED: "the server's time stepped to the wall clock; nobody is charged for the step",
    Finding.SLOWED: "the server's time runs at half speed until the wall clock has caught up",
}
_NAME = "server"
_GAPS_AFTER = (
    select(time_gaps).where(time_gaps.c.ended_at > bindparam("moment")).order_by(time_gaps.c.began_at)
)


@value_class
class Timekeeper:
    clock: Clock
    # Up to when the last server had its sandboxes in sight; None: this is the first server.
    last_witnessed: datetime | None
    _store: Store
    _metrics: Metrics
    _beat: Callable[[], Beat]
    # None: the clock is trusted as it is, because a test moves it by hand.
    _guarded: GuardedClock | None
    # Set once this server has looked at every sandbox; before that it cannot tell what is alive.
    _in_sight: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def trouble(self) -> timedelta | None:
        """By how much the wall clock is ahead of the server's time, if the two do not agree."""
        return None if self._guarded is None else self._guarded.trouble

    async def run(self) -> None:
        """Run until cancelled. A database that fails does not end it: the gap shows in the next heartbeat."""
        if self._guarded is None:
            return
        next_beat = self.clock.now() + BEAT
        while True:
            await self.clock.sleep(LOOK)
            try:
                await self._look(self._guarded)
                if self.clock.now() >= next_beat:
                    await self._give()
                    next_beat = self.clock.now() + BEAT
            except Exception as error:
                # An outermost loop: whatever it is, the next round tries again.
                log.warning("the server's sign of life could not be written: %s", error)

    async def witness(self) -> None:
        """Note that every sandbox was looked at, and that this server hears of ends from now on."""
        self._in_sight.set()
        await self._give()

    async def give_last(self) -> None:
        """Write the last heartbeat on shutdown. A database that does not answer delays nobody."""
        beat, is_witness = self._beat(), self._in_sight.is_set()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._store.write(lambda conn: begin(conn, beat, None, is_witness=is_witness))
        except Exception as error:
            # Nothing is lost but seconds that nobody is charged for.
            log.warning("the server's last sign of life could not be written: %s", error)

    async def _give(self) -> None:
        beat, is_witness = self._beat(), self._in_sight.is_set()
        gap = await self._store.write(lambda conn: keep(conn, beat, is_witness=is_witness))
        if gap is not None:
            log.warning("nobody could pay or be stopped from %s to %s", gap.began_at, gap.ended_at)

    async def _look(self, clock: GuardedClock) -> None:
        seen = clock.look()
        if seen.finding is not None:
            # Before it is followed: what is charged from then on knows of the gap.
            is_witness = self._in_sight.is_set()
            await self._store.write(lambda conn: _tell(conn, seen, is_witness=is_witness))
            level = logging.INFO if seen.finding is Finding.AGREES else logging.WARNING
            log.log(level, "%s (%+.3f s)", _WORDS[seen.finding], seen.ahead.total_seconds())
            self._metrics.clock_findings.labels(seen.finding.value).inc()
        clock.follow(seen)
        self._metrics.clock_ahead.set(seen.ahead.total_seconds())


def _tell(conn: Connection, seen: Look, *, is_witness: bool) -> None:
    """Write down what was found, and where time stood: until then it went as fast as before."""
    assert seen.finding is not None
    here = Beat(moment=seen.guard.moment, boot_us=seen.guard.boot_us, boot_id=seen.guard.boot_id)
    if seen.gap is None:
        keep(conn, here, is_witness=is_witness)
    else:
        began, ended = seen.gap
        keep(conn, replace(here, moment=began), is_witness=is_witness)
        record_gap(conn, Gap(kind=GapKind.UNWITNESSED, began_at=began, ended_at=ended))
        begin(conn, here, None)
    record(
        conn,
        subject=SUBJECT,
        kind=f"clock.{seen.finding.value}",
        actor=ACTOR,
        reason=_WORDS[seen.finding],
        at=seen.guard.moment,
        data={"wall_ahead_ms": seen.ahead // timedelta(milliseconds=1)},
    )


@asynccontextmanager
async def open_time(
    store: Store, metrics: Metrics, *, clock: Clock | None = None, source: TimeSource | None = None
) -> AsyncIterator[Timekeeper]:
    """Open the server's time, which goes on from the last heartbeat; a last one is written on leaving.

    A given `clock` is trusted as it is; otherwise time comes from `source`, or from this host's clocks.
    """
    last = await store.read(read_beat)
    guarded = None
    if clock is not None:
        give: Callable[[], Beat] = partial(trusted_beat, clock)
    else:
        clock = guarded = GuardedClock(source or HostTime(), last)
        give = guarded.beat
    witnessed = await store.read(witnessed_last)
    first = give()
    gap = gap_before(last, first)
    await store.write(lambda conn: begin(conn, first, gap))
    timekeeper = Timekeeper(
        clock=clock,
        last_witnessed=witnessed,
        _store=store,
        _metrics=metrics,
        _beat=give,
        _guarded=guarded,
    )
    try:
        yield timekeeper
    finally:
        await timekeeper.give_last()


def gap_before(last: Beat | None, first: Beat) -> Gap | None:
    """Return the gap between the last server's last heartbeat and this server's first. Pure."""
    if last is None or first.moment <= last.moment:
        return None
    kind = GapKind.OUTAGE if is_same_boot(last, first) else GapKind.UNWITNESSED
    return Gap(kind=kind, began_at=last.moment, ended_at=first.moment)


def silence_before(last: Beat | None, beat: Beat) -> Gap | None:
    """Return the gap if a running server wrote no heartbeat for long: it or its database stood still, and
    could neither take a payment nor stop anything.

    Pure.
    """
    if last is None or beat.moment - last.moment <= SILENT_FOR:
        return None
    return Gap(kind=GapKind.OUTAGE, began_at=last.moment, ended_at=beat.moment)


def read_beat(conn: Connection) -> Beat | None:
    row = conn.execute(select(server_beats).where(server_beats.c.name == _NAME)).one_or_none()
    return None if row is None else Beat(moment=row.moment, boot_us=row.boot_us, boot_id=row.boot_id)


def last_recorded(conn: Connection) -> datetime | None:
    """Return when the last event was recorded: all that is known of a server from before there were
    heartbeats.
    """
    return conn.execute(select(events.c.at).order_by(events.c.id.desc()).limit(1)).scalar()


def witnessed_last(conn: Connection) -> datetime | None:
    """Return up to when the last server had its sandboxes in sight; one that was still opening had not."""
    row = conn.execute(select(server_beats).where(server_beats.c.name == _NAME)).one_or_none()
    return last_recorded(conn) if row is None else row.witnessed_at or row.moment


def begin(conn: Connection, beat: Beat, gap: Gap | None, *, is_witness: bool = False) -> None:
    """Write a heartbeat, and the gap before it.

    `is_witness` says that this server has looked at every sandbox and hears of ends.
    """
    if gap is not None:
        record_gap(conn, gap)
    values = {"moment": beat.moment, "boot_us": beat.boot_us, "boot_id": beat.boot_id}
    before = func.coalesce(server_beats.c.witnessed_at, server_beats.c.moment)
    seen = None if is_witness else before
    change = update(server_beats).where(server_beats.c.name == _NAME).values(**values, witnessed_at=seen)
    if not conn.execute(change).rowcount:
        first = None if is_witness else last_recorded(conn)
        conn.execute(insert(server_beats).inline(), {"name": _NAME, **values, "witnessed_at": first})


def keep(conn: Connection, beat: Beat, *, is_witness: bool) -> Gap | None:
    """Write the next heartbeat. Returns the gap that it ended, if the silence was long."""
    gap = silence_before(read_beat(conn), beat)
    begin(conn, beat, gap, is_witness=is_witness)
    return gap


def record_gap(conn: Connection, gap: Gap) -> None:
    """Record a gap: every settlement from here on takes it into account."""
    values = {"kind": gap.kind.value, "began_at": gap.began_at, "ended_at": gap.ended_at}
    conn.execute(insert(time_gaps).inline(), values)
    conn.execute(update(money_policy).values(gaps_until=gap.ended_at))


def gaps_after(conn: Connection, moment: datetime) -> tuple[Gap, ...]:
    """Return the gaps that end after a moment, in the order they began."""
    found = conn.execute(_GAPS_AFTER, {"moment": moment})
    return tuple(Gap(kind=GapKind(row.kind), began_at=row.began_at, ended_at=row.ended_at) for row in found)
