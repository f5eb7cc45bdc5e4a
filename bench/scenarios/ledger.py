"""Ledger transfers against bare single-row commits of the same driver, every commit flushed to the disk; and
100,000 live meters under the one timer.

    python -m bench.scenarios.ledger [--transfers 1000000] [--quick] [--no-postgres]

Rounds of bare commits and transfers alternate, so that other load on the disk hits both alike. Bare commits
are one INSERT of one short row by the driver alone. What is to be written is made up before the clock starts.

- One caller: transfers are one ledger transaction each, one after another in one thread, as bare ones are.
  Nobody else writes meanwhile: on SQLite that would throw away all that a connection remembers.
- Sixteen callers: transfers through the store, whose writer commits those that wait together. On PostgreSQL
  the bare commits come from sixteen connections at once, too. SQLite lets one write at a time, and sixteen
  connections only get in each other's way (shown below the table), so there the bare ones are again one
  after another: the faster way.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console
from sqlalchemy import Connection, func, insert, select

from bench import commits
from bench.commits import Bare
from bench.measurements import Bar, Report, Row, Samples, Skipped
from bench.platform import own_folder
from bench.report import machine_facts, print_table
from sandboxer.kernel.clock import SystemClock
from sandboxer.money import ledger as door
from sandboxer.money.buckets import credit, open_bucket
from sandboxer.money.ledger import EXTERNAL, INCOME, open_account, open_platform_accounts, post_transfer
from sandboxer.money.metering import open_meter
from sandboxer.money.policy import Use
from sandboxer.money.reconciler import BucketTimer
from sandboxer.money.tables import ledger_accounts, meters, money_buckets
from sandboxer.money.transfers import AccountKind, Transfer
from sandboxer.money.verification import verify
from sandboxer.observe.events import events
from sandboxer.store.databases import begin, commit
from sandboxer.store.engine import Store, open_store
from tests.support.postgres import DURABLE, running_postgres, why_no_postgres

BUCKETS = 10_000
METERS = 100_000
# Short rounds: the disk's mood changes within a second.
A_ROUND = 40
CALLERS = 16
A_CROWD = 160
HISTORY, QUICK_HISTORY = 1_000_000, 20_000
_numbers = itertools.count(1)
BAR = Bar(text="≥ 0.5 × bare single-row commits, fsync on", limit=0.5, at_least=True)


def ledger(
    folder: Path, rounds: int, *, history: int, with_postgres: bool = True
) -> Iterator[Row | Samples | Skipped]:
    yield from asyncio.run(_on_sqlite(folder, rounds, history))
    why_not = why_no_postgres()
    if with_postgres and why_not is None:
        # On the disk where a platform would live.
        with running_postgres(DURABLE, within="/var/lib") as url:
            yield from asyncio.run(_on_postgres(url, rounds, history))
    elif with_postgres:
        yield Skipped("PostgreSQL: transfers", str(why_not))
    yield from asyncio.run(_live_meters(folder))


async def _on_sqlite(folder: Path, rounds: int, history: int) -> list[Row | Samples]:
    with commits.sqlite(folder / "bare.db", CALLERS) as bare:
        return await _measure("SQLite", f"sqlite:///{folder}/ledger.db", bare, rounds, history)


async def _on_postgres(url: str, rounds: int, history: int) -> list[Row | Samples]:
    with commits.postgres(url, CALLERS) as bare:
        return await _measure("PostgreSQL", url, bare, rounds, history)


async def _measure(name: str, url: str, bare: Bare, rounds: int, history: int) -> list[Row | Samples]:
    store = open_store(url, durability="full")
    try:
        await store.write(_open_accounts)
        found = await _compare(f"{name}: transfers", store, bare, rounds, _spread)
        found += await _compare(f"{name}: transfers into one hot account", store, bare, rounds, _hot)
        took = await _grow(store, history)
        found += await _compare(
            f"{name}: into one hot account after {history:,} more", store, bare, rounds, _hot
        )
        start = time.perf_counter()
        proof = await store.read(verify)
        if not proof.is_whole:
            raise RuntimeError(f"the ledger is not whole: {proof.faults}")
        spent = time.perf_counter() - start
        found.append(Samples(f"{name}: verify {proof.transfers:,} transfers", "s", (spent,)))
        found.append(Samples(f"{name}: transfers, 1,000 to a transaction", "/s", (history / took,)))
        return found
    finally:
        await store.close()


def _open_accounts(conn: Connection) -> None:
    now = datetime.now(UTC)
    open_platform_accounts(conn, now=now)
    for number in range(BUCKETS):
        id = f"bucket:acc_{number}"
        open_account(conn, id=id, kind=AccountKind.BUCKET, owner=f"acc_{number}", now=now)
        post_transfer(conn, _transfer(EXTERNAL, id, 1_000_000))


def _spread(number: int) -> Transfer:
    """From one of many buckets to another."""
    debit = number * 7919 % BUCKETS
    return _transfer(f"bucket:acc_{debit}", f"bucket:acc_{(debit + 1 + number % 97) % BUCKETS}", 1)


def _hot(number: int) -> Transfer:
    """From one of many buckets into the platform's income."""
    return _transfer(f"bucket:acc_{number * 7919 % BUCKETS}", INCOME, 1)


