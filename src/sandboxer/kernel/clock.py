"""Time as a value. Decisions receive `now`; only acts hold a clock, and all waiting goes through it.

The server's own time is a `GuardedClock` (see `clock_guard`): it advances by CLOCK_BOOTTIME, so nobody can
set it forward or back, and follows the wall clock by a stated policy.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    def now(self) -> datetime:
        """The present moment, always in UTC."""

    async def sleep(self, delay: timedelta) -> None: ...


class SystemClock:
    """The wall clock as it is, for programs that end soon. The server has a `GuardedClock`."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, delay: timedelta) -> None:
        await asyncio.sleep(max(0.0, delay.total_seconds()))


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
