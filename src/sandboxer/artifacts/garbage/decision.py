"""When garbage goes: not before its grace is over, and nothing that somebody else may need. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sandboxer.artifacts.images.published.collecting import Tier

WHY = {
    Tier.LEFTOVER: "a disk without a record: something failed half-way",
    Tier.BASE: "an older build: no name means it, and no disk lies over it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    # Name of a tree, or id of a kept disk.
    id: str
    tier: Tier
    # Where it lies: a backend, or None for a tree.
    backend: str | None
    # None: nobody has counted.
    size_bytes: int | None
    # Since when nobody has needed it, as far as we saw.
    since: datetime
    # False: others may need it; it is only shown.
    is_ours: bool = True

    def goes_at(self, grace: timedelta) -> datetime | None:
        """None: never by itself."""
        return self.since + grace if self.is_ours else None


def is_due(garbage: Garbage, *, grace: timedelta, now: datetime) -> bool:
    goes_at = garbage.goes_at(grace)
    return goes_at is not None and goes_at <= now
