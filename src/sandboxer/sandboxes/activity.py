"""Who works in which sandbox right now, in memory. Feeds the idle timer and the lazy `ready` ⇄ `active` record.

Nothing here touches the database: an exec of a millisecond must not cost two writes (docs/decisions/0003).
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
    """One sandbox's present."""

    open_lines: int = 0
    # When it last changed between working and quiet.
    since: datetime | None = None
    # CPU seconds when it was last known to be quiet, and when that was read.
    cpu_s: float | None = None
    # A background process may run on after the line that started it.
    has_background: bool = False


class Activity:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pulses: dict[str, Pulse] = {}
        # Sandboxes whose record may no longer say the truth; the recorder looks at them and clears this.
        self.unsettled: set[str] = set()
        self.stirred = asyncio.Event()

    @contextmanager
    def working(self, sandbox_id: str, activity: str) -> Iterator[None]:
        pulse = self._pulses.setdefault(sandbox_id, Pulse())
        pulse.open_lines += 1
        if activity == "processes":
            pulse.has_background = True
        if pulse.open_lines == 1:
            self._turned(sandbox_id, pulse)
        try:
            yield
        finally:
            pulse.open_lines -= 1
            if pulse.open_lines == 0:
                self._turned(sandbox_id, pulse)

    def pulse(self, sandbox_id: str) -> Pulse:
        return self._pulses.setdefault(sandbox_id, Pulse())

    def quiet_since(self, sandbox_id: str, *, otherwise: datetime) -> datetime | None:
        """Since when no line is open; None while one is."""
        pulse = self._pulses.get(sandbox_id)
        if pulse is None or pulse.since is None:
            return otherwise
        return None if pulse.open_lines else max(pulse.since, otherwise)

    def touch(self, sandbox_id: str) -> None:
        """Begin counting idle time anew."""
        pulse = self.pulse(sandbox_id)
        pulse.since = self._clock.now()
        pulse.cpu_s = None

    def forget(self, sandbox_id: str) -> None:
        pulse = self._pulses.get(sandbox_id)
        if pulse is not None and not pulse.open_lines:
            del self._pulses[sandbox_id]
        self.unsettled.discard(sandbox_id)

    def _turned(self, sandbox_id: str, pulse: Pulse) -> None:
        pulse.since = self._clock.now()
        pulse.cpu_s = None
        self.unsettled.add(sandbox_id)
        self.stirred.set()
