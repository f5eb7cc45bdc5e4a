"""What keeping a disk costs: its whole size at the stored rate, from the moment it is kept until it goes; and
all that an account keeps. Every noun of this package that has a disk of its own is named here: a test
compares the list with the tables, since what is not on it would be kept without anybody's counting it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sqlalchemy import Connection

from sandboxer.accounts import caps, records, storage
from sandboxer.accounts.authority import load_authority
from sandboxer.accounts.storage import STORAGE, StoragePolicy
from sandboxer.accounts.sums import spent_by
from sandboxer.artifacts.images.published import records as images
from sandboxer.artifacts.snapshots import records as snapshots
from sandboxer.artifacts.snapshots.lifecycle import State
from sandboxer.artifacts.volumes import records as volumes
from sandboxer.identity.keys import OWNER_ACCOUNT
from sandboxer.money.amounts import Rate, sats_for
from sandboxer.money.holds import HOLDS, HoldPolicy
from sandboxer.money.metering import change_rate, close_meter, find_meter, open_meter
from sandboxer.money.meters import Use
from sandboxer.money.pricing import Pricing, stored_rate

# By its table: how many bytes an account keeps in it.
NOUNS: Mapping[str, Callable[[Connection, str], int]] = {
    snapshots.snapshots.name: lambda conn, account: snapshots.holding(conn, account).size_bytes,
    images.published_images.name: lambda conn, account: images.holding(conn, account).size_bytes,
    volumes.volumes.name: lambda conn, account: volumes.held_by(conn, account).size_mb * _MB,
}


def held_mb(conn: Connection, account: str) -> int:
    """Rounded up."""
    return -(-sum(held(conn, account) for held in NOUNS.values()) // _MB)


ACTOR = "system:snapshots"
_MB = 1 << 20


class Charged(Protocol):
    """Anything that is kept and paid for by its size: a snapshot, an image."""

    @property
    def id(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def account(self) -> str: ...
    @property
    def created_by(self) -> str: ...
    @property
    def profile(self) -> str: ...
    @property
    def state(self) -> State: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def rate_msats(self) -> Rate: ...


def meter_id(snapshot_id: str) -> str:
    return f"meter:{snapshot_id}"


def _metered(conn: Connection, kept: Charged) -> Rate:
    """What it is charged already: one that grows is asked for what it grows by."""
    meter = find_meter(conn, meter_id(kept.id))
    is_its = meter is not None and meter.owner == kept.account and meter.closed_at is None
    return meter.rate if meter is not None and is_its else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepCharges:
    pricing: Pricing
    holds: HoldPolicy = HOLDS
    storage: StoragePolicy = STORAGE

    def is_free(self, account: str, profile: str) -> bool:
        return account == OWNER_ACCOUNT or profile in self.pricing.free_profiles

    def rate(self, account: str, profile: str, size_bytes: int) -> Rate:
        if self.is_free(account, profile):
            return 0
        return stored_rate(-(-size_bytes // _MB), self.pricing)

    def admit(self, conn: Connection, snapshot: Charged, *, now: datetime) -> None:
        """May one of this size be kept? Raises InsufficientCredit (no deposit), Forbidden (a cap)."""
        account, size = snapshot.account, snapshot.size_bytes
        if self.is_free(account, snapshot.profile):
            return
        rate = self.rate(account, snapshot.profile, size)
        self.demand_funds(
            conn, account, more=rate - _metered(conn, snapshot), size_mb=-(-size // _MB), now=now
        )
        allowed = load_authority(conn, account).caps
        spent = spent_by(conn, account, allowed, key=snapshot.created_by, now=now)
        caps.check(allowed, spent, wanted=sats_for(rate, self.holds.least))

    def demand_funds(
        self, conn: Connection, account: str, *, more: Rate, size_mb: int, now: datetime
    ) -> None:
        """The door itself, for whatever is not yet a record: an archive on its way in."""
        # Nobody has to be counted where nobody may keep anything for nothing.
        held = held_mb(conn, account) if self.storage.unpaid_mb else 1
        storage.demand_funds(
            conn, account, more=max(0, more), held_mb=held + size_mb, policy=self.storage, now=now
        )

    def apply(
        self,
        conn: Connection,
        after: Charged,
        *,
        now: datetime,
        at: datetime | None = None,
        meter: str | None = None,
    ) -> None:
        """Let the meter follow the record, as of `at`; `meter` is its id, where that is not the usual one."""
        name = meter or meter_id(after.id)
        found = find_meter(conn, name)
        rate = after.rate_msats if after.state is State.KEPT else 0
        if after.state in (State.KEPT, State.UNPAID):
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
        """None there is success."""
        if find_meter(conn, meter) is not None:
            close_meter(conn, meter, now=now)
