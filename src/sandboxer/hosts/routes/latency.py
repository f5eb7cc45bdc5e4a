"""How long a backend takes to make a sandbox, as measured by those that it made. Pure: who measures gives
`now`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sandboxer.kernel.values import value_class

# Of the newest; the rest is what was known before.
_WEIGHT = 0.2
# Nothing is believed of a backend that has made nothing for so long: it is asked once more.
STALE_AFTER = timedelta(hours=1)


@value_class
class Latency:
    ms: float
    # Of the last one.
    at: datetime


def measured(before: Latency | None, took_ms: float, *, now: datetime) -> Latency:
    """Return what is known after one more was made."""
    if before is None or is_stale(before, now=now):
        return Latency(ms=took_ms, at=now)
    return Latency(ms=before.ms + _WEIGHT * (took_ms - before.ms), at=now)


def is_stale(known: Latency, *, now: datetime) -> bool:
    return now - known.at > STALE_AFTER
