"""A tier bought: where it ends, what is refused, and that it is sold once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection

from sandboxer.accounts import records
from sandboxer.kernel.clock import add_months
from sandboxer.kernel.errors import Conflict
from sandboxer.money.verification import verify
from sandboxer.payments.goods import entitled_until, record_sale, term_after
from sandboxer.store.databases import open_database
from tests.support.schemas import copy_and_migrate

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def conn(database_url: str) -> Iterator[Connection]:
    database = open_database(database_url)
    copy_and_migrate(database)
    with database.writing.begin() as connection:
        records.create(connection, id="acc_alice", actor="test", reason="test", now=NOW)
        yield connection
        assert verify(connection).is_whole
    database.dispose()


def test_a_first_tier_begins_now() -> None:
    assert term_after(None, None, bought=2, months=3, now=NOW) == add_months(NOW, 3)


def test_the_same_tier_goes_on_where_it_ends() -> None:
    until = NOW + timedelta(days=10)
    assert term_after(2, until, bought=2, months=1, now=NOW) == add_months(until, 1)


def test_what_is_left_of_a_lower_tier_counts_at_its_worth() -> None:
    bought = term_after(1, NOW + timedelta(days=10), bought=2, months=1, now=NOW)
    assert bought == add_months(NOW + timedelta(days=5), 1)


@pytest.mark.parametrize(("tier", "left"), [(None, 0), (1, 10), (2, 10), (2, -1)])
@pytest.mark.parametrize("months", [1, 3, 12, 24])
def test_a_month_is_the_same_however_it_is_paid_for(tier: int | None, left: int, months: int) -> None:
    until = None if tier is None else NOW + timedelta(days=left)
    by_x402 = term_after(tier, until, bought=2, months=months, now=NOW)
    held = tier if left > 0 else None
    assert by_x402 == entitled_until(held, until, 2, months, now=NOW)


def test_a_lower_tier_is_refused_while_a_higher_one_lasts() -> None:
    with pytest.raises(Conflict):
        term_after(4, NOW + timedelta(days=1), bought=3, months=1, now=NOW)
    assert term_after(4, NOW - timedelta(days=1), bought=3, months=1, now=NOW) == add_months(NOW, 1)


def test_one_payment_sells_once(conn: Connection) -> None:
    def sell() -> records.Account | None:
        return record_sale(
            conn, "acc_alice", tier=1, months=1, sats=7000, id="pay_1.0", source="x402", now=NOW
        )

    first = sell()
    assert first is not None
    assert (first.tier, first.entitled_until) == (1, add_months(NOW, 1))
    assert sell() is None
    assert records.load(conn, "acc_alice").entitled_until == add_months(NOW, 1)
