"""What an account's money demands of its sandboxes: read in one go, then decided; `loops/purse.py` acts.

dry ──> grace ──nobody paid──> reaped          a budget that someone gave has no grace
a spending cap is reached ──────> reaped       at the very moment, found again if we came late
paid ──> back to where it was; reaped for want of sats ──> awake, if it would last a while
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta

from sqlalchemy import Connection

from sandboxer.accounts.authority import Authority, load_authority
from sandboxer.accounts.caps import NO_CAPS, Caps, Spent, day_of, reached_at
from sandboxer.accounts.entitlements import Entitlement
from sandboxer.accounts.sums import spent_by
from sandboxer.money.amounts import NSATS_PER_SAT, Nsats, Sats, microseconds, sats_for
from sandboxer.money.buckets import Bucket, load_bucket
from sandboxer.money.dryness import Standing
from sandboxer.sandboxes.charging import due, entitlement_of, is_frozen
from sandboxer.sandboxes.lifecycle import LIVE, Signal, State
from sandboxer.sandboxes.records import Sandbox

_KEPT = frozenset({State.STOPPED, State.REAPED})
_US = timedelta(microseconds=1)
_SPENT_OF = {"per_key_sats": "key", "per_sandbox_sats": "sandbox", "per_day_sats": "today"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A spending cap, and when it was reached."""

    cap: str
    limit_sats: Sats
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Of an account, at one moment."""

    standing: Standing
    # False: a budget that someone gave. It ran dry at `dried_at`, and nothing may be charged after that.
    has_grace: bool = True
    dried_at: datetime | None = None
    may_act: bool = True
    # Free for a wake, beside what runs; how long a wake must last.
    available: Sats = 0
    slice: timedelta = timedelta(0)
    entitlement: Entitlement | None = None
    # The cap that each sandbox has reached, by id.
    reached: Mapping[str, Reached] = field(default_factory=dict)
    # When the next cap will be reached if nothing happens, or the day's caps are new.
    look_at: datetime | None = None
    known_look_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    signal: Signal
    reason: str
    # When it became true, if the charge ends there.
    at: datetime | None = None
    data: Mapping[str, object] = field(default_factory=dict)


def wanted(sandbox: Sandbox, condition: Condition) -> Demand | None:
    """The step that money demands of it now. Pure. One at rate zero is not touched by an empty bucket."""
    if sandbox.state not in LIVE:
        return None
    paid_for = due(sandbox)
    is_paying = paid_for is not None and paid_for[1] > 0
    if is_paying and (reached := condition.reached.get(sandbox.id)) is not None:
        data = {"cap": reached.cap, "limit_sats": reached.limit_sats}
        return Demand(signal=Signal.CAP_REACHED, reason="spending_cap", at=reached.at, data=data)
    if sandbox.state is State.GRACE:
        return _out_of_grace(sandbox, condition)
    if condition.standing is Standing.ALIVE or not is_paying:
        return None
    return Demand(signal=Signal.DRY, reason=Signal.DRY.value)


def _out_of_grace(sandbox: Sandbox, condition: Condition) -> Demand | None:
    if condition.standing is Standing.REAPED:
        at = None if condition.has_grace else condition.dried_at
        return Demand(signal=Signal.GRACE_OVER, reason=Signal.GRACE_OVER.value, at=at)
    if condition.standing is Standing.ALIVE:
        signal = Signal.PAID_WHILE_FROZEN if is_frozen(sandbox) else Signal.PAID
        return Demand(signal=signal, reason=signal.value)
    return None


def keeps_free(sandbox: Sandbox, condition: Condition) -> tuple[bool, datetime | None]:
    """Whether its disk is kept at rate zero, as a rate would pass a cap or a budget; and from when. Pure."""
    reached = condition.reached.get(sandbox.id)
    if reached is not None:
        return True, reached.at
    if not condition.has_grace and condition.standing is Standing.REAPED:
        return True, condition.dried_at
    return False, None


def is_kept(sandbox: Sandbox) -> bool:
    return sandbox.state in _KEPT


def to_wake(sandboxes: Iterable[Sandbox], condition: Condition) -> Sandbox | None:
    """The oldest that was reaped for want of sats, if the bucket would carry it for a slice. Pure.

    With less, waking would be a waste: whoever wants it awake for a moment can still resume it.
    """
    if condition.standing is not Standing.ALIVE or not condition.may_act:
        return None
    asleep = [one for one in sandboxes if one.state is State.REAPED and one.reason == Signal.GRACE_OVER.value]
    first = min(asleep, key=lambda one: (one.created_at, one.id), default=None)
    if first is None or condition.available < sats_for(first.terms.card.running, condition.slice):
        return None
    return first


def read_condition(
    conn: Connection, account: str, sandboxes: Sequence[Sandbox], *, now: datetime
) -> Condition:
    """As of `now`; the bucket as last settled."""
    bucket, authority = load_bucket(conn, account), load_authority(conn, account)
    is_capped = authority.caps != NO_CAPS
    return Condition(
        standing=bucket.health.standing,
        has_grace=bool(bucket.grace.window),
        dried_at=bucket.health.grace_began_at,
        may_act=authority.refused_why is None,
        available=bucket.available,
        slice=bucket.reserve,
        entitlement=entitlement_of(authority),
        reached=_reached(conn, authority, sandboxes, _as_of(bucket, now)) if is_capped else {},
        look_at=_next_look(conn, authority, bucket, sandboxes, now) if is_capped else None,
        known_look_at=bucket.look_at,
    )


def first_moment(
    spent: Callable[[datetime], Nsats], limit: Nsats, *, since: datetime, until: datetime
) -> datetime:
    """The first microsecond at which so much was spent; it was by `until`. Looks back in growing steps."""
    step, high = timedelta(seconds=1), until
    low = max(since, high - step)
    while low > since and spent(low) >= limit:
        high, step = low, step * 4
        low = max(since, high - step)
    while low < high:
        middle = low + (microseconds(high - low) // 2) * _US
        if spent(middle) >= limit:
            high = middle
        else:
            low = middle + _US
    return high


def _as_of(bucket: Bucket, now: datetime) -> datetime:
    """If a cap's moment passed on a day that is over (nobody was here), that day counts first."""
    look_at = bucket.look_at
    if look_at is None or look_at > now:
        return now
    return min(now, day_of(look_at) + timedelta(days=1) - _US)


def _reached(
    conn: Connection, authority: Authority, sandboxes: Sequence[Sandbox], as_of: datetime
) -> dict[str, Reached]:
    account, caps = authority.account, authority.caps
    found: dict[str, Reached] = {}
    of_account = [
        _find(conn, account.id, caps, name, None, since=since, as_of=as_of)
        for name, since in (("per_key_sats", account.created_at), ("per_day_sats", day_of(as_of)))
    ]
    for sandbox in sandboxes:
        own = _find(
            conn, account.id, caps, "per_sandbox_sats", sandbox.id, since=sandbox.created_at, as_of=as_of
        )
        met = [one for one in (*of_account, own) if one is not None]
        if met:
            found[sandbox.id] = min(met, key=lambda one: one.at)
    return found


def _find(
    conn: Connection,
    account: str,
    caps: Caps,
    name: str,
    sandbox: str | None,
    *,
    since: datetime,
    as_of: datetime,
) -> Reached | None:
    limit = getattr(caps, name)
    if limit is None:
        return None
    only = Caps(**{name: limit})

    def spent(moment: datetime) -> Nsats:
        sums = spent_by(conn, account, only, now=moment, sandbox=sandbox)
        return int(getattr(sums, _SPENT_OF[name]))

    if spent(as_of) < limit * NSATS_PER_SAT:
        return None
    at = first_moment(spent, limit * NSATS_PER_SAT, since=min(since, as_of), until=as_of)
    return Reached(cap=name, limit_sats=limit, at=at)


def _next_look(
    conn: Connection, authority: Authority, bucket: Bucket, sandboxes: Sequence[Sandbox], now: datetime
) -> datetime | None:
    caps, account = authority.caps, authority.account.id
    moments = [] if caps.per_day_sats is None else [day_of(now) + timedelta(days=1)]
    shared = spent_by(conn, account, caps, now=now)
    for sandbox in sandboxes:
        paid_for = due(sandbox)
        if paid_for is None or not paid_for[1]:
            continue
        own = spent_by(conn, account, _only_sandbox(caps), now=now, sandbox=sandbox.id)
        spent = Spent(key=shared.key, sandbox=own.sandbox, today=shared.today)
        moment = reached_at(caps, spent, rate=paid_for[1], account_rate=bucket.flow.rate, now=now)
        if moment is not None:
            moments.append(moment)
    return min(moments, default=None)


def _only_sandbox(caps: Caps) -> Caps:
    return Caps(**{f.name: getattr(caps, f.name) for f in fields(Caps) if f.name == "per_sandbox_sats"})
