"""Seals the content of columns at rest: a copy of the database alone does not give it away.

The type seals on the way in and opens on the way out, so no statement can forget it. The key belongs to the
packages above; a server gives it to its store once (`seal_with`). What an older program wrote in plain is
read as it is, and sealed at the next start (`seal_old`). An empty document stays as it is.
"""

from __future__ import annotations

import base64
import json
import logging
import sqlite3
from contextlib import closing
from typing import Any, Protocol

from sqlalchemy import (
    JSON,
    Column,
    ColumnElement,
    Connection,
    LargeBinary,
    Table,
    Text,
    and_,
    cast,
    func,
    select,
    type_coerce,
    update,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from sandboxer.kernel.errors import Broken
from sandboxer.store.databases import Database, sqlite_path
from sandboxer.store.metadata import JsonValue, metadata

log = logging.getLogger(__name__)
# No document of these columns is a list, so what is sealed cannot be mistaken for one.
_MARK = "sealed-1"
_BYTES_MARK = b"\0sealed-1\0"
_CIPHER = "sandboxer_cipher"
_AT_ONCE = 500


class Cipher(Protocol):
    def close(self, secret: bytes, *, context: str) -> bytes: ...

    def open(self, sealed: bytes, *, context: str) -> bytes: ...


class SealedJson(TypeDecorator[Any]):
    """Stores a sealed JSON object. `context` says what it is, and binds what was sealed to this column."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def __init__(self, context: str) -> None:
        super().__init__()
        self.context = context

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        cipher: Cipher | None = getattr(dialect, _CIPHER, None)
        if not value or cipher is None:
            return value
        text = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
        return [_MARK, base64.b64encode(cipher.close(text, context=self.context)).decode()]

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        if not isinstance(value, list):
            return value
        cipher: Cipher | None = getattr(dialect, _CIPHER, None)
        if cipher is None or len(value) != 2 or value[0] != _MARK:
            raise Broken(why=f"{self.context} is sealed, and this program was not given the key")
        return json.loads(cipher.open(base64.b64decode(value[1]), context=self.context))


class SealedBytes(TypeDecorator[bytes]):
    """Stores sealed bytes. Bytes that are not sealed do not begin with NUL."""

    impl = LargeBinary
    cache_ok = True

    def __init__(self, context: str) -> None:
        super().__init__()
        self.context = context

    def process_bind_param(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        cipher: Cipher | None = getattr(dialect, _CIPHER, None)
        if not value or cipher is None:
            return value
        return _BYTES_MARK + cipher.close(value, context=self.context)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        if value is None or not value.startswith(_BYTES_MARK):
            return value
        cipher: Cipher | None = getattr(dialect, _CIPHER, None)
        if cipher is None:
            raise Broken(why=f"{self.context} is sealed, and this program was not given the key")
        return cipher.open(value[len(_BYTES_MARK) :], context=self.context)


def seal_with(database: Database, cipher: Cipher) -> None:
    """Sets the key for everything that goes through this store from now on."""
    for engine in (database.writing, database.reading):
        setattr(engine.dialect, _CIPHER, cipher)


def seal_old(conn: Connection) -> int:
    """Seals some of what is stored in plain; returns how many rows. More may be left unless it returns 0."""
    if conn.dialect.name == "sqlite":
        # What was there is overwritten, not only unlinked.
        conn.exec_driver_sql("PRAGMA secure_delete=ON")
    return sum(_seal_column(conn, table, column) for table, column in _columns())


def forget_plain(database: Database) -> None:
    """Removes plain text from the write-ahead log, after the last `seal_old`. Blocks."""
    if database.kind != "sqlite":
        return
    with closing(sqlite3.connect(sqlite_path(database.url), timeout=2)) as conn:
        busy = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    if busy:
        log.warning("the write-ahead log could not be emptied yet; it holds what was just sealed")


def _columns() -> list[tuple[Table, Column[Any]]]:
    return [
        (table, column)
        for table in metadata.tables.values()
        for column in table.columns
        if isinstance(column.type, SealedJson | SealedBytes)
    ]


def _seal_column(conn: Connection, table: Table, column: Column[Any]) -> int:
    keys = list(table.primary_key.columns)
    is_plain: ColumnElement[bool]
    if isinstance(column.type, SealedBytes):
        as_kept = type_coerce(column, LargeBinary())
        begins = type_coerce(func.substr(as_kept, 1, len(_BYTES_MARK)), LargeBinary())
        is_plain = (func.length(as_kept) > 0) & (begins != _BYTES_MARK)
    else:
        as_kept = type_coerce(column, JsonValue())
        is_plain = cast(as_kept, Text).like('{"%')
    rows = conn.execute(select(as_kept, *keys).where(is_plain).limit(_AT_ONCE)).all()
    for value, *ids in rows:
        is_this = and_(*(key == id_ for key, id_ in zip(keys, ids, strict=True)))
        conn.execute(update(table).where(is_this).values({column.name: value}))
    return len(rows)
