"""Gives the time, waits, and reads durations as people write them: `30s`, `15m`, `4h`, `2d`.

Decisions receive `now`; only acts hold a clock, and all waiting goes through it. The server's own time is a
`GuardedClock`. It advances by CLOCK_BOOTTIME, so nobody can set it forward or back, and follows the wall
clock by this policy, whose decisions are pure:

    wall agrees within `TOLERANCE`          follow it, 500 parts in a million faster or slower at most
    wall was set (a jump)                   say so, go on by CLOCK_BOOTTIME; it may be set back as well
    it is still so after `adopt_after`      ahead: step to it, and the time stepped over never happened for
                                            meters (`Look.gap`); behind: go at half speed until it is met
    the server was started again            the last heartbeat says where this time stood; on the same boot of
                                            the host CLOCK_BOOTTIME says how much has passed since, less what
                                            the last server may have gone at half speed
    the host was started again              only the wall clock is left: it is believed if it is ahead of the
                                            heartbeat by a week at most; otherwise it has jumped, as above

So time never goes backwards, and no setting of a clock makes anything older at once: not a meter, a TTL, a
session nor a nonce. NTP turns CLOCK_BOOTTIME at the same speed as the wall clock, so the two differ only when
somebody sets one.
"""

from __future__ import annotations

import asyncio
import calendar
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.values import value_class

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FORM = re.compile(r"^([0-9]{1,9})([smhd])$")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# Longest duration anyone may name; keeps every later sum far from datetime's edge.
MAX_DURATION = timedelta(days=3660)


class Clock(Protocol):
    def now(self) -> datetime:
        """Returns the present moment, always in UTC."""

    async def sleep(self, delay: timedelta) -> None: ...


@value_class
class Reading:
    """Holds what the host's clocks say at one moment."""

    # The wall clock: it may be set by anybody who may set it.
    wall: datetime
    # Microseconds since the host was started, sleep included: nobody can set it.
    boot_us: int
    # Which start of the host that counts from.
    boot_id: str


class TimeSource(Protocol):
    """Reads the clocks that the server's time comes from. Tests pass one that lies."""

    def read(self) -> Reading: ...

    def boot_us(self) -> int:
        """Returns the same as `read().boot_us`, for the hot path."""

    async def sleep(self, delay: timedelta) -> None: ...


class SystemClock:
    """Uses the wall clock as it is, for programs that end soon. The server has a `GuardedClock`."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, delay: timedelta) -> None:
        await asyncio.sleep(max(0.0, delay.total_seconds()))


class HostTime:
    """Reads the clocks of this host."""

    def __init__(self) -> None:
        self._boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    def read(self) -> Reading:
        wall = EPOCH + timedelta(microseconds=time.time_ns() // 1000)
        return Reading(wall=wall, boot_us=self.boot_us(), boot_id=self._boot_id)

    def boot_us(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000

    async def sleep(self, delay: timedelta) -> None:
        await asyncio.sleep(max(0.0, delay.total_seconds()))


async def sleep_unless_woken(clock: Clock, woken: asyncio.Event, delay: timedelta | None) -> None:
    """Sleeps so long, or until the event is set; without a delay, only the event ends it."""
    if delay is None:
        await woken.wait()
        return
    async with asyncio.TaskGroup() as group:
        asleep = group.create_task(clock.sleep(max(delay, timedelta())))
        awake = group.create_task(woken.wait())
        await asyncio.wait((asleep, awake), return_when=asyncio.FIRST_COMPLETED)
        asleep.cancel()
        awake.cancel()


def parse_duration(text: str, *, field: str) -> timedelta:
    if (match := _FORM.match(text)) is None:
        raise InvalidRequest(field=field, why=f"{text!r} is not a duration like 30s, 15m, 4h or 2d")
    seconds = int(match[1]) * _UNIT_S[match[2]]
    if not 0 < seconds <= MAX_DURATION.total_seconds():
        raise InvalidRequest(field=field, why=f"{text!r} is not between 1s and {MAX_DURATION.days}d")
    return timedelta(seconds=seconds)


def format_duration(duration: timedelta) -> str:
    seconds = int(duration.total_seconds())
    for unit in ("d", "h", "m"):
        if seconds and seconds % _UNIT_S[unit] == 0:
            return f"{seconds // _UNIT_S[unit]}{unit}"
    return f"{seconds}s"


def add_months(moment: datetime, months: int) -> datetime:
    """Returns the same day so many calendar months later (earlier, if negative), or the last day of that
    month.
    """
    count = moment.month - 1 + months
    year, month = moment.year + count // 12, count % 12 + 1
    return moment.replace(year=year, month=month, day=min(moment.day, calendar.monthrange(year, month)[1]))


_US = timedelta(microseconds=1)
# Further apart than this, the wall clock was set.
TOLERANCE = timedelta(seconds=2)
ADOPT_AFTER = timedelta(minutes=10)
BELIEVED_OVER_A_REBOOT = timedelta(days=7)
# A running server that gave no heartbeat for so long, by its own time, stood still.
SILENT_FOR = timedelta(seconds=20)
# Parts in a million by which time may run faster or slower to follow the wall clock.
_FOLLOW_PPM = 500
_HALF_SPEED_PPM = -500_000


@value_class
class Beat:
    """Records the server's time when it was last known to be alive, and the host's clocks at that moment."""

    moment: datetime
    boot_us: int
    boot_id: str


@value_class
class Jump:
    """Describes a wall clock that does not agree with the server's time."""

    seen_at: datetime
    # The wall clock less CLOCK_BOOTTIME: stays the same until it is set again.
    wall_less_boot_us: int


