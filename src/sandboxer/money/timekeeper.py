"""Keeps the server's time: gives its sign of life, looks at the wall clock, and tells when that jumps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import Connection

from sandboxer.kernel.clock import Clock, HostTime, TimeSource
from sandboxer.kernel.clock_guard import Beat, Finding, GuardedClock, Look, trusted_beat
from sandboxer.money import heartbeat
from sandboxer.money.accrual import Gap, GapKind
from sandboxer.observe.events import record
from sandboxer.observe.metrics import Metrics
from sandboxer.store.engine import Store

log = logging.getLogger(__name__)
ACTOR = "system:clock"
SUBJECT = "server"
# The wall clock is looked at so often, which costs two readings; a sign of life is one small write.
LOOK = timedelta(seconds=1)
BEAT = timedelta(seconds=5)
PATIENCE_S = 2.0
_WORDS = {
    Finding.JUMPED: "the wall clock of this host was set; the server keeps its own time meanwhile",
    Finding.AGREES: "the wall clock of this host agrees with the server's time again",
    Finding.ADOPTED: "the server's time stepped to the wall clock; nobody is charged for the step",
    Finding.SLOWED: "the server's time runs at half speed until the wall clock has caught up",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timekeeper:
    clock: Clock
    # Up to when the last server had its sandboxes in sight; None: there was none.
    last_witnessed: datetime | None
    _store: Store
    _metrics: Metrics
    _beat: Callable[[], Beat]
    # None: a clock that is believed as it is, because a test moves it by hand.
    _guarded: GuardedClock | None
    # Set once everything was looked at: what died before that, this server never saw alive.
    _in_sight: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def trouble(self) -> timedelta | None:
        """By how much the wall clock is ahead of the server's time, if the two do not agree."""
        return None if self._guarded is None else self._guarded.trouble

    async def run(self) -> None:
        """Until cancelled. Never ends for want of a database: a silence shows in the next sign of life."""
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
        """Everything was looked at, and from now on this server hears of what ends."""
        self._in_sight.set()
        await self._give()

    async def give_last(self) -> None:
        """On leaving. A database that does not answer holds nobody up: the next start sees a longer gap."""
        beat, is_witness = self._beat(), self._in_sight.is_set()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._store.write(lambda conn: heartbeat.begin(conn, beat, None, is_witness=is_witness))
        except Exception as error:
            # Nothing is lost but seconds that nobody is charged for.
            log.warning("the server's last sign of life could not be written: %s", error)

    async def _give(self) -> None:
        beat, is_witness = self._beat(), self._in_sight.is_set()
        gap = await self._store.write(lambda conn: heartbeat.keep(conn, beat, is_witness=is_witness))
        if gap is not None:
            log.warning("nobody could pay or be stopped from %s to %s", gap.began_at, gap.ended_at)

    async def _look(self, clock: GuardedClock) -> None:
        seen = clock.look()
        if seen.finding is not None:
            # Before it is followed: what is charged from then on knows of the gap.
            await self._store.write(lambda conn: _tell(conn, seen))
            log.log(_level(seen), "%s (%+.3f s)", _WORDS[seen.finding], seen.ahead.total_seconds())
            self._metrics.clock_findings.labels(seen.finding.value).inc()
        clock.follow(seen)
        self._metrics.clock_ahead.set(seen.ahead.total_seconds())


def _level(seen: Look) -> int:
    return logging.INFO if seen.finding is Finding.AGREES else logging.WARNING


def _tell(conn: Connection, seen: Look) -> None:
    assert seen.finding is not None
    if seen.gap is not None:
        began, ended = seen.gap
        heartbeat.record_gap(conn, Gap(kind=GapKind.UNWITNESSED, began_at=began, ended_at=ended))
        last = Beat(moment=ended, boot_us=seen.guard.boot_us, boot_id=seen.guard.boot_id)
        heartbeat.begin(conn, last, None)
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
    """The server's time, going on from the last sign of life. On leaving, a last one is given.

    A `clock` is believed as it is; otherwise time comes from `source`, or from this host's clocks.
    """
    last = await store.read(heartbeat.read_beat)
    guarded = None
    if clock is not None:
        give: Callable[[], Beat] = partial(trusted_beat, clock)
    else:
        clock = guarded = GuardedClock(source or HostTime(), last)
        give = guarded.beat
    witnessed = await store.read(heartbeat.last_witnessed)
    first = give()
    gap = heartbeat.gap_before(last, first)
    await store.write(lambda conn: heartbeat.begin(conn, first, gap))
    keeper = Timekeeper(
        clock=clock,
        last_witnessed=witnessed,
        _store=store,
        _metrics=metrics,
        _beat=give,
        _guarded=guarded,
    )
    try:
        yield keeper
    finally:
        await keeper.give_last()
