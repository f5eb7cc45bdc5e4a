"""Holds the MetaData on which every package declares its tables, and column types that suit both
databases.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Column, Connection, DateTime, Index, Integer, MetaData, event, text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

# Constraints need names, or a later migration cannot drop them.
metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite counts row ids only in a column spelled INTEGER (which holds 64 bits there).
RowId = BigInteger().with_variant(Integer(), "sqlite")


def required(kind: type[TypeEngine[Any]], *names: str) -> list[Column[Any]]:
    """Columns of one type that always hold a value."""
    return [Column(name, kind, nullable=False) for name in names]


def nullable(kind: type[TypeEngine[Any]], *names: str) -> list[Column[Any]]:
    """Columns of one type that may be NULL."""
    return [Column(name, kind) for name in names]


def index_of(name: str | None, *columns: str, where: str, unique: bool = False) -> Index:
    """An index of the rows that fulfil a condition, which both databases understand alike."""
    return Index(name, *columns, unique=unique, sqlite_where=text(where))


@event.listens_for(metadata, "before_create")
def _say_conditions(made: MetaData, conn: Connection, **_: Any) -> None:
    """Says the conditions of indexes to PostgreSQL too, where it is used: its dialect takes long to load."""
    if conn.dialect.name == "postgresql":
        for index in (index for table in made.tables.values() for index in table.indexes):
            index.dialect_options["postgresql"]["where"] = index.dialect_options["sqlite"]["where"]


class UtcDateTime(TypeDecorator[datetime]):
    """Stores a moment. Refuses naive values on the way in; always UTC on the way out.

    The processors stand in for the decorator's own, which would call two functions for each value: moments
    are half of what is read in a request.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[datetime | None], Any]:
        return _to_text if dialect.name == "sqlite" else _to_utc

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], datetime | None]:
        return _from_text if dialect.name == "sqlite" else _to_utc


def _to_utc(value: datetime | None) -> datetime | None:
    if value is None or value.tzinfo is UTC:
        return value
    if value.tzinfo is None:
        raise ValueError("a moment needs a time zone")
    return value.astimezone(UTC)


def _to_text(value: datetime | None) -> str | None:
    """Writes a moment as SQLAlchemy does, without the zone and always with microseconds, so that it sorts
    as time does.
    """
    moment = _to_utc(value)
    return None if moment is None else moment.replace(tzinfo=None).isoformat(" ", "microseconds")


def _from_text(value: str | None) -> datetime | None:
    return None if value is None else datetime.fromisoformat(value).replace(tzinfo=UTC)


class JsonValue(TypeDecorator[Any]):
    """Stores a JSON document; Python's None is SQL NULL.

    `json`, not `jsonb`, on PostgreSQL: jsonb refuses \\u0000 and lone surrogates, and what comes out of a
    sandbox may hold both.
    """

    impl = JSON(none_as_null=True)
    cache_ok = True
