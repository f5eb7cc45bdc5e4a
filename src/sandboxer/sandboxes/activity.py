"""The activity of each sandbox is kept in memory, for the idle timer and the late record of `active`.

Nothing here touches the database: an exec of a millisecond must not cost two writes (decision 0003).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from sandboxer.kernel.clock import Clock


@dataclass(slots=True)
class Pulse:
    """The present activity of one sandbox."""

    # When it last changed between working and quiet, or was last found to be at work.
    since: datetime
    open_lines: int = 0
    # The CPU seconds that were read since it became quiet, and when.
    cpu_s: float | None = None
    cpu_read_at: datetime | None = None
    # When the guest was last found to run something in the background.
    asked_at: datetime | None = None


class Activity:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Idle time never counts from before this server watched.
        self._watching_since = clock.now()
        self._pulses: dict[str, Pulse] = {}
        # Sandboxes whose recorded state may be outdated; the recorder looks at them.
        self.unsettled: set[str] = set()
        self.stirred = asyncio.Event()

    @contextmanager
    def working(self, sandbox_id: str) -> Iterator[None]:
        pulse = self.pulse(sandbox_id)
        pulse.open_lines += 1
        if pulse.open_lines == 1:
            self._turned(sandbox_id, pulse)
        try:
            yield
        finally:
            pulse.open_lines -= 1
            if pulse.open_lines == 0:
                self._turned(sandbox_id, pulse)

    def pulse(self, sandbox_id: str) -> Pulse:
        if (known := self._pulses.get(sandbox_id)) is None:
            known = self._pulses[sandbox_id] = Pulse(since=self._watching_since)
        return known

    def touch(self, sandbox_id: str) -> None:
        """Begin counting idle time anew."""
        pulse = self.pulse(sandbox_id)
        pulse.since = self._clock.now()
        pulse.cpu_s = pulse.cpu_read_at = None

    def forget(self, sandbox_id: str) -> None:
        self._pulses.pop(sandbox_id, None)
        self.unsettled.discard(sandbox_id)

    def look_at(self, sandbox_id: str) -> None:
        """Have the recorder compare the record with what the sandbox does."""
        self.unsettled.add(sandbox_id)
        self.stirred.set()

    def _turned(self, sandbox_id: str, pulse: Pulse) -> None:
        pulse.since = self._clock.now()
        pulse.cpu_s = pulse.cpu_read_at = None
        self.look_at(sandbox_id)
