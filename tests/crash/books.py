"""What must be true of the books, and of what they are about, whatever happened to the server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, pairwise
from typing import TypeVar

from sqlalchemy import Connection, select

from sandboxer.accounts import audit
from sandboxer.artifacts.images.published import records as images
from sandboxer.artifacts.snapshots import records as snapshots
from sandboxer.artifacts.volumes import records as volumes
from sandboxer.money.policy import Use
from sandboxer.money.records import debt_id
from sandboxer.money.segments import used_us
from sandboxer.money.tables import (
    ledger_accounts,
    ledger_pendings,
    ledger_transfers,
    meter_segments,
    meters,
    money_buckets,
)
from sandboxer.money.verification import verify
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.records import sandboxes
from sandboxer.store.engine import open_store
from tests.crash.audit import EMPTY, UNSETTLED
from tests.crash.lasting_host import Held

T = TypeVar("T")


@dataclass(frozen=True)
class Charged:
    """Of one sandbox."""

    # The end of the last time that counts, for sats or for nothing, and was not given back; None: none does.
    until: datetime | None
    # What it is charged for now, and what it is said to be used for.
    rate_msats: int
    uses: frozenset[Use]


def read(database: str, look: Callable[[Connection], T]) -> T:
    async def once() -> T:
        store = open_store(database, patience=None)
        try:
            return await store.read(look)
        finally:
            await store.close()

    return asyncio.run(once())


def faults(conn: Connection, answered: Iterable[str]) -> list[str]:
    """As `ledger verify` and `audit verify` find them; and money that somebody was told of is there."""
    proof, chain = verify(conn), audit.verify(conn)
    found = [*proof.faults, *([] if chain.is_whole else [f"audit: {chain.why} at {chain.broken_at}"])]
    there = set(conn.execute(select(ledger_transfers.c.id)).scalars())
    return found + [
        f"{id_} was answered for, and is not in the ledger" for id_ in answered if id_ not in there
    ]


def orphans(conn: Connection, held: Held) -> list[str]:
    """Records, disks and meters that do not belong together, once a start has settled everything."""
    states = {row.id: State(row.state) for row in conn.execute(select(sandboxes.c.id, sandboxes.c.state))}
    found = [f"{id_} is still {state}" for id_, state in states.items() if state in UNSETTLED]
    living = {id_ for id_, state in states.items() if state not in EMPTY}
    kept = {one.id for one in snapshots.rows.living(conn)} | {one.id for one in images.rows.living(conn)}
    stored = {one.id for one in volumes.rows.living(conn)}
    for recorded, there in ((living, held.boxes), (kept, held.kept), (stored, held.volumes.disks)):
        found += [f"{id_} is on the host without a reason" for id_ in there.keys() - recorded]
        found += [f"{id_} is not on the host" for id_ in recorded - there.keys()]
    runs = select(meters.c.subject).where(meters.c.closed_at.is_(None), meters.c.rate_msats != 0)
    metered = conn.execute(runs).scalars()
    found += [f"{id_} is metered and is no more" for id_ in set(metered) - living - kept - stored]
    pending = conn.execute(select(ledger_pendings.c.id)).scalars()
    return found + [f"{id_} is still held" for id_ in pending]


def charged(conn: Connection, sandbox_id: str) -> Charged:
    segments = conn.execute(select(meter_segments).where(meter_segments.c.subject == sandbox_id)).all()
    changes = Counter[datetime]()
    for one in segments:
        sign = -1 if used_us(one.id, one.began_at, one.ended_at) < 0 else 1
        changes[one.began_at] += sign
        changes[one.ended_at] -= sign
    moments, counts = sorted(changes), accumulate(changes[one] for one in sorted(changes))
    ends = [ended for count, (_, ended) in zip(counts, pairwise(moments), strict=False) if count > 0]
    open_ones = select(meters).where(meters.c.subject == sandbox_id, meters.c.closed_at.is_(None))
    running = conn.execute(open_ones).all()
    uses = frozenset(Use(one.kind) for one in running) - {Use.NOTHING}
    return Charged(max(ends, default=None), sum(one.rate_msats for one in running), uses)


def debts(conn: Connection) -> int:
    """Of all customers together, in sats."""
    query = select(ledger_accounts.c.debits_posted - ledger_accounts.c.credits_posted).where(
        ledger_accounts.c.id.startswith(debt_id(""))
    )
    return sum(conn.execute(query).scalars())


@dataclass(frozen=True)
class Flow:
    """Of all customers together."""

    debt_sats: int
    # What may still become a debt of the time up to `moment`: nobody has settled it yet.
    unsettled_sats: float
    sats_per_s: float


def flow(conn: Connection, moment: datetime) -> Flow:
    unsettled = rates = 0.0
    for row in conn.execute(select(money_buckets).where(money_buckets.c.rate_msats > 0)):
        rate = row.rate_msats / 1000
        rates += rate
        unsettled += rate * max(0.0, (moment - row.settled_at).total_seconds())
    return Flow(debts(conn), unsettled, rates)
