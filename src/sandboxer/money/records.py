"""The bucket as a value, and the names of the ledger accounts that belong to an owner."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sandboxer.money.accrual import Gap, Position, run_to
from sandboxer.money.amounts import Sats, sats_for
from sandboxer.money.policy import Flow, GracePolicy, Health, Standing, dry_at, earned


@dataclass(frozen=True, slots=True, kw_only=True)
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
