"""Carries out transactions in threads with one connection each.

A thread with its own queue and its own open connection costs a third of a pooled executor plus a pooled
connection, and this path is walked by every request.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, OperationalError

from sandboxer.kernel.errors import Broken, FateUnknown
from sandboxer.kernel.late import late
from sandboxer.store.databases import begin, commit, is_as_begun, roll_back
from sandboxer.store.jobs import RETRY_AFTER_S, Job, away, deliver_all

if TYPE_CHECKING:
    import psycopg
else:
    psycopg = late("psycopg")

log = logging.getLogger(__name__)

ATTEMPTS = 4
_FIRST_PAUSE_S = 0.01
_TOPICS = "sandboxer.topics"


def announce(conn: Connection, topic: str) -> None:
    """Announces `topic` to listeners of `Store.on_commit` once this transaction is committed."""
    conn.info.setdefault(_TOPICS, set()).add(topic)


def run_body(conn: Connection, job: Job[Any]) -> Any:
    """Runs the function of a job and returns its result. What it announced is kept with the job until the
    commit.
    """
    info = conn.info
    info.pop(_TOPICS, None)
    result = job.fn(conn)
    if not _is_intact(conn):
        # A commit would be answered by a rollback, in silence, and take others' work along.
        raise Broken(why="a transaction went on after the database had given it up")
    job.topics = frozenset(info.get(_TOPICS, ()))
    return result


def _is_intact(conn: Connection) -> bool:
    if not is_as_begun(conn):
        return False
    connection: Any = conn.connection.dbapi_connection
    if conn.dialect.name == "sqlite":
        return bool(connection.in_transaction)
    status = connection.pgconn.transaction_status
    if status == psycopg.pq.TransactionStatus.IDLE and not connection.autocommit:
        # A reader's begins with its first statement, and this one had nothing to ask.
        return True
    return bool(status == psycopg.pq.TransactionStatus.INTRANS)


class Worker:
    """A thread with one connection that takes jobs from a queue, which others may share, until it is told
    to end.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        jobs: queue.SimpleQueue[Job[Any] | None],
        is_worth_retrying: Callable[[DBAPIError], bool],
    ) -> None:
        self._engine = engine
        self._jobs = jobs
        self._is_worth_retrying = is_worth_retrying
        self._conn: Connection | None = None
        self._line = _Line()
        # When it began what it is at; read by those who wait for it.
        self._busy_since: float | None = None
        # A daemon: a program that forgot to close its store must still be able to end.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def join(self, within_s: float | None = None) -> bool:
        """Waits for the thread. Returns False if it still runs: it hangs in the database or the kernel."""
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def interrupt(self, *, busy_for_s: float = 0.0) -> None:
        """Cuts the connection under a job that has taken this long, so that it fails. May be called from
        any thread.
        """
        since = self._busy_since
        if since is not None and time.monotonic() - since >= busy_for_s:
            self._line.cut()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if job.take(self):
                self._busy_since = job.acquired_at
                self._alone(job)
                self._busy_since = None
                deliver_all((job,))
            # Held by the variable, the last answer would live until the next job.
            del job
        self._disconnect()

    def _alone(self, job: Job[Any]) -> None:
        try:
            result = self._with_retries(job)
        except BaseException as error:
            job.settle(None, error)
        else:
            job.settle(result, None)

    def _with_retries(self, job: Job[Any]) -> Any:
        for attempt in range(1, ATTEMPTS + 1):
            if job.is_overdue():
                raise away("the database does not answer; nothing of this was done")
            try:
                return self._transaction(job)
            except DBAPIError as error:
                if error.connection_invalidated:
                    self._disconnect()
                if not self._is_worth_retrying(error):
                    if isinstance(error, OperationalError):
                        raise away(f"the database failed: {error.orig}") from error
                    raise
                if attempt == ATTEMPTS:
                    raise away(f"the database is busy or away: {error.orig}") from error
                time.sleep(_FIRST_PAUSE_S * 4 ** (attempt - 1))
        raise AssertionError("unreachable")

    def _transaction(self, job: Job[Any]) -> Any:
        conn = self._begin()
        try:
            result = run_body(conn, job)
        except BaseException:
            self._roll_back()
            raise
        self._commit(conn)
        return result

    def _begin(self) -> Connection:
        conn = self._conn
        if conn is None:
            conn = self._conn = self._connect()
        try:
            begin(conn)
        except BaseException:
            # It may have begun, and not got the lock, or have seen that it is another server's turn.
            self._roll_back()
            raise
        return conn

    def _connect(self) -> Connection:
        conn = self._engine.connect()
        self._line.hold(conn)
        return conn

    def _commit(self, conn: Connection) -> None:
        try:
            commit(conn)
        except DBAPIError as error:
            # SQLite's transaction is still open then.
            self._disconnect()
            if error.connection_invalidated:
                # It may have been committed: trying again could do it twice.
                why = "the database went away during the commit"
                raise FateUnknown(why=why, retry_after_s=RETRY_AFTER_S) from error
            raise

    def _roll_back(self) -> None:
        conn = self._conn
        if conn is None:
            return
        if not is_as_begun(conn):
            self._disconnect()
            return
        try:
            roll_back(conn)
        except DBAPIError:
            log.warning("rollback failed; dropping the connection", exc_info=True)
            self._disconnect()

    def _disconnect(self) -> None:
        conn, self._conn = self._conn, None
        self._line.let_go()
        if conn is None:
            return
        try:
            conn.close()
        except DBAPIError:
            log.warning("closing a database connection failed", exc_info=True)


class _Line:
    """Cuts a connection from another thread, while its own waits for an answer that does not come.

    Of PostgreSQL a descriptor of our own for its socket: the driver's may be closed, and its number given to
    something else, at any moment.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._socket: socket.socket | None = None
        self._sqlite: Any = None

    def hold(self, conn: Connection) -> None:
        connection: Any = conn.connection.dbapi_connection
        with self._guard:
            if conn.dialect.name == "sqlite":
                self._sqlite = connection
            else:
                self._socket = socket.socket(fileno=os.dup(connection.pgconn.socket))

    def let_go(self) -> None:
        with self._guard:
            if self._socket is not None:
                self._socket.close()
            self._socket = self._sqlite = None

    def cut(self) -> None:
        with self._guard:
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
            if self._sqlite is not None:
                self._sqlite.interrupt()
