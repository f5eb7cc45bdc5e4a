"""What the condition of an account's bucket demands of its sandboxes; `loops/credit.py` carries it out.

dry ──> grace ──nobody paid──> reaped          a budget that someone gave has no grace
a spending cap is reached ──────> reaped       at the very moment, found again if we came late
paid ──> back to where it was; reaped for want of sats ──> awake, if it would last a while
a payment was taken back by mistake ──> what that put to sleep wakes, however little there is
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from sandboxer.accounts.authority import Authority, load_authority
from sandboxer.accounts.caps import NO_CAPS, Caps, reached_at
from sandboxer.accounts.entitlements import Entitlement
from sandboxer.accounts.sums import rate_by, spent_by
from sandboxer.kernel.errors import Forbidden, InsufficientCredit, SandboxerError
from sandboxer.kernel.values import value_class
from sandboxer.money.amounts import Sats, sats_for
from sandboxer.money.buckets import frozen, load_bucket, look_again_at
from sandboxer.money.metering import HOLDS
from sandboxer.money.policy import Standing
from sandboxer.money.records import Bucket
from sandboxer.money.segments import day_of
from sandboxer.payments.records import mistakes
from sandboxer.sandboxes.charging import OCCUPYING, due, entitlement_of, is_frozen
from sandboxer.sandboxes.lifecycle import LIVE, Signal, State
from sandboxer.sandboxes.records import Sandbox, load_account
from sandboxer.sandboxes.terms import Reached, as_of, find_reached

SPENDING_CAP = "spending_cap"
_KEPT = frozenset({State.STOPPED, State.REAPED})
# A sandbox is woken only if it can be paid for so long.
_A_MOMENT = timedelta(seconds=1)
# A payment restored longer ago wakes nothing any more.
_REMEMBERED = timedelta(days=7)


@value_class
class Condition:
    """The condition of an account's money at one moment."""

    standing: Standing
    # False for a budget and for an account that earned no grace: it is not charged after `dried_at`.
    has_grace: bool = True
    dried_at: datetime | None = None
    may_act: bool = True
    # The sats available to wake a sandbox, and for how long a woken sandbox must be payable.
    available: Sats = 0
    slice: timedelta = timedelta(0)
    # The times in which a payment was missing that had been taken back by mistake.
    mistakes: tuple[tuple[datetime, datetime], ...] = ()
    entitlement: Entitlement | None = None
    # The cap that each sandbox has reached, by id.
    reached: Mapping[str, Reached] = field(default_factory=dict)
    # When the next cap is reached if nothing changes, or the daily cap is reset.
    look_at: datetime | None = None
    known_look_at: datetime | None = None


@value_class
class Demand:
    signal: Signal
    reason: str
    # When it became true, if the charge ends at that moment.
    at: datetime | None = None
    data: Mapping[str, object] = field(default_factory=dict)


def wanted(sandbox: Sandbox, condition: Condition) -> Demand | None:
    """Return the step that money demands of a sandbox now, or None. Pure.

    An empty bucket does not touch a sandbox at rate zero, unless its egress has a price.
    """
    if sandbox.state not in LIVE:
        return None
    paid_for = due(sandbox)
    sends_for_sats = sandbox.terms.pays_egress and not sandbox.terms.is_entitled
    is_paying = paid_for is not None and (paid_for[1] > 0 or sends_for_sats)
    may_pass_a_cap = is_paying or sandbox.terms.is_capped
    if may_pass_a_cap and (reached := condition.reached.get(sandbox.id)) is not None:
        data = {"cap": reached.cap, "limit_sats": reached.limit_sats}
        return Demand(signal=Signal.CAP_REACHED, reason=SPENDING_CAP, at=reached.at, data=data)
    if sandbox.state is State.GRACE:
        return _out_of_grace(sandbox, condition)
    if condition.standing is Standing.ALIVE or not is_paying:
        return None
    return Demand(signal=Signal.DRY, reason=Signal.DRY.value)


def ended_by_money(sandbox: Sandbox) -> SandboxerError | None:
    """Return the error for callers whose work ended because money ended their sandbox; None otherwise.

    Pure.
    """
    facts = {"sandbox_id": sandbox.id, "state": sandbox.state.value}
    if sandbox.state in LIVE:
        return None
    if sandbox.reason == Signal.GRACE_OVER.value:
        return InsufficientCredit(
            required=sats_for(sandbox.terms.card.running, HOLDS.least),
            available=0,
            reason=sandbox.reason,
            hint="The sats ran out meanwhile, and the sandbox was ended. Add credit, and run it again.",
            **facts,
        )
    if sandbox.reason == SPENDING_CAP:
        return Forbidden(
            why="a spending cap was reached meanwhile, and the sandbox was ended",
            reason=SPENDING_CAP,
            hint="Wait for the next day if it is the daily cap, or have the cap raised; then run it again.",
            **facts,
        )
    return None


