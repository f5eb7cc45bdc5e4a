"""What becomes of a bucket that runs out: warnings → grace → reaped. Pure decisions.

    alive ──dry──> grace ──nobody paid──> reaped
      ^──────paid────┘                      │
      └───────────────paid──────────────────┘

Grace lasts a window; a receipt (a payment seen, not yet final) that would cover a while restarts it, never
past a hard cap: otherwise an agent could live for free by drip-feeding payments that do not settle.

Grace is credit, so it is earned: a tenth of what the account ever paid. Otherwise ever new accounts, each
with a single sat, would live on nothing but grace.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from sandboxer.money.amounts import MSATS_PER_SAT, Rate, Sats, microseconds, sats_for
from sandboxer.money.meters import Flow, dry_at


class Standing(StrEnum):
    ALIVE = "alive"
    GRACE = "grace"
    REAPED = "reaped"


@dataclass(frozen=True, slots=True, kw_only=True)
class GracePolicy:
    window: timedelta = timedelta(seconds=60)
    hard_cap: timedelta = timedelta(minutes=10)
    # A receipt must cover at least so much of the present rate to restart the window.
    receipt_covers: timedelta = timedelta(seconds=60)
    # How long it is from a receipt on; None: as long as the window.
    renewed: timedelta | None = None
    # Warn once when the bucket lasts no longer than each of these.
    warn_s: tuple[int, ...] = (3600, 600, 60)


POLICY = GracePolicy()
# So many seconds must have been paid for one second of grace.
PAID_PER_GRACE = 10
_MOST_S = 10**9
# For a budget that someone else gave: whoever is given one sat must not get minutes for nothing with it.
NO_GRACE = GracePolicy(window=timedelta(0), hard_cap=timedelta(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What is remembered of a bucket's condition."""

    standing: Standing = Standing.ALIVE
    # When grace began. Of one that is alive: it was found dry since then, and is about to be judged. Of one
    # that is reaped: where its charges ended, however late anyone noticed.
    grace_began_at: datetime | None = None
    last_receipt_at: datetime | None = None
    # The shortest warning given since the bucket last held more.
    warned_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiding:
    """An event to record about an account: `account.low`, `.dry`, `.reaped`, `.funded`."""

    kind: str
    reason: str
    data: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    health: Health
    # When to look again although nobody did anything; None: no need.
    due_at: datetime | None
    tidings: tuple[Tiding, ...] = ()


def reap_at(began: datetime, last_receipt: datetime | None, policy: GracePolicy = POLICY) -> datetime:
    """When a bucket in grace is reaped."""
    ends = began + policy.window
    if last_receipt is not None:
        ends = max(ends, last_receipt + (policy.renewed or policy.window))
    return min(ends, began + policy.hard_cap)


def earned(policy: GracePolicy, *, collected: Sats, rate: Rate) -> GracePolicy:
    """The policy with a window no longer, in whole seconds, than a tenth of what was ever paid buys."""
    if rate <= 0:
        return policy
    seconds = max(0, collected) * MSATS_PER_SAT // (PAID_PER_GRACE * rate)
    window = min(policy.window, timedelta(seconds=min(seconds, _MOST_S)))
    return replace(policy, window=window, renewed=policy.renewed or policy.window)


def is_receipt_enough(sats: Sats, flow: Flow, policy: GracePolicy = POLICY) -> bool:
    return sats > 0 and sats >= sats_for(flow.rate, policy.receipt_covers)


def judge(
    health: Health, *, spendable: Sats, flow: Flow, now: datetime, policy: GracePolicy = POLICY
) -> Verdict:
    """The condition of a bucket whose meters are settled as of `flow`, at `now`."""
    dry = dry_at(spendable, flow)
    is_dry = dry is not None and dry <= now
    match health.standing:
        case Standing.ALIVE if is_dry:
            return _enter_grace(health.grace_began_at or now, now, policy)
        case Standing.ALIVE:
            return _warn(health, dry, now, policy)
        case Standing.GRACE if is_dry:
            return _stay_or_reap(health, now, policy)
        case Standing.GRACE if spendable <= 0:
            # Nothing is metered any more: grace has no object, and nobody has paid either.
            return Verdict(health=Health(), due_at=None)
        case Standing.REAPED if is_dry or spendable <= 0:
            return Verdict(health=health, due_at=None)
    funded = Tiding(kind="account.funded", reason="paid", data={"spendable": spendable})
    verdict = _warn(Health(), dry, now, policy)
    return replace(verdict, tidings=(funded, *verdict.tidings))


def _enter_grace(began: datetime, now: datetime, policy: GracePolicy) -> Verdict:
    """Grace begins at the dry moment, not when somebody looks: who comes late may find it over."""
    ends = reap_at(began, None, policy)
    if ends <= now:
        return _reap(ends)
    dry = Tiding(kind="account.dry", reason="out of sats", data={"reap_at": ends.isoformat()})
    health = Health(standing=Standing.GRACE, grace_began_at=began)
    return Verdict(health=health, due_at=ends, tidings=(dry,))


def _stay_or_reap(health: Health, now: datetime, policy: GracePolicy) -> Verdict:
    ends = reap_at(health.grace_began_at or now, health.last_receipt_at, policy)
    if now < ends:
        return Verdict(health=health, due_at=ends)
    return _reap(ends)


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
