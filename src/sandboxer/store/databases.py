"""Hides what differs between SQLite and PostgreSQL: opening connections, beginning transactions, what to
retry.

Both are driven the same way: one connection writes, a few read. A write transaction has the database to
itself (SQLite by nature, PostgreSQL by an advisory lock), so decisions made inside it cannot be raced and
event ids become visible in the order they were given.

Transactions begin and end in the driver itself. SQLAlchemy's own account of a begin and a commit takes as
long as the statements of a small transaction. So for SQLAlchemy a worker's connection is in one transaction
for as long as it lives, and those of the database begin and end within it. See decision 0012.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import Connection, Engine, Table, create_engine, event
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.pool import NullPool

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.program import late
from sandboxer.kernel.values import value_class
from sandboxer.store.claim import EPOCH_QUERY, Claim


def begin(conn: Connection) -> None:
    if conn.in_transaction():
        _tell(conn, conn.dialect.do_begin)
    else:
        conn.begin()


def commit(conn: Connection) -> None:
    _tell(conn, conn.dialect.do_commit)


def roll_back(conn: Connection) -> None:
    _tell(conn, conn.dialect.do_rollback)


def is_as_begun(conn: Connection) -> bool:
    """Says whether the transaction is as it was begun. False once somebody ended it through SQLAlchemy,
    left a nested one open, or the connection was lost.
    """
    return conn.in_transaction() and not conn.in_nested_transaction() and not conn.invalidated


def as_sqlalchemy_raises(conn: Connection, statement: str, error: Exception) -> Exception:
    """Returns an error of the driver as SQLAlchemy's class for it, any other as it is."""
    known = conn.dialect.loaded_dbapi.Error
    if not isinstance(error, known):
        return error
    if is_lost := conn.dialect.is_disconnect(error, conn.connection.dbapi_connection, None):
        conn.invalidate(error)
    return DBAPIError.instance(
        statement, None, error, known, connection_invalidated=is_lost, dialect=conn.dialect
    )