def _out_of_grace(sandbox: Sandbox, condition: Condition) -> Demand | None:
    if condition.standing is Standing.REAPED:
        at = None if condition.has_grace else condition.dried_at
        return Demand(signal=Signal.GRACE_OVER, reason=Signal.GRACE_OVER.value, at=at)
    if condition.standing is Standing.ALIVE:
        signal = Signal.PAID_WHILE_FROZEN if is_frozen(sandbox) else Signal.PAID
        return Demand(signal=signal, reason=signal.value)
    return None


def keeps_free(sandbox: Sandbox, condition: Condition) -> tuple[bool, datetime | None]:
    """Return whether its disk is kept at rate zero, because any rate would pass a cap or budget, and from
    when.
    """
    if (reached := condition.reached.get(sandbox.id)) is not None:
        return True, reached.at
    if not condition.has_grace and condition.standing is Standing.REAPED:
        return True, condition.dried_at
    return False, None


def is_kept(sandbox: Sandbox) -> bool:
    return sandbox.state in _KEPT


def to_wake(sandboxes: Iterable[Sandbox], condition: Condition) -> Sandbox | None:
    """Return the oldest sandbox that was reaped for lack of sats, if the bucket can pay it for a slice. Pure.

    With less it is not woken, but its owner can still resume it.
    """
    if condition.standing is not Standing.ALIVE or not condition.may_act:
        return None
    asleep = [one for one in sandboxes if one.state is State.REAPED and one.reason == Signal.GRACE_OVER.value]
    wronged = [one for one in asleep if _is_wronged(one, condition)]
    first = min(wronged or asleep, key=lambda one: (one.created_at, one.id), default=None)
    if first is None:
        return None
    # A sandbox that was reaped by our mistake is woken even if there is little.
    lasts = _A_MOMENT if wronged else condition.slice
    return first if condition.available >= sats_for(first.terms.card.running, lasts) else None


def _is_wronged(sandbox: Sandbox, condition: Condition) -> bool:
    return any(began <= sandbox.state_since <= ended for began, ended in condition.mistakes)


def read_condition(
    conn: Connection, account: str, sandboxes: Sequence[Sandbox], *, now: datetime
) -> Condition:
    """Read the condition as of `now`, with the bucket as last settled."""
    bucket, authority = load_bucket(conn, account), load_authority(conn, account)
    is_capped = authority.caps != NO_CAPS
    return Condition(
        standing=bucket.health.standing,
        has_grace=bucket.died_at is None,
        dried_at=bucket.health.grace_began_at,
        may_act=authority.refused_why is None,
        available=max(0, bucket.available - frozen(conn, account)),
        slice=bucket.reserve,
        mistakes=tuple(mistakes(conn, account, since=now - _REMEMBERED)),
        entitlement=entitlement_of(authority),
        reached=find_reached(conn, authority, sandboxes, now, first=as_of(bucket, now)) if is_capped else {},
        look_at=_next_look(conn, authority, bucket, sandboxes, now) if is_capped else None,
        known_look_at=bucket.look_at,
    )


def plan_look(conn: Connection, account: str, *, now: datetime) -> None:
    """Set the moment at which the bucket timer announces that the next cap is reached.

    The bucket is locked and its sandboxes are read from the store: a sandbox that begins to pay at the same
    time is either seen here, or causes another look.
    """
    load_bucket(conn, account, lock=True)
    there = [one for one in load_account(conn, account, OCCUPYING | _KEPT) if not one.terms.is_free]
    look_at = read_condition(conn, account, there, now=now).look_at
    look_again_at(conn, account, look_at, now=now)


def _next_look(
    conn: Connection, authority: Authority, bucket: Bucket, sandboxes: Sequence[Sandbox], now: datetime
) -> datetime | None:
    caps, account = authority.caps, authority.account.id
    moments = [] if caps.per_day_sats is None else [day_of(now) + timedelta(days=1)]
    keys = {sandbox.created_by for sandbox in sandboxes}
    by_key = {key: spent_by(conn, account, caps, key=key, now=now) for key in keys}
    rates = {key: rate_by(conn, account, key=key) for key in keys}
    for sandbox in sandboxes:
        paid_for, key = due(sandbox), sandbox.created_by
        if paid_for is None or not paid_for[1]:
            continue
        own = spent_by(conn, account, _only_sandbox(caps), key=key, now=now, sandbox=sandbox.id)
        spent = replace(by_key[key], sandbox=own.sandbox)
        moment = reached_at(
            caps, spent, rate=paid_for[1], key_rate=rates[key], account_rate=bucket.flow.rate, now=now
        )
        if moment is not None:
            moments.append(moment)
    return min(moments, default=None)


def _only_sandbox(caps: Caps) -> Caps:
    return Caps(**{f.name: getattr(caps, f.name) for f in fields(Caps) if f.name == "per_sandbox_sats"})
