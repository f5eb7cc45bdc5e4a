from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import Column, MetaData, Table, insert, select
from sqlalchemy.exc import StatementError

from sandboxer.store.engine import Store
from sandboxer.store.metadata import JsonValue, RowId, UtcDateTime

scratch = Table(
    "scratch",
    MetaData(),
    Column("id", RowId, primary_key=True),
    Column("at", UtcDateTime),
    Column("data", JsonValue),
)


async def stored(store: Store, **values):
    def there_and_back(conn):
        scratch.create(conn, checkfirst=True)
        conn.execute(insert(scratch).values(**values))
        return conn.execute(select(scratch).order_by(scratch.c.id.desc())).first()

    return await store.write(there_and_back)


@pytest.mark.parametrize(
    "zone", [UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-11))]
)
async def test_a_moment_comes_back_as_the_same_moment_in_utc(store: Store, zone: timezone) -> None:
    at = datetime(2026, 3, 29, 1, 59, 59, 123456, tzinfo=zone)
    row = await stored(store, at=at)
    assert row.at == at
    assert row.at.utcoffset() == timedelta(0)


async def test_a_moment_without_a_zone_is_refused(store: Store) -> None:
    with pytest.raises(StatementError, match="time zone"):
        await stored(store, at=datetime(2026, 1, 1))


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        "",
        0,
        False,
        {"nul": "\x00", "lone": "\ud800", "newline": "\n", "ключ": "☃"},
        {"big": 2**60},
        None,
    ],
)
async def test_json_comes_back_as_it_was(store: Store, value: object) -> None:
    row = await stored(store, data=value)
    assert row.data == value
    assert type(row.data) is type(value)


async def test_not_a_number_is_refused_on_both(store: Store) -> None:
    with pytest.raises((StatementError, ValueError)):
        await stored(store, data={"x": float("nan")})