def insert_unless_there(dialect: str, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Returns an insert that can say what to do where the row is there already."""
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)


def _tell(conn: Connection, tell: Callable[[Any], None]) -> None:
    try:
        tell(conn.connection.dbapi_connection)
    except Exception as error:
        raise as_sqlalchemy_raises(conn, tell.__name__, error) from error


if TYPE_CHECKING:
    import psycopg
    from sqlalchemy.dialects import postgresql
else:
    psycopg, postgresql = late("psycopg"), late("sqlalchemy.dialects.postgresql")

Durability = Literal["normal", "full"]
# How long one statement waits for another process's lock before the transaction is tried again.
BUSY_TIMEOUT_MS = 2000
CONNECT_TIMEOUT_S = 3
# "sandboxer", so that the lock cannot be mistaken for another program's in a shared database.
POSTGRES_WRITE_LOCK = int.from_bytes(b"sandboxr")
_POSTGRES_RETRY = frozenset({"40001", "40P01", "55P03"})


@value_class
class Database:
    """Opens connections for writing and for reading; each stays with one thread."""

    url: URL
    writing: Engine
    reading: Engine
    is_worth_retrying: Callable[[DBAPIError], bool]
    # Of a server; other programs (a look, a backup) have none.
    claim: Claim | None = None

    @property
    def kind(self) -> str:
        return self.url.get_backend_name()

    def dispose(self) -> None:
        self.writing.dispose()
        self.reading.dispose()


def open_database(text: str, *, durability: Durability = "normal", claim: Claim | None = None) -> Database:
    """Opens `sqlite:///path` or `postgresql://…`. Raises for any other URL."""
    url = parse_url(text)
    open_one = _sqlite if url.get_backend_name() == "sqlite" else _postgres
    return open_one(url, durability, claim)


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


def _sqlite(url: URL, durability: Durability, claim: Claim | None) -> Database:
    synchronous = "FULL" if durability == "full" else "NORMAL"
    writing, reading = _engine(url), _engine(url)

    _keep_private(sqlite_path(url))

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
    _begin_with(writing, "BEGIN IMMEDIATE", claim)
    _begin_with(reading, "BEGIN", None)
    return Database(url=url, writing=writing, reading=reading, is_worth_retrying=_sqlite_is_busy, claim=claim)


def _keep_private(path: Path) -> None:
    """Creates the file with mode 0600. SQLite gives its log and its index the mode of the file."""
    if path.parent.is_dir():
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        # Not ours, or on a file system without modes: then its owner has decided.
        with contextlib.suppress(OSError):
            os.chmod(path.with_name(name), 0o600)


def _begin_with(engine: Engine, statement: str, claim: Claim | None) -> None:
    """Replaces the dialect's own hook: a "begin" event that executes through SQLAlchemy costs 40 µs more."""

    def do_begin(connection: Any) -> None:
        connection.execute(statement)
        if claim is not None and claim.epoch is not None:
            row = connection.execute(EPOCH_QUERY).fetchone()
            claim.check(None if row is None else row[0])

    engine.dialect.do_begin = do_begin  # type: ignore[method-assign, assignment]


def _postgres(url: URL, durability: Durability, claim: Claim | None) -> Database:
    settings = ["statement_timeout=30000", "lock_timeout=10000", "timezone=UTC"]
    if durability == "full":
        # Otherwise the database's operator has decided.
        settings.append("synchronous_commit=on")
    options = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        # A server whose machine is gone says nothing at all: without these, not for two hours.
        "tcp_user_timeout": 10_000,
        "keepalives_idle": 10,
        "keepalives_interval": 3,
        "keepalives_count": 3,
        "options": " ".join(f"-c {setting}" for setting in settings),
        "application_name": "sandboxer" if claim is None else claim.name,
    }
    writing = _engine(url, connect_args=options)
    # A reader sees one moment from its first statement to its last, as on SQLite.
    reading = _engine(
        url,
        connect_args=options,
        execution_options={"isolation_level": "REPEATABLE READ", "postgresql_readonly": True},
    )
    event.listen(writing, "connect", lambda connection, _: _begins_by_itself(connection))
    writing.dialect.do_begin = _postgres_begin(claim)  # type: ignore[method-assign, assignment]
    writing.dialect.do_commit = lambda dbapi_connection: _say(dbapi_connection, b"COMMIT")  # type: ignore[method-assign]
    return Database(
        url=url,
        writing=writing,
        reading=reading,
        is_worth_retrying=_postgres_may_succeed_again,
        claim=claim,
    )


def _postgres_begin(claim: Claim | None) -> Callable[[Any], None]:
    """Begins with the lock and reads the claim in the same round trip, after the lock was granted."""
    plain = f"BEGIN; SELECT pg_advisory_xact_lock({POSTGRES_WRITE_LOCK})".encode()
    looking = plain + f"; {EPOCH_QUERY}".encode()

    def do_begin(connection: Any) -> None:
        if claim is None or claim.epoch is None:
            _say(connection, plain)
            return
        try:
            found = _say(connection, looking)
        except psycopg.errors.UndefinedTable:
            # Another database stands in the place of ours.
            claim.check(None)
            raise
        claim.check(int(found.get_value(0, 0) or 0) if found.ntuples else None)

    return do_begin


def _begins_by_itself(connection: psycopg.Connection) -> None:
    """Keeps the driver from sending BEGIN, which we send together with the write lock to save a round trip.

    Each later statement sees all that was committed before: READ COMMITTED looks anew per statement.
    """
    connection.autocommit = True


def _say(connection: Any, words: bytes) -> Any:
    """Executes statements and returns the last result. Uses libpq itself: the driver's cursor and loop
    take 60 µs more.
    """
    result = connection.pgconn.exec_(words)
    if result.status not in _good():
        raise psycopg.errors.error_from_result(result, "utf-8")
    return result


@cache
def _good() -> frozenset[int]:
    return frozenset({psycopg.pq.ExecStatus.COMMAND_OK, psycopg.pq.ExecStatus.TUPLES_OK})


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
