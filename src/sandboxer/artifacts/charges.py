"""Charges for kept disks: each costs its whole size at the stored rate, from the moment it is kept until it
is gone.

`NOUNS` lists every kind of record in this package that has a disk of its own. A test compares it with the
tables, because a kind that is missing there would be kept without being counted.

`read_capped` says which kept disks have reached a spending cap of their account, and when the next one will.
Kept disks cost little for a long time, so nothing else would notice. A daily cap starts anew at midnight:
days during which the server was down are examined one by one, the oldest first. The cap of a single sandbox
does not include what is kept of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, func, select

from sandboxer.accounts import caps, records, storage
from sandboxer.accounts.authority import Authority, load_authority
from sandboxer.accounts.caps import NO_CAPS, Caps, reached_at
from sandboxer.accounts.storage import STORAGE, StoragePolicy
from sandboxer.accounts.sums import rate_by, spent_by
from sandboxer.artifacts.images.published import records as images
from sandboxer.artifacts.records import MB, PAID, USABLE, KeptRecord, holding
from sandboxer.artifacts.snapshots import records as snapshots
from sandboxer.artifacts.volumes import records as volumes
from sandboxer.identity.keys import OWNER_ACCOUNT
from sandboxer.kernel.values import value_class
from sandboxer.money.amounts import Rate, sats_for
from sandboxer.money.buckets import load_bucket
from sandboxer.money.metering import HOLDS, HoldPolicy, change_rate, close_meter, find_meter, open_meter
from sandboxer.money.policy import Use
from sandboxer.money.pricing import Pricing, stored_rate
from sandboxer.money.segments import day_of
from sandboxer.money.tables import meters
from sandboxer.observe.events import events
from sandboxer.sandboxes.terms import Reached, find_reached
from sandboxer.store.rows import Rows

# Every kind of record in this package that has a disk of its own, by name of its table.
NOUNS: Mapping[str, Rows[Any]] = {
    rows.table.name: rows for rows in (snapshots.rows, images.rows, volumes.rows)
}


def held_mb(conn: Connection, account: str) -> int:
    """Returns how many MB an account keeps, rounded up."""
    return -(-sum(holding(conn, rows, account).size_bytes for rows in NOUNS.values()) // MB)


ACTOR = "system:snapshots"


def meter_id(kept_id: str) -> str:
    return f"meter:{kept_id}"


def _metered(conn: Connection, kept: KeptRecord) -> Rate:
    """Returns the rate that is charged already; a disk that grows needs funds only for its growth."""
    meter = find_meter(conn, meter_id(kept.id))
    is_its = meter is not None and meter.owner == kept.account and meter.closed_at is None
    return meter.rate if meter is not None and is_its else 0


@value_class
class KeepCharges:
    pricing: Pricing
    holds: HoldPolicy = HOLDS
    storage: StoragePolicy = STORAGE

    def is_free(self, account: str, profile: str) -> bool:
        return account == OWNER_ACCOUNT or profile in self.pricing.free_profiles

    def rate(self, account: str, profile: str, size_bytes: int) -> Rate:
        if self.is_free(account, profile):
            return 0
        return stored_rate(-(-size_bytes // MB), self.pricing)

    def admit(self, conn: Connection, kept: KeptRecord, *, now: datetime) -> None:
        """Checks that one of this size may be kept. Raises InsufficientCredit (no deposit), Forbidden (a
        cap).
        """
        account, (profile, size) = kept.account, kept.priced()
        if self.is_free(account, profile):
            return
        rate = self.rate(account, profile, size)
        self.demand_funds(conn, account, more=rate - _metered(conn, kept), size_mb=-(-size // MB), now=now)
        allowed = load_authority(conn, account).caps
        spent = spent_by(conn, account, allowed, key=kept.created_by, now=now)
        caps.check(allowed, spent, wanted=sats_for(rate, self.holds.least))

    def demand_funds(
        self, conn: Connection, account: str, *, more: Rate, size_mb: int, now: datetime
    ) -> None:
        """Checks the funds of an account for something that has no record yet: an archive that is being
        uploaded.
        """
        # Without a free allowance there is no need to count what the account keeps.
        held = held_mb(conn, account) if self.storage.unpaid_mb else 1
        storage.demand_funds(
            conn, account, more=max(0, more), held_mb=held + size_mb, policy=self.storage, now=now
        )

    def apply(
        self,
        conn: Connection,
        after: KeptRecord,
        *,
        now: datetime,
        at: datetime | None = None,
        meter: str | None = None,
    ) -> None:
        """Makes the meter follow the record, as of `at`. `meter` is the meter's id if it is not the usual
        one.
        """
        name = meter or meter_id(after.id)
        found = find_meter(conn, name)
        rate = after.rate_msats if after.state in PAID else 0
        if after.state in USABLE:
            if found is None and rate:
                records.ensure(conn, after.account, actor=ACTOR, now=now)
                open_meter(
                    conn,
                    after.account,
                    id=name,
                    subject=after.id,
                    use=Use.STORED,
                    rate=rate,
                    now=now,
                    step=after.version,
                    key=after.created_by,
                )
            elif found is not None:
                change_rate(conn, name, use=Use.STORED, rate=rate, now=now, at=at, step=after.version)
        elif found is not None:
            close_meter(conn, name, now=now, at=at)

    def end(self, conn: Connection, meter: str, *, now: datetime) -> None:
        """Closes the meter. If there is none, that counts as success."""
        if find_meter(conn, meter) is not None:
            close_meter(conn, meter, now=now)


_US = timedelta(microseconds=1)


@value_class
class Capped:
    # By the id of what has reached a cap.
    reached: Mapping[str, Reached] = field(default_factory=dict)
    # When to look again if nothing happens before.
    look_at: datetime | None = None
    # Days before this moment need no further look. It stays where it was while a missed cap is still being
    # handled.
    seen_until: datetime | None = None


def read_capped(
    conn: Connection, kept: Iterable[KeptRecord], *, now: datetime, since: datetime | None = None
) -> Capped:
    """Returns the caps reached as of `now` by everything that costs something. `since` is the `seen_until` of
    the last look.
    """
    by_account: dict[str, list[KeptRecord]] = {}
    for one in kept:
        if one.rate_msats:
            by_account.setdefault(one.account, []).append(one)
    reached: dict[str, Reached] = {}
    missed: dict[str, Reached] = {}
    moments: list[datetime] = []
    for account, mine in by_account.items():
        authority = load_authority(conn, account)
        if (caps := replace(authority.caps, per_sandbox_sats=None)) != NO_CAPS:
            bound = replace(authority, caps=caps)
            reached |= find_reached(conn, bound, mine, now)
            moments += _moments(conn, bound, mine, now)
            missed |= find_missed(conn, bound, mine, since=since, now=now)
    # A cap that was reached on a past day was reached first.
    return Capped(
        reached={**reached, **missed},
        look_at=min(moments, default=None),
        seen_until=since if missed else now,
    )


def find_missed(
    conn: Connection,
    authority: Authority,
    mine: Sequence[KeptRecord],
    *,
    since: datetime | None,
    now: datetime,
) -> dict[str, Reached]:
    """Finds daily caps that were reached on past days although charging went on.

    Nobody looked then. The charge is stopped as of that day, and begins anew with the next.
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
    """Returns since when each of them is charged without a change of rate. A pause is not a change."""
    since = func.coalesce(meters.c.rated_at, meters.c.began_at).label("since")
    query = select(meters.c.subject, since).where(
        meters.c.owner == account, meters.c.closed_at.is_(None), meters.c.rate_msats > 0
    )
    wanted = set(ids)
    return {row.subject: row.since for row in conn.execute(query) if row.subject in wanted}


def _capped_since(conn: Connection, account: str) -> datetime:
    """Returns since when the account's caps are what they are, as far as events tell; earlier days had other
    caps.
    """
    changed = select(func.max(events.c.at)).where(
        events.c.subject == account, events.c.kind == "account.capped"
    )
    oldest = select(func.min(events.c.at))
    found: datetime | None = conn.execute(changed).scalar() or conn.execute(oldest).scalar()
    return found or datetime.min.replace(tzinfo=UTC)


def _moments(
    conn: Connection, authority: Authority, mine: Sequence[KeptRecord], now: datetime
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
