"""The terms of a sandbox: its rates, fixed when it is created, and what suspends them for now. `find_reached`
says which spending caps it has reached and exactly when, also if that was noticed late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import Connection

from sandboxer.accounts.authority import Authority
from sandboxer.accounts.caps import Caps
from sandboxer.accounts.sums import spent_by
from sandboxer.kernel.values import value_class
from sandboxer.money.amounts import NSATS_PER_SAT, Nsats, Rate, Sats, microseconds
from sandboxer.money.pricing import FREE, RateCard
from sandboxer.money.records import Bucket
from sandboxer.money.segments import day_of


@value_class
class Terms:
    card: RateCard = FREE
    # It is in a slot of its account's tier and runs at rate zero while it occupies that slot.
    is_entitled: bool = False
    # Its disk is kept at rate zero: any rate would pass a spending cap, or a budget that is used up.
    keeps_free: bool = False
    # A spending cap was reached, and its backend has not stopped it yet: it runs at rate zero until then.
    is_capped: bool = False
    # The quote that promised the card; named before the card is known, while it is being created.
    quote_id: str | None = None
    # Its egress has a price, even if its time has none.
    pays_egress: bool = False
    # Of what runs in it, kept beside its disk while it is stopped, and what that costs: as much as disk.
    memory_mb: int = 0
    memory_msats: Rate = 0

    @property
    def is_free(self) -> bool:
        return self.card == FREE and not self.pays_egress


PAYS_NOTHING = Terms()


def to_json(terms: Terms) -> dict[str, object] | None:
    """Convert the terms for the database; None for a sandbox that pays nothing."""
    if terms == PAYS_NOTHING:
        return None
    card = terms.card
    return {
        "running": card.running,
        "frozen": card.frozen,
        "stored": card.stored,
        "entitled": terms.is_entitled,
        "keeps_free": terms.keeps_free,
        "capped": terms.is_capped,
        "quote": terms.quote_id,
        "pays_egress": terms.pays_egress,
        "memory_mb": terms.memory_mb,
        "memory_msats": terms.memory_msats,
    }


def from_json(stored: Mapping[str, Any] | None) -> Terms:
    if stored is None:
        return PAYS_NOTHING
    card = RateCard(running=stored["running"], frozen=stored["frozen"], stored=stored["stored"])
    return Terms(
        card=card,
        is_entitled=bool(stored["entitled"]),
        keeps_free=bool(stored.get("keeps_free", False)),
        is_capped=bool(stored.get("capped", False)),
        quote_id=stored.get("quote"),
        pays_egress=bool(stored.get("pays_egress", False)),
        memory_mb=int(stored.get("memory_mb", 0)),
        memory_msats=int(stored.get("memory_msats", 0)),
    )


_US = timedelta(microseconds=1)
_SPENT_OF = {"per_key_sats": "key", "per_sandbox_sats": "sandbox", "per_day_sats": "today"}


class Spender(Protocol):
    """Something that costs sats and was asked for by a key: a sandbox, a snapshot, a volume."""

    @property
    def id(self) -> str: ...
    @property
    def created_by(self) -> str: ...
    @property
    def created_at(self) -> datetime: ...


@value_class
class Reached:
    """A spending cap, and when it was reached."""

    cap: str
    limit_sats: Sats
    at: datetime


def as_of(bucket: Bucket, now: datetime) -> datetime:
    """Return the moment to check caps for: the end of the day of `look_at`, if that day passed unnoticed."""
    if (look_at := bucket.look_at) is None or look_at > now:
        return now
    return min(now, day_of(look_at) + timedelta(days=1) - _US)


def find_reached(
    conn: Connection,
    authority: Authority,
    spenders: Sequence[Spender],
    now: datetime,
    *,
    first: datetime | None = None,
) -> dict[str, Reached]:
    """Return the first cap that each spender has reached by now, by id.

    With `first`, the day of that moment counts before today, for the spenders that existed then.
    """
    account, caps = authority.account, authority.caps
    look = _Look(conn=conn, account=account.id, caps=caps, as_of=now)
    today, missed = look.find("per_day_sats", since=day_of(now)), None
    if first is not None and first < now:
        missed = replace(look, as_of=first).find("per_day_sats", since=day_of(first))
    of_keys = {
        key: look.find("per_key_sats", key=key, since=account.created_at)
        for key in {spender.created_by for spender in spenders}
    }
    found: dict[str, Reached] = {}
    for spender in spenders:
        own = look.find("per_sandbox_sats", sandbox=spender.id, since=spender.created_at)
        met = [one for one in (today, of_keys[spender.created_by], own) if one is not None]
        if missed is not None and missed.at >= spender.created_at:
            met.append(missed)
        if met:
            found[spender.id] = min(met, key=lambda one: one.at)
    return found


def first_moment(
    spent: Callable[[datetime], Nsats], limit: Nsats, *, since: datetime, until: datetime
) -> datetime:
    """Return the first microsecond at which `limit` was spent, which is not after `until`.

    It searches back in growing steps.
    """
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


@value_class
class _Look:
    """Looks at the caps of one account as of one moment."""

    conn: Connection
    account: str
    caps: Caps
    as_of: datetime

    def find(
        self, name: str, *, since: datetime, key: str = "", sandbox: str | None = None
    ) -> Reached | None:
        if (limit := getattr(self.caps, name)) is None:
            return None
        only = Caps(**{name: limit})

        def spent(moment: datetime) -> Nsats:
            sums = spent_by(self.conn, self.account, only, key=key, now=moment, sandbox=sandbox)
            return int(getattr(sums, _SPENT_OF[name]))

        if spent(self.as_of) < limit * NSATS_PER_SAT:
            return None
        least = min(since, self.as_of)
        at = first_moment(spent, limit * NSATS_PER_SAT, since=least, until=self.as_of)
        return Reached(cap=name, limit_sats=limit, at=at)
