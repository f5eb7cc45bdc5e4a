"""What differs between SQLite and PostgreSQL: opening connections, beginning transactions, what to retry.

Both are driven the same way: one connection writes, a few read. A write transaction has the database to
itself (SQLite by nature, PostgreSQL by an advisory lock), so decisions made inside it cannot be raced and
event ids become visible in the order they were given.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psycopg
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.pool import NullPool

from sandboxer.kernel.errors import InvalidRequest

Durability = Literal["normal", "full"]
# How long one statement waits for another process's lock before the transaction is tried again.
BUSY_TIMEOUT_MS = 2000
# "sandboxer", so that the lock cannot be mistaken for another program's in a shared database.
POSTGRES_WRITE_LOCK = int.from_bytes(b"sandboxr")
_DONE = frozenset({psycopg.pq.ExecStatus.COMMAND_OK, psycopg.pq.ExecStatus.TUPLES_OK})
_POSTGRES_RETRY = frozenset({"40001", "40P01", "55P03"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """How to open one connection for writing and one for reading; each stays with one thread."""

    url: URL
    writing: Engine
    reading: Engine
    is_worth_retrying: Callable[[DBAPIError], bool]

    @property
    def kind(self) -> str:
        return self.url.get_backend_name()

    def dispose(self) -> None:
        self.writing.dispose()
        self.reading.dispose()


def open_database(text: str, *, durability: Durability = "normal") -> Database:
    """`sqlite:///path` or `postgresql://…`; anything else is refused by name."""
    url = parse_url(text)
    return _sqlite(url, durability) if url.get_backend_name() == "sqlite" else _postgres(url, durability)


def parse_url(text: str) -> URL:
    try:
        url = make_url(text)
    except ArgumentError:
        # Not repeated in the message: it may hold a password.
        raise InvalidRequest(field="database", why="not a database URL") from None
    match url.get_backend_name():
        case "sqlite":
            if not url.database or url.database == ":memory:":
                raise InvalidRequest(field="database", why="SQLite needs a file: sqlite:////path/to/file.db")
            return url.set(drivername="sqlite")
        case "postgresql" | "postgres":
            return url.set(drivername="postgresql+psycopg")
        case other:
            raise InvalidRequest(field="database", why=f"{other!r} is neither sqlite nor postgresql")


def sqlite_path(url: URL) -> Path:
    return Path(url.database or "")


def _sqlite(url: URL, durability: Durability) -> Database:
    synchronous = "FULL" if durability == "full" else "NORMAL"
    writing, reading = _engine(url), _engine(url)

    def prepare(connection: sqlite3.Connection, read_only: bool) -> None:
        # The driver's own transaction control begins too late (not before a SELECT) and never IMMEDIATE.
        connection.isolation_level = None
        for pragma in (
            f"busy_timeout={BUSY_TIMEOUT_MS}",
            "journal_mode=WAL",
            f"synchronous={synchronous}",
            "foreign_keys=ON",
            f"query_only={'ON' if read_only else 'OFF'}",
        ):
            connection.execute(f"PRAGMA {pragma}")

    event.listen(writing, "connect", lambda connection, _: prepare(connection, False))
    event.listen(reading, "connect", lambda connection, _: prepare(connection, True))
    _begin_with(writing, "BEGIN IMMEDIATE")
    _begin_with(reading, "BEGIN")
    return Database(url=url, writing=writing, reading=reading, is_worth_retrying=_sqlite_is_busy)


def _begin_with(engine: Engine, statement: str) -> None:
    """The dialect's own hook: a "begin" event that executes through SQLAlchemy costs 40 µs more."""

    def do_begin(connection: Any) -> None:
        connection.execute(statement)

    engine.dialect.do_begin = do_begin  # type: ignore[method-assign, assignment]


def _postgres(url: URL, durability: Durability) -> Database:
    settings = ["statement_timeout=30000", "lock_timeout=10000", "timezone=UTC"]
    if durability == "full":
        # Otherwise the database's operator has decided.
        settings.append("synchronous_commit=on")
    options = {
        "connect_timeout": 10,
        "options": " ".join(f"-c {setting}" for setting in settings),
        "application_name": "sandboxer",
    }
    writing = _engine(url, connect_args=options)
    # A reader sees one moment from its first statement to its last, as on SQLite.
    reading = _engine(
        url,
        connect_args=options,
        execution_options={"isolation_level": "REPEATABLE READ", "postgresql_readonly": True},
    )
    event.listen(writing, "connect", lambda connection, _: _begins_by_itself(connection))
    begin = f"BEGIN; SELECT pg_advisory_xact_lock({POSTGRES_WRITE_LOCK})".encode()
    writing.dialect.do_begin = lambda dbapi_connection: _say(dbapi_connection, begin)  # type: ignore[method-assign]
    writing.dialect.do_commit = lambda dbapi_connection: _say(dbapi_connection, b"COMMIT")  # type: ignore[method-assign]
    return Database(url=url, writing=writing, reading=reading, is_worth_retrying=_postgres_may_succeed_again)


def _begins_by_itself(connection: psycopg.Connection) -> None:
    """We say BEGIN, together with the write lock: by the driver it would be a way there and back of its own.

    Each later statement sees all that was committed before: READ COMMITTED looks anew per statement.
    """
    connection.autocommit = True


def _say(connection: Any, words: bytes) -> None:
    """By libpq at once: the driver's way around it, a cursor and a loop over the socket, takes 60 µs more."""
    result = connection.pgconn.exec_(words)
    if result.status not in _DONE:
        raise psycopg.errors.error_from_result(result, connection.info.encoding)


def _engine(url: URL, **options: object) -> Engine:
    # Each thread keeps its one connection, so a pool would only add bookkeeping.
    return create_engine(url, poolclass=NullPool, json_serializer=_to_json, **options)


def _to_json(value: object) -> str:
    # NaN is not JSON: SQLite would take it and PostgreSQL would not.
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _sqlite_is_busy(error: DBAPIError) -> bool:
    name = getattr(error.orig, "sqlite_errorname", "")
    return isinstance(error, OperationalError) and str(name).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _postgres_may_succeed_again(error: DBAPIError) -> bool:
    return error.connection_invalidated or getattr(error.orig, "sqlstate", None) in _POSTGRES_RETRY
