from __future__ import annotations

import csv
import io

import pytest
from sqlalchemy import Connection

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.money import statements
from sandboxer.money.buckets import credit, open_bucket, settle_account, spend
from sandboxer.money.ledger import EXTERNAL, post_transfer
from sandboxer.money.metering import change_rate, charge_once, close_meter, hold_slice, open_meter
from sandboxer.money.policy import Standing, Use
from sandboxer.money.records import bucket_id
from sandboxer.money.statements import (
    account_view,
    actuals,
    export_csv,
    transfers_page,
    usage,
)
from sandboxer.money.transfers import Phase, Transfer
from sandboxer.store.engine import Store
from tests.support.money import ALICE, BOB, NOW, fund, later


def run(conn: Connection, meter: str, rate: int, *, at: float) -> None:
    words = {"subject": f"sbx_{meter}", "use": Use.RUNNING, "rate": rate}
    open_meter(conn, ALICE, id=meter, now=later(at), **words)  # type: ignore[arg-type]


def test_the_view_is_as_of_now_without_writing(conn: Connection) -> None:
    fund(conn, ALICE, 5000)
    hold_slice(conn, ALICE, id="h", rate=1000, reason="create", now=NOW)
    run(conn, "m1", 1000, at=0)
    announced = Transfer(
        id="p1",
        debit=EXTERNAL,
        credit=bucket_id(ALICE),
        amount=70,
        kind="credit",
        phase=Phase.PENDING,
        reason="broadcast",
        at=NOW,
    )
    post_transfer(conn, announced)
    view = account_view(conn, ALICE, now=later(100))
    assert (view.balance, view.held, view.reserved, view.available) == (4900, 600, 600, 3700)
    assert (view.debt, view.incoming, view.rate_msats) == (0, 70, 1000)
    assert view.dry_at == later(4400)
    settle_account(conn, ALICE, now=later(100))
    assert account_view(conn, ALICE, now=later(100)) == view
    broke = account_view(conn, ALICE, now=later(4410))
    assert (broke.balance, broke.debt, broke.available) == (600, 10, 0)
    settle_account(conn, ALICE, now=later(4410))
    grace = account_view(conn, ALICE, now=later(4410))
    assert (grace.standing, grace.reap_at) == (Standing.GRACE, later(4460))


def test_transfers_come_in_pages_each_once(conn: Connection) -> None:
    fund(conn, ALICE, 100)
    fund(conn, BOB, 0)
    for number in range(10):
        spend(
            conn, ALICE, 1, id=f"s{number}", to=bucket_id(BOB), kind="gift", reason="gift", now=later(number)
        )
    for newest_first in (True, False):
        seen, cursor = [], None
        while True:
            page = transfers_page(conn, ALICE, cursor=cursor, limit=4, newest_first=newest_first)
            seen += page.lines
            cursor = page.next_cursor
            if cursor is None:
                break
        assert len(seen) == 11
        assert [line.seq for line in seen] == sorted((line.seq for line in seen), reverse=newest_first)
        assert sum(line.change for line in seen) == 90
    assert sum(line.change for line in transfers_page(conn, BOB).lines) == 10
    for bad in ("x", "-1", "9" * 30, ""):
        with pytest.raises(InvalidRequest):
            transfers_page(conn, ALICE, cursor=bad)
    with pytest.raises(InvalidRequest):
        transfers_page(conn, "")


def test_usage_by_thing_and_period_adds_up(conn: Connection) -> None:
    fund(conn, ALICE, 100_000)
    run(conn, "m1", 1234, at=0)
    run(conn, "m2", 7, at=10)
    change_rate(conn, "m1", use=Use.FROZEN, rate=11, now=later(100.000001))
    charge_once(conn, ALICE, id="e1", subject="sbx_m1", use=Use.EGRESS, msats=99, now=later(120))
    close_meter(conn, "m1", now=later(200))
    whole = usage(conn, ALICE, since=NOW, until=later(300), now=later(250))
    assert [(line.subject, line.use) for line in whole] == [
        ("sbx_m1", Use.EGRESS),
        ("sbx_m1", Use.FROZEN),
        ("sbx_m1", Use.RUNNING),
        ("sbx_m2", Use.RUNNING),
    ]
    assert whole[2].nsats == 1234 * 100_000_001
    assert whole[3].nsats == 7 * 240_000_000
    halves = [
        usage(conn, ALICE, since=since, until=until, now=later(250))
        for since, until in ((NOW, later(61)), (later(61), later(300)))
    ]
    assert sum(line.nsats for lines in halves for line in lines) == sum(line.nsats for line in whole)
    mine = actuals(conn, ALICE, "sbx_m1", now=later(250))
    assert mine == whole[:3]
    assert mine[0].msats == 99


def test_usage_of_many_segments_is_read_in_pages_and_each_counts_once(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "SEGMENTS_AT_ONCE", 3)
    fund(conn, ALICE, 100_000)
    for number in range(10):
        # Several at one moment: a page may end between them.
        at = later(number // 4)
        charge_once(conn, ALICE, id=f"e{number}", subject="sbx", use=Use.EGRESS, msats=1, now=at)
    (line,) = usage(conn, ALICE, since=NOW, until=later(100), now=later(100))
    assert line.msats == 10


async def test_exports_stream_the_whole_history_oldest_first(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "MAX_PAGE", 3)

    def fill(conn: Connection) -> None:
        open_bucket(conn, ALICE, now=NOW)
        for number in range(8):
            credit(
                conn,
                ALICE,
                10 + number,
                id=f"c{number}",
                reason="=cmd|' /C calc'!A0",
                now=later(number),
                data={"n": number},
            )

    await store.write(fill)
    parts = [text async for text in export_csv(store, ALICE)]
    # The header, then never more at a time than a page holds, however long the history.
    assert [len(part.splitlines()) for part in parts] == [1, 3, 3, 2]
    rows = list(csv.DictReader(io.StringIO("".join(parts))))
    assert [row["id"] for row in rows] == [f"c{n}" for n in range(8)]
    assert sum(int(row["change"]) for row in rows) == sum(10 + n for n in range(8))
    assert [row["amount"] for row in rows] == [str(10 + n) for n in range(8)]
    assert rows[0]["reason"].startswith("'=")
    assert rows[3]["data"] == '{"n":3}'
