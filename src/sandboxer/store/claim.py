"""Gives one server the right to write to a database, and fences off one that lost it.

A row counts the servers that have served this database (its epoch). A server adds one when it begins, and
every write transaction looks, under the database's write lock, whether the count is still its own. So what a
server that was passed over still wants to write is refused by the transaction itself, whatever became of
locks and connections. On PostgreSQL the lock that keeps a second server from starting belongs to the very
session that writes: while that session lives, the lock is held; when it is lost, the next one takes the lock
again before it writes, or does not write. See decision 0021.

The database also has an identity (`Installation`): an id made once, and a count that grows while a server
uses it. Backends carry the same id beside their disks (see `sandboxes/binding.py`). The count tells a
database from an older copy of itself: what a dump restored has counted less than the disks have seen.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Integer, Table, Text, insert, select, update
from sqlalchemy.exc import DBAPIError

from sandboxer.kernel.errors import Superseded, Unavailable
from sandboxer.kernel.values import brief_value_class, new_id
from sandboxer.store.metadata import UtcDateTime, metadata

log = logging.getLogger(__name__)
# "sandboxs", so that the lock cannot be mistaken for another program's in a shared database.
POSTGRES_SERVER_LOCK = int.from_bytes(b"sandboxs")
# How long a new session waits for the server to forget our last one.
RETAKE_WITHIN_S = 2.0
EPOCH_QUERY = "SELECT epoch FROM server_claim WHERE id = 1"
_TRY = f"SELECT pg_try_advisory_lock({POSTGRES_SERVER_LOCK})"
# A connection that broke on our side may live on at the server, and hold the lock.
_END_OUR_LAST = f"""
    SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
      AND (l.classid::bigint << 32) + l.objid::bigint = {POSTGRES_SERVER_LOCK}
      AND a.application_name = %s AND l.pid <> pg_backend_pid()
"""

server_claim = Table(
    "server_claim",
    metadata,
    Column("id", Integer, primary_key=True),
    # How many servers have begun to serve this database.
    Column("epoch", Integer, nullable=False),
    Column("holder", Text, nullable=False),
    # Counted up by whoever asks whether the database can be written to.
    Column("probes", Integer, nullable=False),
    # Derived from the master key that has sealed what lies here.
    Column("key_check", Text),
)


class Claim:
    """The claim of one server, shared by the writer's thread and the event loop."""

    def __init__(self) -> None:
        # Names this server's sessions, so that it may end one of its own that lives on.
        self.name = f"sandboxer-{secrets.token_hex(6)}"
        self.epoch: int | None = None
        self.is_superseded = False
        self._let_go: Callable[[], None] | None = None
        self._listeners: list[Callable[[], object]] = []
        self._guard = threading.Lock()

    def begin(self, conn: Connection) -> None:
        """Begins an epoch, in the first write. Once it is committed, an earlier server of this database
        cannot write to it.
        """
        if (row := conn.execute(select(server_claim.c.epoch)).first()) is None:
            # A database whose rows were copied without this one.
            conn.execute(insert(server_claim).values(id=1, epoch=0, holder="", probes=0))
        epoch = 1 + (0 if row is None else int(row.epoch))
        conn.execute(update(server_claim).values(epoch=epoch, holder=self.name))
        self.epoch = epoch

    def check(self, found: int | None) -> None:
        """Compares the epoch that a write transaction sees with ours, before it does anything. Raises
        Superseded.
        """
        if self.epoch is not None and found != self.epoch:
            self._give_up(found)
        self.refuse_if_superseded()

    def refuse_if_superseded(self) -> None:
        if self.is_superseded:
            raise Superseded(why="another server has taken over its database; it writes no more and ends")

    def hold_by(self, let_go: Callable[[], None]) -> None:
        """Remembers the connection that holds the lock until the writer's session takes it over."""
        self._let_go = let_go

    def take(self, driver: Any) -> None:
        """Makes this PostgreSQL session the one that holds the lock. Raises Unavailable if it cannot."""
        if self._let_go is not None:
            self._let_go()
            self._let_go = None
        until = time.monotonic() + RETAKE_WITHIN_S
        while not driver.execute(_TRY).fetchone()[0]:
            if time.monotonic() >= until:
                raise Unavailable(
                    why="another server holds this database's lock; nothing is written meanwhile",
                    hint="Retry in a few seconds.",
                )
            driver.execute(_END_OUR_LAST, (self.name,))
            time.sleep(0.05)

    def on_superseded(self, listener: Callable[[], object]) -> None:
        """Calls `listener` once, from any thread, when another server has taken this database over."""
        with self._guard:
            self._listeners.append(listener)
            is_late = self.is_superseded
        if is_late:
            listener()

    def _give_up(self, found: int | None) -> None:
        with self._guard:
            if self.is_superseded:
                return
            self.is_superseded = True
            listeners = tuple(self._listeners)
        log.critical(
            "another server has taken over this database (it is at epoch %s, ours is %s):"
            " nothing more is written, and this server ends",
            found,
            self.epoch,
        )
        for listener in listeners:
            listener()


def probe(conn: Connection) -> None:
    """Writes a row, which is the only reliable way to learn whether the database can be written to."""
    conn.execute(update(server_claim).values(probes=(server_claim.c.probes + 1) % 1_000_000))


def look(conn: Connection) -> None:
    """Runs a write transaction that writes nothing: it takes the lock again if it was lost, and checks
    the epoch.
    """
    conn.execute(select(server_claim.c.epoch)).first()


def take_session(conn: Connection, claim: Claim) -> None:
    """Prepares a new connection of the writer. Errors of the driver are raised as SQLAlchemy's."""
    driver = conn.connection.driver_connection
    known = conn.dialect.loaded_dbapi.Error
    try:
        claim.take(driver)
    except known as error:
        is_lost = conn.dialect.is_disconnect(error, driver, None)
        raise DBAPIError.instance(
            "lock", None, error, known, connection_invalidated=is_lost, dialect=conn.dialect
        ) from error


installations = Table(
    "installation",
    metadata,
    # Always 1: there is one row.
    Column("only", Integer, primary_key=True),
    Column("id", Text, nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("made_at", UtcDateTime, nullable=False),
)


@brief_value_class
class Installation:
    id: str
    beat: int


def load_installation(conn: Connection) -> Installation | None:
    """Returns the installation; None if no server has used this database since installations have ids."""
    row = conn.execute(select(installations.c.id, installations.c.beat)).first()
    return None if row is None else Installation(row.id, row.beat)


def ensure_installation(conn: Connection, *, now: datetime) -> Installation:
    """Returns the installation, and makes it if need be."""
    if (known := load_installation(conn)) is not None:
        return known
    made = Installation(new_id("ins"), 0)
    conn.execute(installations.insert().values(only=1, id=made.id, beat=made.beat, made_at=now))
    return made


def count_on(conn: Connection, *, at_least: int = 0, now: datetime) -> Installation:
    """Raises the count by one, to at least `at_least`, and returns the installation. Makes it if need be."""
    known = ensure_installation(conn, now=now)
    beat = max(known.beat + 1, at_least)
    conn.execute(installations.update().values(beat=beat))
    return Installation(known.id, beat)
