"""The server's time: anchored to CLOCK_BOOTTIME, following the wall clock by a policy. Decisions are pure.

    wall agrees within `TOLERANCE`          follow it, 500 parts in a million faster or slower at most
    wall was set (a jump)                   say so, go on by CLOCK_BOOTTIME; it may be set back as well
    it is still so after `adopt_after`      ahead: step to it, and the time stepped over never happened for
                                            meters (`Look.gap`); behind: go at half speed until it is met
    the server was started again            the last heartbeat says where this time stood; on the same boot of
                                            the host CLOCK_BOOTTIME says how much has passed since
    the host was started again              only the wall clock is left: it is believed if it is ahead of the
                                            heartbeat by a week at most; otherwise it has jumped, as above

So time never goes backwards, and no setting of a clock makes anything older at once: not a meter, a TTL, a
session nor a nonce. NTP turns CLOCK_BOOTTIME at the same speed as the wall clock, so the two differ only when
somebody sets one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from sandboxer.kernel.clock import EPOCH, Clock, Reading, TimeSource

_US = timedelta(microseconds=1)
# Further apart than this, the wall clock was set.
TOLERANCE = timedelta(seconds=2)
ADOPT_AFTER = timedelta(minutes=10)
BELIEVED_OVER_A_REBOOT = timedelta(days=7)
# Parts in a million by which time may run faster or slower to follow the wall clock.
_FOLLOW_PPM = 500
_HALF_SPEED_PPM = -500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """Where the server's time stood when it was last known to be alive, and the host's clocks then."""

    moment: datetime
    boot_us: int
    boot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """The wall clock does not agree with the server's time."""

    seen_at: datetime
    # The wall clock less CLOCK_BOOTTIME: stays the same until it is set again.
    wall_less_boot_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The server's time as a line: a moment, the boot clock's reading then, and its speed."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    guard: Guard
    # By how much the wall clock is ahead of the server's time.
    ahead: timedelta
    finding: Finding | None = None
    # Time that is stepped over: nobody is charged for it.
    gap: tuple[datetime, datetime] | None = None


def anchor(reading: Reading, last: Beat | None) -> Guard:
    """The server's time at a start, given where the last heartbeat left it."""
    if last is None:
        moment = reading.wall
    elif reading.boot_id == last.boot_id and reading.boot_us >= last.boot_us:
        moment = last.moment + (reading.boot_us - last.boot_us) * _US
    elif last.moment <= reading.wall <= last.moment + BELIEVED_OVER_A_REBOOT:
        moment = reading.wall
    else:
        # So much has passed at least. A wrong clock is usually put right within minutes of a start.
        moment = last.moment + reading.boot_us * _US
    return Guard(moment=moment, boot_us=reading.boot_us, boot_id=reading.boot_id)


def is_same_boot(last: Beat, beat: Beat) -> bool:
    """The boot clock has counted on from one to the other: so much time has passed."""
    return beat.boot_id == last.boot_id and beat.boot_us >= last.boot_us


def trusted_beat(clock: Clock) -> Beat:
    """Of a clock that is believed as it is: its own time is its boot clock."""
    now = clock.now()
    return Beat(moment=now, boot_us=(now - EPOCH) // _US, boot_id="trusted")


def look(guard: Guard, reading: Reading, *, adopt_after: timedelta = ADOPT_AFTER) -> Look:
    """Compare the server's time with the wall clock, and follow it as the policy says."""
    now = guard.at(reading.boot_us)
    ahead = reading.wall - now
    here = replace(guard, moment=now, boot_us=reading.boot_us)
    if abs(ahead) <= TOLERANCE:
        ppm = max(-_FOLLOW_PPM, min(_FOLLOW_PPM, ahead // _US // 10))
        finding = None if guard.jump is None else Finding.AGREES
        return Look(guard=replace(here, ppm=ppm, jump=None), ahead=ahead, finding=finding)
    difference = _wall_less_boot(reading)
    jump = guard.jump
    if jump is None or abs(difference - jump.wall_less_boot_us) > TOLERANCE // _US:
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
    """The one clock of a server. `look` is called by whoever keeps its heartbeat, about once a second."""

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
        """What the wall clock says to the server's time. Nothing is followed before `follow`."""
        return look(self._guard, self._source.read(), adopt_after=self._adopt_after)

    def follow(self, seen: Look) -> None:
        self._guard, self._ahead = seen.guard, seen.ahead

    def beat(self) -> Beat:
        reading = self._source.read()
        return Beat(moment=self._guard.at(reading.boot_us), boot_us=reading.boot_us, boot_id=reading.boot_id)

    @property
    def trouble(self) -> timedelta | None:
        """By how much the wall clock is ahead (below zero: behind), while the two do not agree."""
        return None if self._guard.jump is None else self._ahead
