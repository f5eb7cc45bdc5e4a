"""Which of the kept things have met a spending cap of their account, and when the next one will.

What is kept costs little, and for long: without a look nobody would stop it. A day's cap is new at midnight:
days that went by without a look (the server was down) are looked at one by one, the oldest first. The cap of
a single sandbox does not count what is kept of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from sqlalchemy import Connection, func, select

from sandboxer.accounts.authority import Authority, load_authority
from sandboxer.accounts.caps import NO_CAPS, Caps, reached_at
from sandboxer.accounts.sums import rate_by, spent_by
from sandboxer.money.amounts import Rate
from sandboxer.money.buckets import load_bucket
from sandboxer.money.spending import day_of
from sandboxer.money.tables import meters
from sandboxer.observe.events import events
from sandboxer.sandboxes.capping import Reached, find_reached

_US = timedelta(microseconds=1)


class Keeping(Protocol):
    """A snapshot, an image: kept, and paid for by who asked."""

    @property
    def id(self) -> str: ...
    @property
    def account(self) -> str: ...
    @property
    def created_by(self) -> str: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def rate_msats(self) -> Rate: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Capped:
    # By the id of what has met one.
    reached: Mapping[str, Reached] = field(default_factory=dict)
    # When to look again although nothing happened.
    look_at: datetime | None = None
    # No day before this moment has to be looked at again; None: one has, until what it asks for is done.
    seen_until: datetime | None = None


def read_capped(
    conn: Connection, kept: Iterable[Keeping], *, now: datetime, since: datetime | None = None
) -> Capped:
    """As of `now`; of what costs anything. `since`: when somebody looked last, as `seen_until` said."""
    by_account: dict[str, list[Keeping]] = {}
    for one in kept:
        if one.rate_msats:
            by_account.setdefault(one.account, []).append(one)
    reached: dict[str, Reached] = {}
    missed: dict[str, Reached] = {}
    moments: list[datetime] = []
    for account, mine in by_account.items():
        authority = load_authority(conn, account)
        caps = replace(authority.caps, per_sandbox_sats=None)
        if caps != NO_CAPS:
            bound = replace(authority, caps=caps)
            reached |= find_reached(conn, bound, mine, now)
            moments += _moments(conn, bound, mine, now)
            missed |= find_missed(conn, bound, mine, since=since, now=now)
    # What was reached on a day that is over was reached first.
    return Capped(
        reached={**reached, **missed},
        look_at=min(moments, default=None),
        seen_until=since if missed else now,
    )


def find_missed(
    conn: Connection, authority: Authority, mine: Sequence[Keeping], *, since: datetime | None, now: datetime
) -> dict[str, Reached]:
    """The day's cap, where it was reached on a day that is over and what costs went on all the same.

    Nobody looked then: whoever looks stops it, and it begins anew with the next day.
    """
    limit, today = authority.caps.per_day_sats, day_of(now)
    began = {} if limit is None else _running_since(conn, authority.account.id, [one.id for one in mine])
    if not began:
        return {}
    first = since or max(min(began.values()), _capped_since(conn, authority.account.id))
    only, day = replace(authority, caps=Caps(per_day_sats=limit)), day_of(first)
    found: dict[str, Reached] = {}
    while day < today and len(found) < len(began):
        day += timedelta(days=1)
        costly = [one for one in mine if one.id in began and began[one.id] < day and one.id not in found]
        met = find_reached(conn, only, costly, day - _US) if costly else {}
        found |= {id_: replace(one, at=max(one.at, first, began[id_])) for id_, one in met.items()}
    return found


def _running_since(conn: Connection, account: str, ids: Sequence[str]) -> dict[str, datetime]:
    """Of those that are charged for now: since when without a change. A pause is none."""
    since = func.coalesce(meters.c.rated_at, meters.c.began_at).label("since")
    query = select(meters.c.subject, since).where(
        meters.c.owner == account, meters.c.closed_at.is_(None), meters.c.rate_msats > 0
    )
    wanted = set(ids)
    return {row.subject: row.since for row in conn.execute(query) if row.subject in wanted}


def _capped_since(conn: Connection, account: str) -> datetime:
    """Since when its caps are what they are, as far as events tell: earlier days had others."""
    changed = select(func.max(events.c.at)).where(
        events.c.subject == account, events.c.kind == "account.capped"
    )
    oldest = select(func.min(events.c.at))
    found: datetime | None = conn.execute(changed).scalar() or conn.execute(oldest).scalar()
    return found or datetime.min.replace(tzinfo=UTC)


def _moments(
    conn: Connection, authority: Authority, mine: Sequence[Keeping], now: datetime
) -> Iterable[datetime]:
    account, caps = authority.account.id, authority.caps
    if caps.per_day_sats is not None:
        yield day_of(now) + timedelta(days=1)
    flow = load_bucket(conn, account).flow.rate
    for key in {one.created_by for one in mine}:
        spent = spent_by(conn, account, caps, key=key, now=now)
        rate = rate_by(conn, account, key=key)
        moment = reached_at(caps, spent, rate=rate, key_rate=rate, account_rate=flow, now=now)
        if moment is not None and moment > now:
            yield moment