def _transfer(debit: str, credit: str, amount: int) -> Transfer:
    number = next(_numbers)
    # Ids as callers choose them: in no order.
    id = f"{number * 2_654_435_761 % 2**32:08x}-{number}"
    return Transfer(
        id=id,
        debit=debit,
        credit=credit,
        amount=amount,
        kind="bench",
        reason="measured",
        at=datetime.now(UTC),
    )


async def _compare(
    figure: str, store: Store, bare: Bare, rounds: int, make: Callable[[int], Transfer]
) -> list[Row | Samples]:
    speeds: dict[str, list[float]] = defaultdict(list)
    # One for all rounds, as the bare one is: a new connection knows neither pages nor statements.
    with store.database.writing.connect() as conn:
        for _ in range(rounds):
            speeds["bare"].append(bare.one_caller(A_ROUND))
            speeds["ours"].append(_in_one_thread(conn, make))
    for _ in range(rounds):
        speeds["bare, all"].append(bare.all_callers(A_CROWD))
        speeds["ours, all"].append(await _through_the_store(store, make))
        if not bare.is_shared_well:
            speeds["bare, in turn"].append(bare.one_caller(A_ROUND))

    def samples(key: str, name: str) -> Samples:
        return Samples(name, "/s", tuple(speeds[key]))

    together = samples("bare, all", f"{figure}: bare commits of {CALLERS} callers")
    rival = together if bare.is_shared_well else samples("bare, in turn", "bare commits, one after another")
    return [
        Row(
            figure=figure, subject=samples("ours", "ours"), baseline=samples("bare", "bare commits"), bar=BAR
        ),
        Row(
            figure=f"{figure}, {CALLERS} callers",
            subject=samples("ours, all", "ours"),
            baseline=rival,
            bar=BAR,
        ),
        *([] if bare.is_shared_well else [together]),
    ]


def _in_one_thread(conn: Connection, make: Callable[[int], Transfer]) -> float:
    transfers = [make(next(_numbers)) for _ in range(A_ROUND)]
    start = time.perf_counter()
    for transfer in transfers:
        begin(conn)
        post_transfer(conn, transfer)
        commit(conn)
    return A_ROUND / (time.perf_counter() - start)


async def _through_the_store(store: Store, make: Callable[[int], Transfer]) -> float:
    each = A_CROWD // CALLERS
    shares = [[make(next(_numbers)) for _ in range(each)] for _ in range(CALLERS)]
    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for share in shares:
            group.create_task(_call(store, share))
    return A_CROWD / (time.perf_counter() - start)


async def _call(store: Store, transfers: list[Transfer]) -> None:
    for transfer in transfers:
        await store.write(lambda conn, transfer=transfer: post_transfer(conn, transfer))  # type: ignore[misc]


async def _grow(store: Store, count: int) -> float:
    """A long history, made through the same door, many to a transaction. Seconds it took."""
    start = time.perf_counter()
    for first in range(0, count, 1000):

        def thousand(conn: Connection, first: int = first) -> None:
            transfers = [_spread(number) for number in range(first, first + 1000)]
            if conn.dialect.name == "postgresql":
                _post_without_waiting(conn, transfers)
            else:
                for transfer in transfers:
                    post_transfer(conn, transfer)

        await store.write(thousand)
    return time.perf_counter() - start


def _post_without_waiting(conn: Connection, transfers: list[Transfer]) -> None:
    """The door's own statement, all of them sent before the first answer is read: else it takes an hour.

    Nobody looks at the answers here; `verify` tells afterwards whether each was moved and kept.
    """
    driver: Any = conn.connection.dbapi_connection
    rows = [(*door._row(transfer, *transfer.sealed()), transfer.amount, 0) for transfer in transfers]
    psycopg.RawCursor(driver).executemany(door._POSTGRES_MOVE_AND_KEEP, rows)


async def _live_meters(folder: Path) -> list[Row | Samples]:
    store = open_store(f"sqlite:///{folder}/meters.db")
    try:
        await store.write(lambda conn: live_meters(conn, METERS, datetime.now(UTC)))
        share, late_ms = await _watch(store)
    finally:
        await store.close()
    return [
        Row(
            figure=f"{METERS:,} live meters",
            subject=Samples("CPU", "%", (100 * share,)),
            baseline=None,
            bar=Bar(text="< 1 % CPU", limit=1.0),
        ),
        Row(
            figure="next expiry is late by",
            subject=Samples("late", "ms", tuple(late_ms)),
            baseline=None,
            bar=Bar(text="≤ 100 ms", limit=100.0),
        ),
    ]


async def _watch(store: Store, *, quiet_s: float = 10.0, expiries: int = 10) -> tuple[float, list[float]]:
    async with _ticking(BucketTimer(store, SystemClock())):
        await asyncio.sleep(0.5)
        spent, wall = time.process_time(), time.monotonic()
        await asyncio.sleep(quiet_s)
        share = (time.process_time() - spent) / (time.monotonic() - wall)
        due: dict[str, datetime] = {}
        for number in range(expiries):
            owner, now = f"dying_{number}", datetime.now(UTC)
            due[owner] = now + timedelta(seconds=1)
            await store.write(lambda conn, owner=owner, now=now: _dying(conn, owner, now))  # type: ignore[misc]
            await asyncio.sleep(0.13)
        await asyncio.sleep(1.5)
    ends = events.c.kind.in_(("account.dry", "account.reaped"))
    query = select(events.c.subject, func.min(events.c.at)).where(ends).group_by(events.c.subject)
    seen = await store.read(lambda conn: conn.execute(query).all())
    if {subject for subject, _ in seen} != due.keys():
        raise RuntimeError(f"{len(seen)} of {expiries} buckets were found dry")
    return share, [(at - due[subject]).total_seconds() * 1000 for subject, at in seen]


def _dying(conn: Connection, owner: str, now: datetime) -> None:
    """A bucket that lasts a second, and has earned no grace."""
    open_bucket(conn, owner, now=now)
    credit(conn, owner, 1000, id=f"c:{owner}", reason="bench", now=now)
    open_meter(conn, owner, id=f"m:{owner}", subject=owner, use=Use.RUNNING, rate=1_000_000, now=now)


def live_meters(conn: Connection, count: int, now: datetime) -> None:
    """So many buckets with a meter each, far from dry, written as rows: opening them takes minutes."""
    names = [f"acc_{number:06}" for number in range(count)]
    zeros = dict.fromkeys(("debits_posted", "debits_pending", "credits_pending", "transfers", "digest"), 0)
    account = {**zeros, "asset": "sats", "created_at": now}
    for kind, sats in (("bucket", 86_400_000), ("debt", 0)):
        rows = [
            {
                **account,
                "id": f"{kind}:{name}",
                "kind": kind,
                "owner": name,
                "may_overdraw": kind == "debt",
                "credits_posted": sats,
            }
            for name in names
        ]
        conn.execute(insert(ledger_accounts), rows)
    flow = {"rate_msats": 1000, "settled_at": now, "carried_nsats": 0, "settlements": 0, "standing": "alive"}
    far = now + timedelta(days=1000)
    conn.execute(
        insert(money_buckets),
        [{**flow, "owner": name, "due_at": far + timedelta(seconds=i)} for i, name in enumerate(names)],
    )
    meter = {"kind": "running", "rate_msats": 1000, "began_at": now, "segments": 0, "step": 0}
    conn.execute(
        insert(meters), [{**meter, "id": f"m:{name}", "owner": name, "subject": name} for name in names]
    )


@asynccontextmanager
async def _ticking(timer: BucketTimer) -> AsyncIterator[None]:
    task = asyncio.create_task(timer.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transfers", type=int, default=HISTORY, help="length of the long history")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-postgres", action="store_true", help="SQLite alone")
    words = parser.parse_args()
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    history = QUICK_HISTORY if words.quick else words.transfers
    rounds = 20 if words.quick else words.rounds
    with own_folder() as folder:
        found = list(ledger(folder, rounds, history=history, with_postgres=not words.no_postgres))
    report = Report(
        machine=machine_facts(),
        started_at=started_at,
        rows=[row for row in found if isinstance(row, Row)],
        extras=[extra for extra in found if isinstance(extra, Samples)],
        skipped=[one for one in found if isinstance(one, Skipped)],
    )
    print_table(report, Console(highlight=False, width=150))
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
