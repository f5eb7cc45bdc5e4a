"""What keeping a snapshot costs: its whole size at the stored rate, from the moment it is kept until it goes.

The charge follows the record, in the transaction of every step. The owner and free profiles pay nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sqlalchemy import Connection

from sandboxer.accounts import caps, records
from sandboxer.accounts.authority import load_authority
from sandboxer.accounts.sums import spent_by
from sandboxer.artifacts.snapshots.lifecycle import State
from sandboxer.identity.keys import OWNER_ACCOUNT
from sandboxer.kernel.errors import InsufficientCredit
from sandboxer.money.amounts import Rate, sats_for
from sandboxer.money.buckets import settle_account
from sandboxer.money.holds import HOLDS, HoldPolicy
from sandboxer.money.metering import change_rate, close_meter, find_meter, open_meter
from sandboxer.money.meters import Use
from sandboxer.money.pricing import Pricing, stored_rate

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


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepCharges:
    pricing: Pricing
    holds: HoldPolicy = HOLDS

    def rate(self, account: str, profile: str, size_bytes: int) -> Rate:
        if account == OWNER_ACCOUNT or profile in self.pricing.free_profiles:
            return 0
        return stored_rate(-(-size_bytes // _MB), self.pricing)

    def admit(self, conn: Connection, snapshot: Charged, *, now: datetime) -> None:
        """May one that costs this much be kept? Raises InsufficientCredit, Forbidden (a cap)."""
        rate = self.rate(snapshot.account, snapshot.profile, snapshot.size_bytes)
        if not rate:
            return
        records.ensure(conn, snapshot.account, actor=ACTOR, now=now)
        bucket = settle_account(conn, snapshot.account, now=now)
        least = sats_for(rate, self.holds.least)
        if bucket.available < least:
            raise InsufficientCredit(required=least, available=bucket.available, account=snapshot.account)
        allowed = load_authority(conn, snapshot.account).caps
        spent = spent_by(conn, snapshot.account, allowed, key=snapshot.created_by, now=now)
        caps.check(allowed, spent, wanted=least)

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
            close_meter(conn, name, now=now)

    def end(self, conn: Connection, meter: str, *, now: datetime) -> None:
        """None there is success."""
        if find_meter(conn, meter) is not None:
            close_meter(conn, meter, now=now)
