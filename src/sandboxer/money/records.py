"""The bucket as a value, the names of the ledger accounts that belong to an owner, and how far the meters of
a bucket run: to its dry moment, through its grace, and over what nobody saw.

    funded                                   charged, rate × time
    dry, in grace                            charged, as a debt
    grace is over, or there never was any    the bucket's clock stands still until somebody pays

Two kinds of time are special, whoever notices and however late (`Gap`):

- an *outage*: the server was not there, the host went on. What lived on credit that was there is charged as
  ever; what was dry is not: nobody could have paid, nobody could have stopped it. Its grace begins, or goes
  on, with the end of the outage.
- *unwitnessed* time: no clock of this host proves that it passed (a reboot, a restore on another host, a wall
  clock that was set and then believed). Nobody is charged for it.

Pure. Settling at any moments in between gives the same sums as settling once at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum

from sandboxer.kernel.values import value_class
from sandboxer.money.amounts import Nsats, Rate, Sats, sats_for
from sandboxer.money.policy import (
    Flow,
    GracePolicy,
    Health,
    Standing,
    accrue,
    dry_at,
    earned,
    nsats_between,
    reap_at,
)

Span = tuple[datetime, datetime]


class GapKind(StrEnum):
    OUTAGE = "outage"
    UNWITNESSED = "unwitnessed"


@value_class
class Gap:
    kind: GapKind
    began_at: datetime
    ended_at: datetime


@value_class
class Position:
    """A bucket's meters as they stand after they were run up to a moment."""

    flow: Flow
    health: Health
    # The times that nobody pays for: every meter of the bucket pauses there.
    skipped: tuple[Span, ...] = ()
    # True if the bucket's charges ended before that moment.
    is_stopped: bool = False


def charges_end_at(
    health: Health, *, spendable: Sats, flow: Flow, collected: Sats, policy: GracePolicy
) -> datetime | None:
    """Return when the bucket's charges end if nobody pays: its dry moment plus the grace it has earned by
    then.

    None means never.
    """
    if health.standing is Standing.REAPED:
        return flow.settled_at
    began = health.grace_began_at or dry_at(spendable, flow)
    if began is None:
        return None
    # By the dry moment all that can be spent will have been collected, whenever it is settled.
    granted = earned(policy, collected=collected + max(0, spendable), rate=flow.rate)
    return reap_at(began, health.last_receipt_at, granted)


def run_to(
    until: datetime,
    *,
    flow: Flow,
    health: Health,
    spendable: Sats,
    collected: Sats,
    policy: GracePolicy,
    gaps: Iterable[Gap] = (),
) -> Position:
    """Run the bucket's meters up to `until`. `gaps` must be in the order they began."""
    run = _Run(spendable=spendable, collected=collected, policy=policy)
    at = Position(flow=flow, health=health)
    for gap in gaps:
        if gap.ended_at > at.flow.settled_at and gap.began_at < until:
            at = run.through(at, gap.began_at)
            at = run.over(at, gap, min(gap.ended_at, until))
    return run.through(at, until)


def counted(position: Position, began: datetime, ended: datetime) -> Iterator[Span]:
    """Yield the parts of a time span for which an open meter of this bucket is charged."""
    ended = min(ended, position.flow.settled_at)
    for since, until in position.skipped:
        if began < since:
            yield began, min(ended, since)
        began = max(began, until)
    if began < ended:
        yield began, ended


def counted_nsats(position: Position, rate: Rate, began: datetime, ended: datetime) -> Nsats:
    return sum(nsats_between(rate, a, b) for a, b in counted(position, began, ended))


