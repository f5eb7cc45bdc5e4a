"""These pure decisions say what a bucket owes at a moment, and what becomes of a bucket that runs out.

All meters of a bucket flow together: the bucket knows the sum of their rates, since when it is settled, and
the fraction of a sat that is owed already. Settling is therefore one step however many meters there are, and
all of them run dry at the same moment. Nothing is rounded: a fraction is carried until it makes a whole sat,
so splitting a time span in any way charges the same sum.

    alive ──dry──> grace ──nobody paid──> reaped
      ^──────paid────┘                      │
      └───────────────paid──────────────────┘

Grace lasts a window; a receipt (a payment seen, not yet final) that would cover a while restarts it, never
past a hard cap: otherwise an agent could live for free by drip-feeding payments that do not settle.

Grace is credit, so it has to be earned: it is worth at most a tenth of what the account ever paid. Otherwise
somebody could live on the grace of ever new accounts that hold a single sat each. Who owes gets none: when
nothing is metered any more, a bucket with a debt is reaped, or its next meter would begin a grace anew.
"""

from __future__ import annotations

from dataclasses import field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from sandboxer.kernel.values import value_class
from sandboxer.money.amounts import MSATS_PER_SAT, NSATS_PER_SAT, Nsats, Rate, Sats, microseconds, sats_for

_FAR_US = microseconds(timedelta(days=365 * 1000))


class Use(StrEnum):
    """What a rate pays for."""

    RUNNING = "running"
    # Memory kept while nothing runs.
    FROZEN = "frozen"
    # Disk of what is stopped or reaped, of snapshots, images and volumes.
    STORED = "stored"
    EGRESS = "egress"
    # Of a meter that stays open while there is nothing to measure: no segment is written of that time.
    NOTHING = "nothing"


@value_class
class Flow:
    """The sats that flow out of a bucket: the sum of its meters' rates, and what is owed already."""

    # The sum of the open meters' rates, in msats per second.
    rate: Rate
    settled_at: datetime
    # Owed up to `settled_at` and not yet charged. Between 0 and a sat when at rest; a correction of the past
    # may take it below or above until it is collected.
    carried: Nsats = 0


def nsats_between(rate: Rate, began: datetime, ended: datetime) -> Nsats:
    """Return rate × time in nanosats, exactly; zero if `ended` is before `began`."""
    return rate * max(0, microseconds(ended - began))


def owed(flow: Flow, *, now: datetime) -> Nsats:
    """Return all that is owed at `now` and not yet charged."""
    return flow.carried + nsats_between(flow.rate, flow.settled_at, now)


def accrue(flow: Flow, *, now: datetime) -> Flow:
    """Return the same flow as of `now`. A clock that went back changes nothing."""
    return replace(flow, settled_at=max(flow.settled_at, now), carried=owed(flow, now=now))


def change(flow: Flow, *, by: Rate, at: datetime) -> Flow:
    """Return the flow as if its rate had changed by `by` at `at`, which is not after `settled_at`.

    The difference for the time in between is carried: a sandbox that is found to have died an hour ago gets
    that hour back.
    """
    return replace(flow, rate=flow.rate + by, carried=flow.carried + nsats_between(by, at, flow.settled_at))


def collect(flow: Flow) -> tuple[Sats, Flow]:
    """Return the whole sats to charge (below zero: to give back), and the flow that carries the rest."""
    sats, carried = divmod(flow.carried, NSATS_PER_SAT)
    return sats, replace(flow, carried=carried)


