"""The newest schema, made once for each test process: walking all migrations for every test's database took
more time than the tests.

An empty SQLite database becomes a copy of the first one's file. PostgreSQL databases are copies of the first,
wiped and lent again. Who asks for `empty_database_url` and `migrating_for_real`
walks the migrations.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path

import psycopg
from psycopg import sql

from sandboxer.store import engine
from sandboxer.store.databases import Database, open_database, sqlite_path
from sandboxer.store.migrations import migrate

_TEMPLATE = "migrated"
# Deleted rows stay on disk: without this the thousandth test would wade through those of all before it.
_USES = 50
# Whatever a test may have done to the schema itself: tables, columns, indexes, constraints, triggers.
_SHAPE = """
    SELECT md5(string_agg(thing, ',' ORDER BY thing)) FROM (
        SELECT 'c' || oid || relname || relnatts || relchecks || relhastriggers AS thing FROM pg_class
            WHERE relnamespace = 'public'::regnamespace
        UNION ALL SELECT 'k' || oid || convalidated FROM pg_constraint
            WHERE connamespace = 'public'::regnamespace
    ) things
"""


@contextmanager
def copied_schema() -> Iterator[None]:
    """Within it an empty SQLite database that is opened gets a copy of what migrating would make of it."""
    with _migrating_by(copy_and_migrate):
        yield


@contextmanager
def migrating_for_real() -> Iterator[None]:
    with _migrating_by(migrate):
        yield


@contextmanager
def _migrating_by(act: Callable[[Database], None]) -> Iterator[None]:
    before = engine.migrate
    engine.migrate = act
    try:
        yield
    finally:
        engine.migrate = before


def copy_and_migrate(database: Database) -> None:
    """As `migrate`, in a tenth of its time for an empty SQLite database.

    Nobody is connected yet: a file of no bytes can be filled, and keeps its mode.
    """
    if database.kind == "sqlite":
        path = sqlite_path(database.url)
        if path.is_file() and not path.stat().st_size:
            path.write_bytes(_migrated())
    migrate(database)


@cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "migrated.db"
        database = open_database(f"sqlite:///{path}")
        migrate(database)
        database.dispose()
        assert [one.name for one in path.parent.iterdir()] == [path.name], "its log is not part of the copy"
        return path.read_bytes()


@dataclass
class PostgresDatabases:
    """Databases on one server: empty ones, and migrated ones that are lent again when their test is over."""

    server: str
    _numbers: Iterator[int] = field(default_factory=count)
    _free: list[str] = field(default_factory=list)
    _uses: dict[str, int] = field(default_factory=dict)
    # One for each that is lent: a new one reads the catalogue first, which takes longer than to wipe.
    _connections: dict[str, psycopg.Connection] = field(default_factory=dict)
    _shape: str = ""
    _wipe: str = ""

    def url(self, name: str) -> str:
        return self.server.rpartition("/")[0] + "/" + name

    def make_empty(self) -> str:
        return self._make(f"empty_{next(self._numbers)}", "template1")

    def take(self) -> str:
        """The name of a migrated one without any rows but those that migrations write."""
        if not self._wipe:
            self._make_template()
        name = self._free.pop() if self._free else self._make(f"test_{next(self._numbers)}", _TEMPLATE)
        self._uses[name] = self._uses.get(name, 0) + 1
        return name

    def give_back(self, name: str) -> None:
        if self._uses[name] < _USES and self._is_wiped(name):
            self._free.append(name)
        else:
            self.drop(name)

    def drop(self, name: str) -> None:
        if name in self._connections:
            self._connections.pop(name).close()
        self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def _is_wiped(self, name: str) -> bool:
        try:
            conn = self._connection(name)
            # One who is still connected could write into the next test: such a database is not lent again.
            if not _is_alone(conn) or self._shape_of(conn) != self._shape:
                return False
            conn.execute(self._wipe)
        except psycopg.OperationalError:
            # The test has ended every connection, ours too.
            return False
        return True

    def _connection(self, name: str) -> psycopg.Connection:
        if name not in self._connections:
            self._connections[name] = psycopg.connect(self.url(name), autocommit=True)
        return self._connections[name]

    def _make(self, name: str, template: str) -> str:
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY = FILE_COPY")
        return name

    def _make_template(self) -> None:
        self._make(_TEMPLATE, "template1")
        database = open_database(self.url(_TEMPLATE))
        migrate(database)
        database.dispose()
        with psycopg.connect(self.url(_TEMPLATE), autocommit=True) as conn:
            self._shape, self._wipe = self._shape_of(conn), _wiping(conn)

    def _shape_of(self, conn: psycopg.Connection) -> str:
        (shape,) = conn.execute(_SHAPE).fetchone() or ("",)
        return str(shape)

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self.server, autocommit=True) as conn:
            conn.execute(statement)


def _is_alone(conn: psycopg.Connection) -> bool:
    """A connection that was closed takes the server a moment to forget."""
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    deadline = time.monotonic() + 1
    while conn.execute(others).fetchone() != (1,):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _wiping(conn: psycopg.Connection) -> str:
    """One command that makes the tables what they are now."""
    # Rows in any order, whatever refers to them, and past the triggers that keep ledgers as they are.
    words = [sql.SQL("SET session_replication_role = replica")]
    tables = conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    for (table,) in tables:
        name = sql.Identifier(table)
        words.append(sql.SQL("DELETE FROM {}").format(name))
        for row in conn.execute(sql.SQL("SELECT * FROM {}").format(name)).fetchall():
            values = sql.SQL(", ").join(map(sql.Literal, row))
            words.append(sql.SQL("INSERT INTO {} VALUES ({})").format(name, values))
    sequences = conn.execute("SELECT sequencename FROM pg_sequences WHERE schemaname = 'public'").fetchall()
    words += [sql.SQL("ALTER SEQUENCE {} RESTART").format(sql.Identifier(one)) for (one,) in sequences]
    return sql.SQL("; ").join(words).as_string(conn)
