"""What is owed is a function of time. Pure, exact, in integers.

All meters of a bucket flow together: the bucket knows the sum of their rates, since when it is settled, and
the fraction of a sat that is owed already. One settlement is therefore one step however many meters there
are, and they all run dry at one moment. Nothing is ever rounded: a fraction is carried on the account until
it makes a whole sat, so splitting a time in any way charges the same sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from sandboxer.money.amounts import NSATS_PER_SAT, Nsats, Rate, Sats, microseconds

_FAR_US = microseconds(timedelta(days=365 * 1000))


class Use(StrEnum):
    """What a rate is paid for."""

    RUNNING = "running"
    # Memory kept while nothing runs.
    FROZEN = "frozen"
    # Disk of what is stopped or reaped, of snapshots, images and volumes.
    STORED = "stored"
    EGRESS = "egress"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What leaves a bucket."""

    # The sum of the open meters' rates, in msats per second.
    rate: Rate
    settled_at: datetime
    # Owed up to `settled_at` and not yet charged. Between 0 and a sat when at rest; a correction of the past
    # may take it below or above until it is collected.
    carried: Nsats = 0


def nsats_between(rate: Rate, began: datetime, ended: datetime) -> Nsats:
    """msats per second times microseconds: exactly nanosats. Nothing for a time that runs backwards."""
    return rate * max(0, microseconds(ended - began))


def owed(flow: Flow, *, now: datetime) -> Nsats:
    """All that is owed at `now` and not yet charged."""
    return flow.carried + nsats_between(flow.rate, flow.settled_at, now)


def accrue(flow: Flow, *, now: datetime) -> Flow:
    """The same flow, looked at from `now`. A clock that went back changes nothing."""
    return replace(flow, settled_at=max(flow.settled_at, now), carried=owed(flow, now=now))


def change(flow: Flow, *, by: Rate, at: datetime) -> Flow:
    """The flow as if its rate had changed by so much at `at`, a moment not after `settled_at`.

    For the time between, what was owed too little or charged too much is carried: a sandbox that is found to
    have died an hour ago gets that hour back.
    """
    return replace(flow, rate=flow.rate + by, carried=flow.carried + nsats_between(by, at, flow.settled_at))


def collect(flow: Flow) -> tuple[Sats, Flow]:
    """Whole sats to charge (below zero: to give back), and the flow that carries the rest."""
    sats, carried = divmod(flow.carried, NSATS_PER_SAT)
    return sats, replace(flow, carried=carried)


def settle(flow: Flow, *, now: datetime) -> tuple[Sats, Flow]:
    """Whole sats owed at `now`, and the flow that carries the rest.

    The same flow comes back if no whole sat is owed: nothing is written while nothing is owed.
    """
    sats, settled = collect(accrue(flow, now=now))
    return (sats, settled) if sats else (0, flow)


def dry_at(spendable: Sats, flow: Flow) -> datetime | None:
    """The first moment at which all that can be spent is used up; None: never (nothing flows).

    A bucket that is dry already says `settled_at`.
    """
    if flow.rate <= 0:
        return None
    left = max(0, spendable * NSATS_PER_SAT - flow.carried)
    us = -(-left // flow.rate)
    if us > _FAR_US:
        return datetime.max.replace(tzinfo=UTC) - timedelta(days=1)
    return flow.settled_at + timedelta(microseconds=us)
