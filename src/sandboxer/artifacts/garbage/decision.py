"""When garbage goes: not before its grace is over, and nothing that somebody else may need. Pure.

What may go of what is kept for images goes in tiers, and each says why it may:

1. `leftover`: on the host without a record, from a crash half-way; nobody can name it, so nobody needs it.
2. `ended`: its record says it is over or on its way out.
3. `account_ended`: the delegated account that kept it has ended.
4. `unpaid`: nobody paid for it during the whole retention time; a locked one is spared once more.
5. `base`: a tree that no name, no sandbox and no kept disk lies over any more.

What is being read, or being made, is in no tier. A sandbox needs no image once it is made: its disk is its
own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sandboxer.artifacts.images.published.records import PublishedImage
from sandboxer.artifacts.reconciler import SPARED
from sandboxer.artifacts.snapshots.lifecycle import OVER, State


class Tier(StrEnum):
    LEFTOVER = "leftover"
    ENDED = "ended"
    ACCOUNT_ENDED = "account_ended"
    UNPAID = "unpaid"
    BASE = "base"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is on a host: disks by id, what is read or made now, trees and what lies over each."""

    disks: frozenset[str]
    in_use: frozenset[str] = frozenset()
    trees: frozenset[str] = frozenset()
    # Tree by whatever lies over it: a disk, a sandbox, a name that means it.
    lies_over: Mapping[str, str] | None = None


def collectable(
    kept: Kept, images: Iterable[PublishedImage], *, ended_accounts: Collection[str], now: datetime
) -> dict[str, Tier]:
    """Id of a disk, or name of a tree, and why it may go."""
    known = {image.id: image for image in images}
    found: dict[str, Tier] = {}
    for disk in kept.disks | known.keys():
        tier = _tier(known.get(disk), ended_accounts=ended_accounts, now=now)
        if tier is not None and disk not in kept.in_use:
            found[disk] = tier
    over = kept.lies_over or {}
    # Only what lies over a tree and stays keeps it; a disk that goes now lets it go the next time.
    needed = {*over.values(), *(image.base for image in known.values() if image.state not in OVER)}
    return {**found, **dict.fromkeys(kept.trees - needed, Tier.BASE)}


def _tier(image: PublishedImage | None, *, ended_accounts: Collection[str], now: datetime) -> Tier | None:
    if image is None:
        return Tier.LEFTOVER
    if image.state in (*OVER, State.DROPPING):
        return Tier.ENDED
    if image.state is State.TAKING:
        return None
    if image.account in ended_accounts:
        return Tier.ACCOUNT_ENDED
    if image.state is State.UNPAID and image.expires_at is not None and image.expires_at <= now:
        if image.locked_at is not None and image.reason != SPARED:
            return None
        return Tier.UNPAID
    return None


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
