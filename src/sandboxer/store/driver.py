"""Where a transaction begins and ends, and what else is told to the driver itself.

SQLAlchemy's own account of a begin and a commit takes as long as the statements of a small transaction. So
for SQLAlchemy a worker's connection is in one transaction for as long as it lives, and those of the database
begin and end within it. See decision 0012.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError


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
    """False once somebody has ended it through SQLAlchemy or left a nested one open, or it was lost."""
    return conn.in_transaction() and not conn.in_nested_transaction() and not conn.invalidated


def as_sqlalchemy_raises(conn: Connection, statement: str, error: Exception) -> Exception:
    """An error of the driver in SQLAlchemy's class for it; any other as it is."""
    known = conn.dialect.loaded_dbapi.Error
    if not isinstance(error, known):
        return error
    is_lost = conn.dialect.is_disconnect(error, conn.connection.dbapi_connection, None)
    if is_lost:
        conn.invalidate(error)
    return DBAPIError.instance(
        statement, None, error, known, connection_invalidated=is_lost, dialect=conn.dialect
    )


def _tell(conn: Connection, tell: Callable[[Any], None]) -> None:
    try:
        tell(conn.connection.dbapi_connection)
    except Exception as error:
        raise as_sqlalchemy_raises(conn, tell.__name__, error) from error
