"""When to ask again what became of a payment: quickly at first, then ever more slowly, and not for ever.

Pure: a poller that was killed goes on from the time of broadcast, with the same answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Polling:
    """The published client's schedule: three times each 5 s, three times each 15 s, then each minute."""

    quick: tuple[float, ...] = (5, 5, 5, 15, 15, 15)
    then: float = 60
    # After so long it is somebody's case; asking goes on, but no caller is told to wait any longer.
    patience: timedelta = timedelta(minutes=10)

    def next_at(self, since: datetime, *, now: datetime) -> datetime:
        """The first appointed time after `now`."""
        at = since
        for pause in self.quick:
            at += timedelta(seconds=pause)
            if at > now:
                return at
        slow = timedelta(seconds=self.then)
        return at + slow * ((now - at) // slow + 1)

    def overdue(self, since: datetime, *, now: datetime) -> bool:
        return now - since > self.patience
