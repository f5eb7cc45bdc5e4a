"""Spending caps bound what a key, a sandbox or an account per day may spend, whatever the bucket holds.

These are pure checks over sums that the money package gives. Budgets given to children count as spent by the
giver; otherwise a capped key could evade its cap by delegating keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime, timedelta

from sandboxer.kernel.errors import Forbidden, InvalidRequest
from sandboxer.kernel.values import value_class
from sandboxer.money.amounts import MAX_AMOUNT, NSATS_PER_SAT, Nsats, Rate, Sats
from sandboxer.money.segments import day_of


@value_class
class Caps:
    """The caps of an account, in sats. None means no cap, and zero forbids all spending."""

    # For each key of the account in its whole life; for each sandbox in its whole life; for the account from
    # midnight to midnight, UTC.
    per_key_sats: Sats | None = None
    per_sandbox_sats: Sats | None = None
    per_day_sats: Sats | None = None

    def __post_init__(self) -> None:
        for name, value in as_json(self).items():
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_AMOUNT:
                raise InvalidRequest(field=f"caps.{name}", why=f"a cap is between 0 and {MAX_AMOUNT} sats")


@value_class
class Spent:
    """What has been spent so far, in nanosats, so that nothing is lost to rounding."""

    key: Nsats = 0
    sandbox: Nsats = 0
    today: Nsats = 0


def as_json(caps: Caps) -> dict[str, int]:
    return {f.name: value for f in fields(caps) if (value := getattr(caps, f.name)) is not None}


NO_CAPS = Caps()


def from_json(values: Mapping[str, int]) -> Caps:
    if unknown := values.keys() - {f.name for f in fields(Caps)}:
        raise InvalidRequest(field="caps", why=f"no such cap: {', '.join(sorted(unknown))}")
    return Caps(**values)


def attenuate(parent: Caps, wished: Caps) -> Caps:
    """Return a child's caps: the tighter of what it is given and of its parent's own."""
    tighter = {}
    for field in fields(Caps):
        both = [c for c in (getattr(parent, field.name), getattr(wished, field.name)) if c is not None]
        tighter[field.name] = min(both, default=None)
    return Caps(**tighter)


def check(caps: Caps, spent: Spent, *, wanted: Sats) -> None:
    """Raise Forbidden, naming the cap, if spending `wanted` more sats would pass a cap."""
    for name, limit, used in _lines(caps, spent):
        if limit is not None and used + wanted * NSATS_PER_SAT > limit * NSATS_PER_SAT:
            raise Forbidden(
                why=f"the spending cap {name} of {limit} sats would be passed",
                reason="spending_cap",
                cap=name,
                limit_sats=limit,
                spent_sats=_shown(used, limit),
                wanted_sats=wanted,
                hint="Spend less, wait for the next day if it is the daily cap, or have the cap raised.",
            )


def _shown(used: Nsats, limit: Sats) -> Sats:
    """Round up, so that it adds up with what is wanted; but do not show more than a cap that was just met."""
    return used // NSATS_PER_SAT if used >= limit * NSATS_PER_SAT else -(-used // NSATS_PER_SAT)


def left(caps: Caps, spent: Spent) -> Sats | None:
    """Return the whole sats left until the first cap; None: there is no cap."""
    rests = [
        (limit * NSATS_PER_SAT - used) // NSATS_PER_SAT
        for _, limit, used in _lines(caps, spent)
        if limit is not None
    ]
    return max(0, min(rests)) if rests else None


def reached_at(
    caps: Caps,
    spent: Spent,
    *,
    rate: Rate,
    key_rate: Rate | None = None,
    account_rate: Rate | None = None,
    now: datetime,
) -> datetime | None:
    """Return when a sandbox that runs at `rate` reaches its first cap; None: not before the daily cap is
    reset.

    `key_rate` and `account_rate` are what everything of its key and of its account costs per second.
    """
    moments = []
    midnight = day_of(now) + timedelta(days=1)
    flows = {"per_key_sats": key_rate, "per_day_sats": account_rate}
    for name, limit, used in _lines(caps, spent):
        is_daily = name == "per_day_sats"
        shared = flows.get(name)
        flow = rate if shared is None else shared
        if limit is None or flow <= 0:
            continue
        rest = max(0, limit * NSATS_PER_SAT - used)
        # Longer than anything runs, and small enough that the sum is a valid datetime.
        us = min(-(-rest // flow), 10**15)
        moment = now + timedelta(microseconds=us)
        if not is_daily or moment < midnight:
            moments.append(moment)
    return min(moments, default=None)


def _lines(caps: Caps, spent: Spent) -> tuple[tuple[str, Sats | None, Nsats], ...]:
    return (
        ("per_key_sats", caps.per_key_sats, spent.key),
        ("per_sandbox_sats", caps.per_sandbox_sats, spent.sandbox),
        ("per_day_sats", caps.per_day_sats, spent.today),
    )
