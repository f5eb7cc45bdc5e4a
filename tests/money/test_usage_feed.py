"""Usage for outside billing: each segment once, each day once, and the days add up to the segments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection

from sandboxer.money.buckets import settle_account
from sandboxer.money.heartbeat import record_gap
from sandboxer.money.metering import change_rate, charge_once, close_meter, open_meter
from sandboxer.money.policy import Use
from sandboxer.money.records import Gap, GapKind
from sandboxer.money.statements import actuals
from sandboxer.money.usage_feed import SETTLING, DailyFeed, SegmentFeed, segments_page
from tests.support.money import ALICE, BOB, NOW, fund, later

MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)


def use_some(conn: Connection) -> None:
    """Alice from noon to 02:00 of the next day, frozen from midnight on; Bob one charge on the first day."""
    fund(conn, ALICE, 10_000_000)
    fund(conn, BOB, 1000)
    open_meter(conn, ALICE, id="m", subject="sbx_1", use=Use.RUNNING, rate=1000, now=NOW)
    charge_once(conn, BOB, id="c", subject="sbx_2", use=Use.EGRESS, msats=500, now=NOW)
    change_rate(conn, "m", use=Use.FROZEN, rate=10, now=MIDNIGHT)
    close_meter(conn, "m", now=MIDNIGHT + timedelta(hours=2))


def test_segments_are_read_once_by_their_cursor(conn: Connection) -> None:
    use_some(conn)
    first = segments_page(conn, owner=None, limit=2)
    rest = segments_page(conn, owner=None, after=first[-1].seq)
    assert [(one.account, one.use, one.msats) for one in (*first, *rest)] == [
        (BOB, "egress", 500),
        (ALICE, "running", 12 * 3600 * 1000),
        (ALICE, "frozen", 2 * 3600 * 10),
    ]
    assert [one.account for one in segments_page(conn, owner=BOB)] == [BOB]
    events = SegmentFeed().read(conn, 0, 100, now=NOW)
    assert [one.data["msats"] for one in events] == [500, 43_200_000, 72_000]
    assert SegmentFeed().last(conn, now=NOW) == events[-1].position


def test_a_day_is_told_once_it_is_over_and_days_add_up(conn: Connection) -> None:
    use_some(conn)
    feed = DailyFeed()
    start = feed.last(conn, now=NOW)
    assert feed.read(conn, start, 1, now=MIDNIGHT + SETTLING - timedelta(seconds=1)) == []
    events = feed.read(conn, start, 1, now=MIDNIGHT + SETTLING)
    assert [(one.kind, one.account, one.data["total_msats"]) for one in events] == [
        ("usage.daily", ALICE, 43_200_000),
        ("usage.daily", BOB, 500),
        ("usage.day_closed", None, 43_200_500),
    ]
    assert feed.read(conn, events[-1].position, 1, now=MIDNIGHT + SETTLING) == []
    later = MIDNIGHT + timedelta(days=1) + SETTLING
    following = feed.read(conn, events[-1].position, 1, now=later)
    assert [one.data["total_msats"] for one in following] == [72_000, 72_000]
    assert feed.next_at(now=MIDNIGHT + SETTLING) == later


def test_an_idle_day_is_closed_too_so_that_the_cursor_moves(conn: Connection) -> None:
    feed = DailyFeed()
    (closed,) = feed.read(conn, feed.last(conn, now=NOW), 1, now=NOW + timedelta(days=1))
    assert (closed.kind, closed.data["accounts"]) == ("usage.day_closed", 0)


@pytest.mark.parametrize("rate", [1000, 0])
def test_time_that_is_given_back_was_not_used(conn: Connection, rate: int) -> None:
    """It was charged up to a reboot, or cost nothing in a slot of a tier, and had ended before."""
    fund(conn, ALICE, 10_000)
    open_meter(conn, ALICE, id="m", subject="sbx_1", use=Use.RUNNING, rate=rate, now=NOW)
    record_gap(conn, Gap(kind=GapKind.UNWITNESSED, began_at=later(100), ended_at=later(1100)))
    settle_account(conn, ALICE, now=later(1200))
    close_meter(conn, "m", now=later(1200), at=later(60))
    told = segments_page(conn, owner=ALICE)
    assert sum(one.seconds_us for one in told) == 60_000_000
    assert sum(one.msats for one in told) == 60 * rate
    (line,) = actuals(conn, ALICE, "sbx_1", now=later(2000))
    assert (line.seconds_us, line.msats) == (60_000_000, 60 * rate)
