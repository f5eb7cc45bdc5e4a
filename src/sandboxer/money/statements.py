"""Statements: the account as of now, its transfers, its usage, and exports of them.

Reading never writes: what is owed at `now` is computed and not settled, so reading changes no charge. Exports
are streamed, with one short read transaction per page.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import Column, Connection, Row, func, select, tuple_

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.values import value_class
from sandboxer.money.amounts import NSATS_PER_MSAT, NSATS_PER_SAT, Nsats, Rate, Sats
from sandboxer.money.buckets import load_bucket
from sandboxer.money.ledger import from_row
from sandboxer.money.policy import Standing, Use, nsats_between, reap_at
from sandboxer.money.records import bucket_id, counted
from sandboxer.money.segments import used_us
from sandboxer.money.tables import ledger_accounts, ledger_transfers, meter_segments, meters
from sandboxer.money.transfers import Phase, Transfer
from sandboxer.store.engine import Store

MAX_PAGE = 500
SEGMENTS_AT_ONCE = 5000
CSV_COLUMNS = (
    "seq",
    "at",
    "id",
    "kind",
    "phase",
    "asset",
    "debit",
    "credit",
    "amount",
    "change",
    "reason",
    "data",
)


@value_class
class AccountView:
    owner: str
    # What is in the bucket, less what is owed at this moment.
    balance: Sats
    # Parts of the balance: held for creates and budgets; reserved for what runs; free for anything.
    held: Sats
    reserved: Sats
    available: Sats
    debt: Sats
    # From transfers that are pending, not final.
    incoming: Sats
    rate_msats: Rate
    standing: Standing
    dry_at: datetime | None
    # When grace ends and everything is stopped.
    reap_at: datetime | None


@value_class
class Line:
    """A transfer as one of its owners sees it."""

    seq: int
    transfer: Transfer
    # What it added to all ledger accounts of the owner together.
    change: int


@value_class
class Page:
    lines: Sequence[Line]
    # Pass it as `cursor` to get the next page; None on the last page.
    next_cursor: str | None


@value_class
class UsageLine:
    subject: str
    use: Use
    began_at: datetime
    ended_at: datetime
    seconds_us: int
    nsats: Nsats

    @property
    def msats(self) -> int:
        """Rounded down for display; sums must be made of `nsats`."""
        return self.nsats // NSATS_PER_MSAT


def account_view(conn: Connection, owner: str, *, now: datetime) -> AccountView:
    bucket = load_bucket(conn, owner)
    now_owed = bucket.run_to(now).flow.carried // NSATS_PER_SAT
    paid = max(0, min(now_owed, bucket.spendable))
    seen = replace(bucket, posted=bucket.posted - paid, debt=bucket.debt + now_owed - paid)
    began = bucket.health.grace_began_at
    mine = ledger_accounts.c.id == bucket_id(owner)
    incoming = conn.execute(select(func.sum(ledger_accounts.c.credits_pending)).where(mine)).scalar()
    return AccountView(
        owner=owner,
        balance=seen.posted,
        held=seen.held,
        reserved=seen.reserved,
        available=seen.available,
        debt=seen.debt,
        incoming=int(incoming or 0),
        rate_msats=bucket.flow.rate,
        standing=bucket.health.standing,
        # From the stored flow: the moment does not depend on when one looks.
        dry_at=bucket.dry_at,
        reap_at=None
        if began is None or bucket.health.standing is not Standing.GRACE
        else reap_at(began, bucket.health.last_receipt_at, bucket.grace),
    )


def transfers_page(
    conn: Connection, owner: str, *, cursor: str | None = None, limit: int = 100, newest_first: bool = True
) -> Page:
    """Return a page of the transfers that touch any ledger account of the owner."""
    limit = max(1, min(limit, MAX_PAGE))
    mine = _accounts_of(conn, owner)
    after = _open_cursor(cursor)
    found: dict[int, Row[Any]] = {}
    # One walk of one index for each side of each account: an OR would make SQLite sort the whole history.
    for account in mine:
        for side in (ledger_transfers.c.debit, ledger_transfers.c.credit):
            for row in conn.execute(_walk(side, account, after, newest_first).limit(limit + 1)):
                found[row.seq] = row
    rows = [found[seq] for seq in sorted(found, reverse=newest_first)]
    lines = [_line(row, mine) for row in rows[:limit]]
    return Page(lines=lines, next_cursor=str(lines[-1].seq) if len(rows) > limit else None)


def usage(
    conn: Connection,
    owner: str,
    *,
    since: datetime,
    until: datetime,
    now: datetime,
    subject: str | None = None,
) -> list[UsageLine]:
    """Return what was used between two moments, one line for each subject and kind of use.

    Open meters count up to `now`.
    """
    sums: dict[tuple[str, str], UsageLine] = {}
    for row, began, ended in _segments(conn, owner, since, until, now, subject):
        began, ended = max(began, since), min(ended, until)
        nsats = nsats_between(row.rate_msats, began, ended)
        if getattr(row, "msats", 0) and since <= row.began_at < until:
            nsats += row.msats * NSATS_PER_MSAT
        key = (row.subject, row.kind)
        before = sums.get(key)
        sums[key] = UsageLine(
            subject=row.subject,
            use=Use(row.kind),
            began_at=min(began, before.began_at) if before else began,
            ended_at=max(ended, before.ended_at) if before else ended,
            seconds_us=(before.seconds_us if before else 0) + used_us(row.id, began, ended),
            nsats=(before.nsats if before else 0) + nsats,
        )
    return [sums[key] for key in sorted(sums)]


def actuals(conn: Connection, owner: str, subject: str, *, now: datetime) -> list[UsageLine]:
    """Return all that one subject has ever used, as `destroy` reports it."""
    everything = datetime.min.replace(tzinfo=now.tzinfo)
    return usage(
        conn, owner, since=everything, until=now + timedelta(microseconds=1), now=now, subject=subject
    )


def as_json(line: Line) -> dict[str, object]:
    transfer = line.transfer
    return {
        "seq": line.seq,
        "at": transfer.at.isoformat(),
        "id": transfer.id,
        "kind": transfer.kind,
        "phase": transfer.phase.value,
        "asset": transfer.asset.value,
        "debit": transfer.debit,
        "credit": transfer.credit,
        "amount": transfer.amount,
        "change": line.change,
        "reason": transfer.reason,
        "data": dict(transfer.data),
    }


async def export_csv(store: Store, owner: str) -> AsyncIterator[str]:
    """Yield the whole history as CSV with a header, oldest first, in pages.

    A page is formatted in the reader's thread, so that the event loop stays free.
    """
    yield _csv([CSV_COLUMNS])
    cursor: str | None = None
    while True:
        text, cursor = await store.read(partial(_csv_page, owner=owner, cursor=cursor))
        if text:
            yield text
        if cursor is None:
            return


def _csv_page(conn: Connection, *, owner: str, cursor: str | None) -> tuple[str, str | None]:
    found = transfers_page(conn, owner, cursor=cursor, limit=MAX_PAGE, newest_first=False)
    return _csv_lines(found.lines) if found.lines else "", found.next_cursor


def _csv_lines(lines: Sequence[Line]) -> str:
    rows = []
    for line in lines:
        cells = as_json(line)
        cells["data"] = json.dumps(cells["data"], separators=(",", ":")) if cells["data"] else ""
        rows.append([_harmless(cells[name]) for name in CSV_COLUMNS])
    return _csv(rows)


def _accounts_of(conn: Connection, owner: str) -> frozenset[str]:
    if not owner:
        raise InvalidRequest(field="owner", why="the platform's own accounts belong to nobody")
    query = select(ledger_accounts.c.id).where(ledger_accounts.c.owner == owner)
    return frozenset(conn.execute(query).scalars())


def _walk(side: Column[Any], account: str, after: int | None, newest_first: bool) -> Any:
    seq = ledger_transfers.c.seq
    query = select(ledger_transfers).where(side == account)
    if after is not None:
        query = query.where(seq < after if newest_first else seq > after)
    return query.order_by(seq.desc() if newest_first else seq)


def _line(row: Row[Any], mine: frozenset[str]) -> Line:
    transfer = from_row(row)
    sign = (transfer.credit in mine) - (transfer.debit in mine)
    moves = transfer.phase in (Phase.SINGLE, Phase.POST)
    return Line(seq=row.seq, transfer=transfer, change=sign * transfer.amount if moves else 0)


def _segments(
    conn: Connection, owner: str, since: datetime, until: datetime, now: datetime, subject: str | None
) -> Iterator[tuple[Row[Any], datetime, datetime]]:
    running = select(meters).where(
        meters.c.owner == owner,
        meters.c.closed_at.is_(None),
        meters.c.began_at < until,
        meters.c.kind != Use.NOTHING.value,
    )
    if subject is not None:
        running = running.where(meters.c.subject == subject)
    for row in _ended_segments(conn, owner, since, until, subject):
        yield row, row.began_at, row.ended_at
    open_ones = conn.execute(running).all() if now > since else []
    if open_ones:
        position = load_bucket(conn, owner).run_to(now)
        for row in open_ones:
            # Yielded even if it has cost nothing yet, so that it is listed.
            yield row, row.began_at, row.began_at
            for began, ended in counted(position, row.began_at, now):
                yield row, began, ended


def _ended_segments(
    conn: Connection, owner: str, since: datetime, until: datetime, subject: str | None
) -> Iterator[Row[Any]]:
    """Yield them in pages: there may be millions, and a driver may hold a whole result in memory."""
    columns = meter_segments.c
    query = select(meter_segments).where(
        columns.owner == owner, columns.ended_at >= since, columns.began_at < until
    )
    if subject is not None:
        query = query.where(columns.subject == subject)
    query = query.order_by(columns.ended_at, columns.seq).limit(SEGMENTS_AT_ONCE)
    page = conn.execute(query).all()
    while page:
        yield from page
        if len(page) < SEGMENTS_AT_ONCE:
            return
        last = (page[-1].ended_at, page[-1].seq)
        page = conn.execute(query.where(tuple_(columns.ended_at, columns.seq) > last)).all()


def _open_cursor(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise InvalidRequest(field="cursor", why="it is not a cursor that this list returned")
    return int(cursor)


def _csv(rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def _harmless(cell: object) -> object:
    """Quote a cell that a spreadsheet would run as a formula; a reason may be written by someone else."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell
