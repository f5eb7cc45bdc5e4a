"""How long something unknown is held before it may go. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from sandboxer.sandboxes.quarantine.records import Sighting

EVERY = timedelta(hours=1)
# What one look may add: neither a clock set forward nor a week in which no server ran uses the time up.
LONGEST_STEP = 2 * EVERY


def seen_again(before: Sighting | None, now: datetime) -> Sighting:
    """The sighting after one more look."""
    if before is None:
        return Sighting(first_seen=now, last_seen=now, seen_for=timedelta(0))
    elapsed = min(max(now - before.last_seen, timedelta(0)), LONGEST_STEP)
    return Sighting(
        first_seen=before.first_seen,
        last_seen=now,
        seen_for=before.seen_for + elapsed,
    )


def goes_at(sighting: Sighting, *, grace: timedelta, now: datetime) -> datetime:
    """When it goes if somebody looks all the while, and nobody gives it a record."""
    return now + max(grace - sighting.seen_for, timedelta(0))


def is_due(sighting: Sighting, *, grace: timedelta) -> bool:
    return sighting.seen_for >= grace
