"""An entitlement decides which sandboxes of an account its tier pays for; the others pay per second. Pure.

A tier gives slots at rate zero and a pool of resources for them. A sandbox beyond either is not refused: it
pays. A sandbox that is free stays free while the entitlement lasts; a slot that becomes free goes to the
oldest sandbox that fits.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sandboxer.accounts.limits import LIMITS, LimitPolicy, free_slots
from sandboxer.kernel.values import value_class
from sandboxer.money.pricing import Size


@value_class
class Entitlement:
    tier: int
    until: datetime

    def is_live(self, now: datetime) -> bool:
        return now < self.until


@value_class
class TierResources:
    """What each tier adds to the pool of resources that its free sandboxes share."""

    vcpu_thousandths: int = 2000
    memory_mb: int = 4096
    disk_mb: int = 20480

    def pool(self, tier: int) -> Size:
        return Size(
            vcpu_thousandths=self.vcpu_thousandths * tier,
            memory_mb=self.memory_mb * tier,
            disk_mb=self.disk_mb * tier,
        )


RESOURCES = TierResources()


@value_class
class Living:
    """A sandbox that occupies a slot: being made, running or frozen."""

    id: str
    since: datetime
    size: Size
    # Whether it runs at rate zero now; a new one does not yet.
    is_free: bool = False


@value_class
class Move:
    """A sandbox that changes to rate zero, or to paying per second from the bucket."""

    id: str
    to_free: bool


def free_ones(
    living: Iterable[Living],
    entitlement: Entitlement | None,
    *,
    now: datetime,
    resources: TierResources = RESOURCES,
    policy: LimitPolicy = LIMITS,
) -> frozenset[str]:
    """Return the ids of the sandboxes that run at rate zero."""
    if entitlement is None or not entitlement.is_live(now):
        return frozenset()
    left = resources.pool(entitlement.tier)
    slots = free_slots(entitlement.tier, policy=policy)
    free: set[str] = set()
    for one in sorted(living, key=lambda s: (not s.is_free, s.since, s.id)):
        if len(free) < slots and _fits(one.size, left):
            free.add(one.id)
            left = _minus(left, one.size)
    return frozenset(free)


def moves(
    living: Iterable[Living],
    entitlement: Entitlement | None,
    *,
    now: datetime,
    resources: TierResources = RESOURCES,
    policy: LimitPolicy = LIMITS,
) -> tuple[Move, ...]:
    """Return the sandboxes that change to or from rate zero now; those that begin to pay come first.

    Call it whenever a sandbox came or went, a tier was bought, or an entitlement ended.
    """
    present = tuple(living)
    free = free_ones(present, entitlement, now=now, resources=resources, policy=policy)
    changed = [Move(id=s.id, to_free=s.id in free) for s in present if s.is_free is not (s.id in free)]
    return tuple(sorted(changed, key=lambda move: (move.to_free, move.id)))


def would_be_free(
    living: Iterable[Living],
    size: Size,
    entitlement: Entitlement | None,
    *,
    now: datetime,
    resources: TierResources = RESOURCES,
    policy: LimitPolicy = LIMITS,
) -> bool:
    """Return whether one more sandbox of this size would run at rate zero."""
    newcomer = Living(id="", since=now, size=size)
    present = (*living, newcomer)
    return "" in free_ones(present, entitlement, now=now, resources=resources, policy=policy)


def keeps_disk(tier: int, disk_mb: int, *, held_mb: int, resources: TierResources = RESOURCES) -> bool:
    """Return whether a tier pays for the disk of one more stopped sandbox, beside `held_mb` of others.

    The others are those in its slots and those that are stopped already. Without this bound, stopping one
    after the other would keep any number of disks for free.
    """
    return held_mb + disk_mb <= resources.pool(tier).disk_mb


def _fits(size: Size, left: Size) -> bool:
    return (
        size.vcpu_thousandths <= left.vcpu_thousandths
        and size.memory_mb <= left.memory_mb
        and size.disk_mb <= left.disk_mb
    )


def _minus(left: Size, size: Size) -> Size:
    return Size(
        vcpu_thousandths=left.vcpu_thousandths - size.vcpu_thousandths,
        memory_mb=left.memory_mb - size.memory_mb,
        disk_mb=left.disk_mb - size.disk_mb,
    )
