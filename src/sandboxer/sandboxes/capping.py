"""Which spending caps a sandbox has reached, and when exactly: found again in the meters if we came late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from sandboxer.accounts.authority import Authority
from sandboxer.accounts.caps import Caps, day_of
from sandboxer.accounts.sums import spent_by
from sandboxer.money.amounts import NSATS_PER_SAT, Nsats, Sats, microseconds
from sandboxer.money.buckets import Bucket
from sandboxer.sandboxes.records import Sandbox

_US = timedelta(microseconds=1)
_SPENT_OF = {"per_key_sats": "key", "per_sandbox_sats": "sandbox", "per_day_sats": "today"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A spending cap, and when it was reached."""

    cap: str
    limit_sats: Sats
    at: datetime


def as_of(bucket: Bucket, now: datetime) -> datetime:
    """If a cap's moment passed on a day that is over (nobody was here), that day counts first."""
    look_at = bucket.look_at
    if look_at is None or look_at > now:
        return now
    return min(now, day_of(look_at) + timedelta(days=1) - _US)


def find_reached(
    conn: Connection, authority: Authority, sandboxes: Sequence[Sandbox], moment: datetime
) -> dict[str, Reached]:
    """The first cap that each had reached by this moment, by id."""
    account, caps = authority.account, authority.caps
    found: dict[str, Reached] = {}
    of_account = [
        _find(conn, account.id, caps, name, None, since=since, as_of=moment)
        for name, since in (("per_key_sats", account.created_at), ("per_day_sats", day_of(moment)))
    ]
    for sandbox in sandboxes:
        own = _find(
            conn, account.id, caps, "per_sandbox_sats", sandbox.id, since=sandbox.created_at, as_of=moment
        )
        met = [one for one in (*of_account, own) if one is not None]
        if met:
            found[sandbox.id] = min(met, key=lambda one: one.at)
    return found


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
