"""Which of the kept things have met a spending cap of their account, and when the next one will.

What is kept costs little, and for long: without a look nobody would stop it. A day's cap is looked at on the
day itself; the cap of a single sandbox does not count what is kept of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

from sqlalchemy import Connection

from sandboxer.accounts.authority import Authority, load_authority
from sandboxer.accounts.caps import NO_CAPS, reached_at
from sandboxer.accounts.sums import spent_by
from sandboxer.money.amounts import Rate
from sandboxer.money.buckets import load_bucket
from sandboxer.money.spending import day_of, rate_of
from sandboxer.sandboxes.capping import Reached, find_reached


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


def read_capped(conn: Connection, kept: Iterable[Keeping], *, now: datetime) -> Capped:
    """As of `now`; of what costs anything."""
    by_account: dict[str, list[Keeping]] = {}
    for one in kept:
        if one.rate_msats:
            by_account.setdefault(one.account, []).append(one)
    reached: dict[str, Reached] = {}
    moments: list[datetime] = []
    for account, mine in by_account.items():
        authority = load_authority(conn, account)
        caps = replace(authority.caps, per_sandbox_sats=None)
        if caps != NO_CAPS:
            bound = replace(authority, caps=caps)
            reached |= find_reached(conn, bound, mine, now)
            moments += _moments(conn, bound, mine, now)
    return Capped(reached=reached, look_at=min(moments, default=None))


def _moments(
    conn: Connection, authority: Authority, mine: Sequence[Keeping], now: datetime
) -> Iterable[datetime]:
    account, caps = authority.account.id, authority.caps
    if caps.per_day_sats is not None:
        yield day_of(now) + timedelta(days=1)
    flow = load_bucket(conn, account).flow.rate
    for key in {one.created_by for one in mine}:
        spent = spent_by(conn, account, caps, key=key, now=now)
        rate = rate_of(conn, account, key)
        moment = reached_at(caps, spent, rate=rate, key_rate=rate, account_rate=flow, now=now)
        if moment is not None and moment > now:
            yield moment