@value_class
class _Run:
    spendable: Sats
    collected: Sats
    policy: GracePolicy

    def through(self, at: Position, until: datetime) -> Position:
        """Run on through ordinary time, which is charged until the bucket's charges end."""
        if until <= at.flow.settled_at or at.is_stopped:
            return at
        end = self._end(at)
        reach = until if end is None else max(at.flow.settled_at, min(until, end))
        health, dry = at.health, self._dry(at)
        if health.standing is Standing.ALIVE and health.grace_began_at is None:
            # Kept here, because a settled bucket no longer shows when it ran dry.
            health = replace(health, grace_began_at=dry) if dry is not None and dry <= until else health
        is_stopped = end is not None and end < until
        return replace(at, flow=accrue(at.flow, now=reach), health=health, is_stopped=is_stopped)

    def over(self, at: Position, gap: Gap, ended: datetime) -> Position:
        """Run over a gap, or over the part of it up to `ended`."""
        began, dry = max(at.flow.settled_at, gap.began_at), self._dry(at)
        if at.is_stopped or at.health.standing is Standing.REAPED or began >= ended:
            return at
        is_dry = at.health.grace_began_at is not None or (dry is not None and dry <= began)
        if gap.kind is GapKind.UNWITNESSED or is_dry:
            health = _later(at.health, ended - began)
            return replace(_skip(replace(at, health=health), began, ended))
        if dry is None or dry >= ended:
            return replace(at, flow=accrue(at.flow, now=ended))
        health = replace(at.health, grace_began_at=ended)
        return _skip(replace(at, flow=accrue(at.flow, now=dry), health=health), dry, ended)

    def _dry(self, at: Position) -> datetime | None:
        return dry_at(self.spendable, at.flow)

    def _end(self, at: Position) -> datetime | None:
        return charges_end_at(
            at.health,
            spendable=self.spendable,
            flow=at.flow,
            collected=self.collected,
            policy=self.policy,
        )


def _skip(at: Position, began: datetime, ended: datetime) -> Position:
    # Also done for a rate of zero: a later correction may find that something was charged before the gap.
    flow = replace(at.flow, settled_at=ended)
    return replace(at, flow=flow, skipped=(*at.skipped, (began, ended)))


def _later(health: Health, by: timedelta) -> Health:
    """Move a running grace period back by `by`: it does not tick while nobody can pay."""
    if health.grace_began_at is None:
        return health
    receipt = health.last_receipt_at
    return replace(
        health,
        grace_began_at=health.grace_began_at + by,
        last_receipt_at=None if receipt is None else receipt + by,
    )


@value_class
class Bucket:
    owner: str
    # What is in it, and how much of that pending transfers hold.
    posted: Sats
    held: Sats
    # What grace cost and nobody has paid yet.
    debt: Sats
    flow: Flow
    settlements: int
    health: Health
    due_at: datetime | None
    # How long it may run on when it is dry: as the operator says, or not at all for a budget someone gave.
    policy: GracePolicy
    # What its meters have been paid in all, and has not gone back: grace is earned by it.
    collected: Sats
    # For how long what runs must stay payable: so many sats are kept back from other spending.
    reserve: timedelta
    # When a package above wants to look at it (see `look_again_at`).
    look_at: datetime | None
    # The gaps after its last settlement, in the order they began.
    gaps: tuple[Gap, ...] = ()
    # True if its charges ended before the moment to which it was just settled.
    is_stopped: bool = False

    def run_to(self, now: datetime) -> Position:
        """Return how its meters stand at `now`, without writing anything."""
        return run_to(
            now,
            flow=self.flow,
            health=self.health,
            spendable=self.spendable,
            collected=self.collected,
            policy=self.policy,
            gaps=self.gaps,
        )

    @property
    def grace(self) -> GracePolicy:
        """The grace it has earned, which is at most what the policy allows."""
        return earned(self.policy, collected=self.collected, rate=self.flow.rate)

    @property
    def died_at(self) -> datetime | None:
        """When the charges of a reaped bucket ended; nothing is charged after that.

        None: it is not reaped.
        """
        return self.health.grace_began_at if self.health.standing is Standing.REAPED else None

    @property
    def spendable(self) -> Sats:
        """The sats that its meters may use up."""
        return self.posted - self.held

    @property
    def reserved(self) -> Sats:
        """The sats kept for its running meters: their rate for the time `reserve`, at most what is there."""
        return min(self.spendable, sats_for(self.flow.rate, self.reserve))

    @property
    def available(self) -> Sats:
        """The sats that a new hold, create or transfer may take."""
        return 0 if self.debt else self.spendable - self.reserved

    @property
    def dry_at(self) -> datetime | None:
        """When it runs out if nothing changes. None: no meter runs."""
        return dry_at(self.spendable, self.flow)


def bucket_id(owner: str) -> str:
    return f"bucket:{owner}"


def debt_id(owner: str) -> str:
    return f"debt:{owner}"


def unconfirmed_id(owner: str) -> str:
    """Name the ledger account for payments that were credited before they were final.

    Its balance is below zero by the sum of them.
    """
    return f"unconfirmed:{owner}"


def frozen_id(owner: str) -> str:
    """Name the ledger account for payments that were final and are now in doubt.

    Its balance is below zero by the sum of them.
    """
    return f"frozen:{owner}"
