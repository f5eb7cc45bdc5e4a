"""Time as a value. Decisions receive `now`; only acts hold a clock, and all waiting goes through it.

The server's own time is a `GuardedClock` (see `clock_guard`): it advances by CLOCK_BOOTTIME, so nobody can
set it forward or back, and follows the wall clock by a stated policy.

Durations are read as people write them: `30s`, `15m`, `4h`, `2d`.
"""

from __future__ import annotations

import asyncio
import calendar
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from sandboxer.kernel.errors import InvalidRequest

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FORM = re.compile(r"^([0-9]{1,9})([smhd])$")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# Longest duration anyone may name; keeps every later sum far from datetime's edge.
MAX_DURATION = timedelta(days=3660)


class Clock(Protocol):
    def now(self) -> datetime:
        """The present moment, always in UTC."""

    async def sleep(self, delay: timedelta) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the host's clocks say at one moment."""

    # The wall clock: it may be set by anybody who may set it.
    wall: datetime
    # Microseconds since the host was started, sleep included: nobody can set it.
    boot_us: int
    # Which start of the host that counts from.
    boot_id: str


class TimeSource(Protocol):
    """Where the server's time comes from. A test gives one that lies."""

    def read(self) -> Reading: ...

    def boot_us(self) -> int:
        """The same as `read().boot_us`, for the hot path."""

    async def sleep(self, delay: timedelta) -> None: ...


class SystemClock:
    """The wall clock as it is, for programs that end soon. The server has a `GuardedClock`."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, delay: timedelta) -> None:
        await asyncio.sleep(max(0.0, delay.total_seconds()))


class HostTime:
    """The clocks of this host."""

    def __init__(self) -> None:
        self._boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    def read(self) -> Reading:
        wall = EPOCH + timedelta(microseconds=time.time_ns() // 1000)
        return Reading(wall=wall, boot_us=self.boot_us(), boot_id=self._boot_id)

    def boot_us(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000

    async def sleep(self, delay: timedelta) -> None:
        await asyncio.sleep(max(0.0, delay.total_seconds()))


def parse_duration(text: str, *, field: str) -> timedelta:
    match = _FORM.match(text)
    if match is None:
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
    """The same day so many calendar months later (earlier, if below zero), or that month's last."""
    count = moment.month - 1 + months
    year, month = moment.year + count // 12, count % 12 + 1
    return moment.replace(year=year, month=month, day=min(moment.day, calendar.monthrange(year, month)[1]))
