"""Spending caps: per key, per sandbox and per day. Pure checks over sums that the money package gives.

A cap bounds what may be spent, whatever the bucket holds. Budgets given to children count as spent by the
giver, or a capped key could pass its cap by cutting children.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta

from sandboxer.kernel.errors import Forbidden, InvalidRequest
from sandboxer.money.amounts import MAX_AMOUNT, NSATS_PER_SAT, Nsats, Rate, Sats
from sandboxer.money.spending import day_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """In sats; None: no cap. Zero forbids all spending."""

    # In the whole life of one key (each key of the account by itself), of one sandbox; of the whole account
    # from midnight to midnight, UTC.
    per_key_sats: Sats | None = None
    per_sandbox_sats: Sats | None = None
    per_day_sats: Sats | None = None

    def __post_init__(self) -> None:
        for name, value in as_json(self).items():
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_AMOUNT:
                raise InvalidRequest(field=f"caps.{name}", why=f"a cap is between 0 and {MAX_AMOUNT} sats")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What has been spent so far, in nanosats so that nothing is lost to rounding."""

    key: Nsats = 0
    sandbox: Nsats = 0
    today: Nsats = 0


def as_json(caps: Caps) -> dict[str, int]:
    return {f.name: value for f in fields(caps) if (value := getattr(caps, f.name)) is not None}


NO_CAPS = Caps()


def from_json(values: Mapping[str, int]) -> Caps:
    unknown = values.keys() - {f.name for f in fields(Caps)}
    if unknown:
        raise InvalidRequest(field="caps", why=f"no such cap: {', '.join(sorted(unknown))}")
    return Caps(**values)


def attenuate(parent: Caps, wished: Caps) -> Caps:
    """A child's caps: the tighter of what it is given and what its parent is bound by."""
    tighter = {}
    for field in fields(Caps):
        both = [c for c in (getattr(parent, field.name), getattr(wished, field.name)) if c is not None]
        tighter[field.name] = min(both, default=None)
    return Caps(**tighter)


def check(caps: Caps, spent: Spent, *, wanted: Sats) -> None:
    """May so many more sats be spent? Raises Forbidden with the cap that stands in the way."""
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
    """Rounded up, so that it adds up with what is wanted; but a cap that was just met was not passed."""
    return used // NSATS_PER_SAT if used >= limit * NSATS_PER_SAT else -(-used // NSATS_PER_SAT)


def left(caps: Caps, spent: Spent) -> Sats | None:
    """Whole sats until the first cap; None: no cap."""
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
    """When a sandbox that runs at `rate` meets its first cap; None: not before the day's cap is new.

    `key_rate` and `account_rate` are what all of its key and of its account spends per second.
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
        # Far beyond anything that lives; keeps the sum away from datetime's edge.
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