def dry_at(spendable: Sats, flow: Flow) -> datetime | None:
    """Return the first moment at which all that can be spent is used up; None if nothing flows.

    For a bucket that is dry already it is `settled_at`.
    """
    if flow.rate <= 0:
        return None
    left = max(0, spendable * NSATS_PER_SAT - flow.carried)
    if (us := -(-left // flow.rate)) > _FAR_US:
        return datetime.max.replace(tzinfo=UTC) - timedelta(days=1)
    return flow.settled_at + timedelta(microseconds=us)


class Standing(StrEnum):
    ALIVE = "alive"
    GRACE = "grace"
    REAPED = "reaped"


@value_class
class GracePolicy:
    window: timedelta = timedelta(seconds=60)
    hard_cap: timedelta = timedelta(minutes=10)
    # A receipt must cover at least so much of the present rate to restart the window.
    receipt_covers: timedelta = timedelta(seconds=60)
    # How long grace lasts from a receipt on; None: as long as the window.
    renewed: timedelta | None = None
    # Warn once when the bucket lasts no longer than each of these.
    warn_s: tuple[int, ...] = (3600, 600, 60)


POLICY = GracePolicy()
# One second of grace costs so many paid seconds.
PAID_PER_GRACE = 10
_MOST_S = 10**9
# For the budget of a delegated key: a budget of one sat must not give minutes for nothing.
NO_GRACE = GracePolicy(window=timedelta(0), hard_cap=timedelta(0))


@value_class
class Health:
    """The stored condition of a bucket."""

    standing: Standing = Standing.ALIVE
    # When grace began. In a bucket that is alive: since when it has been dry, before it is judged. In a
    # reaped one: when its charges ended, however late that was noticed.
    grace_began_at: datetime | None = None
    last_receipt_at: datetime | None = None
    # The shortest warning given since the bucket last held more.
    warned_s: int | None = None


@value_class
class Tiding:
    """An event to record about an account: `account.low`, `.dry`, `.reaped`, `.funded`."""

    kind: str
    reason: str
    data: dict[str, object] = field(default_factory=dict)


@value_class
class Verdict:
    health: Health
    # When to look again although nobody did anything; None: no need.
    due_at: datetime | None
    tidings: tuple[Tiding, ...] = ()


def reap_at(began: datetime, last_receipt: datetime | None, policy: GracePolicy = POLICY) -> datetime:
    """Return when a bucket in grace is reaped."""
    ends = began + policy.window
    if last_receipt is not None:
        ends = max(ends, last_receipt + (policy.renewed or policy.window))
    return min(ends, began + policy.hard_cap)


def earned(policy: GracePolicy, *, collected: Sats, rate: Rate) -> GracePolicy:
    """Return the policy with its window cut to the seconds which a tenth of `collected` buys at `rate`."""
    if rate <= 0:
        return policy
    seconds = max(0, collected) * MSATS_PER_SAT // (PAID_PER_GRACE * rate)
    window = min(policy.window, timedelta(seconds=min(seconds, _MOST_S)))
    return replace(policy, window=window, renewed=policy.renewed or policy.window)


def is_receipt_enough(sats: Sats, flow: Flow, policy: GracePolicy = POLICY) -> bool:
    return sats > 0 and sats >= sats_for(flow.rate, policy.receipt_covers)


def judge(
    health: Health,
    *,
    spendable: Sats,
    flow: Flow,
    now: datetime,
    policy: GracePolicy = POLICY,
    debt: Sats = 0,
) -> Verdict:
    """Judge the condition of a bucket at `now`, whose meters are settled as of `flow`."""
    dry = dry_at(spendable, flow)
    is_dry = dry is not None and dry <= now
    match health.standing:
        case Standing.ALIVE | Standing.GRACE if dry is None and debt:
            # Silent, because nothing runs that would end.
            return Verdict(health=Health(standing=Standing.REAPED, grace_began_at=now), due_at=None)
        case Standing.ALIVE if is_dry:
            return _enter_grace(health.grace_began_at or now, now, policy)
        case Standing.ALIVE:
            return _warn(health, dry, now, policy)
        case Standing.GRACE if is_dry:
            return _stay_or_reap(health, now, policy)
        case Standing.GRACE if spendable <= 0:
            # Nothing is metered any more, so there is no grace to give; and nobody has paid.
            return Verdict(health=Health(), due_at=None)
        case Standing.REAPED if is_dry or spendable <= 0:
            return Verdict(health=health, due_at=None)
    funded = Tiding(kind="account.funded", reason="paid", data={"spendable": spendable})
    verdict = _warn(Health(), dry, now, policy)
    return replace(verdict, tidings=(funded, *verdict.tidings))


def _enter_grace(began: datetime, now: datetime, policy: GracePolicy) -> Verdict:
    """Enter grace as of the dry moment, or reap the bucket at once if its grace is over already."""
    if (ends := reap_at(began, None, policy)) <= now:
        return _reap(ends)
    dry = Tiding(kind="account.dry", reason="out of sats", data={"reap_at": ends.isoformat()})
    health = Health(standing=Standing.GRACE, grace_began_at=began)
    return Verdict(health=health, due_at=ends, tidings=(dry,))


def _stay_or_reap(health: Health, now: datetime, policy: GracePolicy) -> Verdict:
    ends = reap_at(health.grace_began_at or now, health.last_receipt_at, policy)
    return Verdict(health=health, due_at=ends) if now < ends else _reap(ends)


def _reap(ended: datetime) -> Verdict:
    health = Health(standing=Standing.REAPED, grace_began_at=ended)
    reaped = Tiding(kind="account.reaped", reason="out of sats, and no grace is left")
    return Verdict(health=health, due_at=None, tidings=(reaped,))


def _warn(health: Health, dry: datetime | None, now: datetime, policy: GracePolicy) -> Verdict:
    health = replace(health, grace_began_at=None)
    if dry is None:
        return Verdict(health=replace(health, warned_s=None), due_at=None)
    left_us = microseconds(dry - now)
    crossed = [s for s in policy.warn_s if left_us <= s * 1_000_000]
    level = min(crossed, default=None)
    ahead = [dry - timedelta(seconds=s) for s in policy.warn_s if s not in crossed]
    verdict = Verdict(health=replace(health, warned_s=level), due_at=min([*ahead, dry]))
    if level is None or (health.warned_s is not None and health.warned_s <= level):
        return verdict
    low = Tiding(
        kind="account.low",
        reason=f"lasts less than {level} s",
        data={"dry_at": dry.isoformat(), "seconds_left": left_us // 1_000_000},
    )
    return replace(verdict, tidings=(low,))