@value_class
class Guard:
    """Describes the server's time as a line: a moment, the reading of the boot clock then, and the speed."""

    moment: datetime
    boot_us: int
    boot_id: str
    ppm: int = 0
    jump: Jump | None = None

    def at(self, boot_us: int) -> datetime:
        passed = max(0, boot_us - self.boot_us)
        return self.moment + (passed + passed * self.ppm // 1_000_000) * _US


class Finding(StrEnum):
    JUMPED = "jumped"
    AGREES = "agrees"
    ADOPTED = "adopted"
    SLOWED = "slowed"


@value_class
class Look:
    guard: Guard
    # By how much the wall clock is ahead of the server's time.
    ahead: timedelta
    finding: Finding | None = None
    # Time that is stepped over: nobody is charged for it.
    gap: tuple[datetime, datetime] | None = None


def anchor(reading: Reading, last: Beat | None) -> Guard:
    """Returns the server's time at a start, given the last heartbeat."""
    if last is None:
        moment = reading.wall
    elif reading.boot_id == last.boot_id and reading.boot_us >= last.boot_us:
        passed = (reading.boot_us - last.boot_us) * _US
        moment = last.moment + passed
        if reading.wall < moment - TOLERANCE:
            # Whatever it wrote down after its heartbeat, at half speed, must not look older than it is.
            moment -= min(passed, 2 * SILENT_FOR) / 2
    elif last.moment <= reading.wall <= last.moment + BELIEVED_OVER_A_REBOOT:
        moment = reading.wall
    else:
        # So much has passed at least. A wrong clock is usually put right within minutes of a start.
        moment = last.moment + reading.boot_us * _US
    return Guard(moment=moment, boot_us=reading.boot_us, boot_id=reading.boot_id)


def is_same_boot(last: Beat, beat: Beat) -> bool:
    """Says whether the boot clock counted on between both, so that their difference is the time that
    passed.
    """
    return beat.boot_id == last.boot_id and beat.boot_us >= last.boot_us


def trusted_beat(clock: Clock) -> Beat:
    """Returns a heartbeat for a clock that is believed as it is: its own time stands for the boot clock."""
    now = clock.now()
    return Beat(moment=now, boot_us=(now - EPOCH) // _US, boot_id="trusted")


def look(guard: Guard, reading: Reading, *, adopt_after: timedelta = ADOPT_AFTER) -> Look:
    """Compares the server's time with the wall clock, and follows it as the policy says."""
    now = guard.at(reading.boot_us)
    ahead = reading.wall - now
    here = replace(guard, moment=now, boot_us=reading.boot_us)
    if abs(ahead) <= TOLERANCE:
        ppm = max(-_FOLLOW_PPM, min(_FOLLOW_PPM, ahead // _US // 10))
        finding = None if guard.jump is None else Finding.AGREES
        return Look(guard=replace(here, ppm=ppm, jump=None), ahead=ahead, finding=finding)
    difference = _wall_less_boot(reading)
    if (jump := guard.jump) is None or abs(difference - jump.wall_less_boot_us) > TOLERANCE // _US:
        jump = Jump(seen_at=now, wall_less_boot_us=difference)
        return Look(guard=replace(here, ppm=0, jump=jump), ahead=ahead, finding=Finding.JUMPED)
    if now - jump.seen_at < adopt_after:
        return Look(guard=here, ahead=ahead)
    if ahead > timedelta(0):
        there = replace(here, moment=reading.wall, ppm=0, jump=None)
        return Look(guard=there, ahead=timedelta(0), finding=Finding.ADOPTED, gap=(now, reading.wall))
    finding = None if here.ppm == _HALF_SPEED_PPM else Finding.SLOWED
    return Look(guard=replace(here, ppm=_HALF_SPEED_PPM), ahead=ahead, finding=finding)


def _wall_less_boot(reading: Reading) -> int:
    return (reading.wall - EPOCH) // _US - reading.boot_us


class GuardedClock:
    """The clock of a server. Its heartbeat calls `look` about once a second."""

    def __init__(
        self, source: TimeSource, last: Beat | None = None, *, adopt_after: timedelta = ADOPT_AFTER
    ) -> None:
        self._source = source
        self._adopt_after = adopt_after
        self._guard = anchor(source.read(), last)
        self._ahead = timedelta(0)

    def now(self) -> datetime:
        return self._guard.at(self._source.boot_us())

    async def sleep(self, delay: timedelta) -> None:
        await self._source.sleep(delay)

    def look(self) -> Look:
        """Compares the wall clock with the server's time. Changes nothing; `follow` does."""
        return look(self._guard, self._source.read(), adopt_after=self._adopt_after)

    def follow(self, seen: Look) -> None:
        self._guard, self._ahead = seen.guard, seen.ahead

    def beat(self) -> Beat:
        reading = self._source.read()
        return Beat(moment=self._guard.at(reading.boot_us), boot_us=reading.boot_us, boot_id=reading.boot_id)

    @property
    def trouble(self) -> timedelta | None:
        """Returns by how much the wall clock is ahead (negative: behind) while the two disagree."""
        return None if self._guard.jump is None else self._ahead
