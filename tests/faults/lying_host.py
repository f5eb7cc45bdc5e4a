"""A host whose wall clock is set by the test, and whose boot clock nobody can set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sandboxer.kernel.clock import Reading
from tests.support.clock import ManualClock

_US = timedelta(microseconds=1)
START = datetime(2026, 1, 1, tzinfo=UTC)


class LyingHost:
    def __init__(self) -> None:
        # What really passes. Everything that sleeps sleeps by it.
        self.truth = ManualClock(START)
        self.boot_id = "first"
        self._booted_at = START - timedelta(hours=7)
        self._wall_off = timedelta(0)

    def read(self) -> Reading:
        return Reading(wall=self.truth.now() + self._wall_off, boot_us=self.boot_us(), boot_id=self.boot_id)

    def boot_us(self) -> int:
        return (self.truth.now() - self._booted_at) // _US

    async def sleep(self, delay: timedelta) -> None:
        await self.truth.sleep(delay)

    def pass_time(self, delay: timedelta) -> None:
        self.truth.advance(delay)

    def set_wall(self, by: timedelta) -> None:
        """Somebody sets the wall clock; nothing else happens."""
        self._wall_off += by

    def reboot(self, *, takes: timedelta) -> None:
        self.truth.advance(takes)
        self._booted_at = self.truth.now()
        self.boot_id += "+"
