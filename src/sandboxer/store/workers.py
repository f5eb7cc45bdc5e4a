"""Threads that carry out transactions, one connection each.

A thread with its own queue and its own open connection costs a third of a pooled executor plus a pooled
connection, and this path is walked by every request.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import psycopg
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, OperationalError

from sandboxer.kernel.errors import Broken, Unavailable
from sandboxer.store import driver

log = logging.getLogger(__name__)
T = TypeVar("T")

ATTEMPTS = 4
_FIRST_PAUSE_S = 0.01
_TOPICS = "sandboxer.topics"


def announce(conn: Connection, topic: str) -> None:
    """Once this transaction is committed, those who listen with `Store.on_commit` hear of `topic`."""
    conn.info.setdefault(_TOPICS, set()).add(topic)


def run_body(conn: Connection, job: Job[Any]) -> Any:
    """What its function returned; what it announced is kept with the job until the commit."""
    info = conn.info
    info.pop(_TOPICS, None)
    result = job.fn(conn)
    if not _is_intact(conn):
        # A commit would be answered by a rollback, in silence, and take others' work along.
        raise Broken(why="a transaction went on after the database had given it up")
    job.topics = frozenset(info.get(_TOPICS, ()))
    return result


def _is_intact(conn: Connection) -> bool:
    if not driver.is_as_begun(conn):
        return False
    connection: Any = conn.connection.dbapi_connection
    if conn.dialect.name == "sqlite":
        return bool(connection.in_transaction)
    status = connection.pgconn.transaction_status
    if status == psycopg.pq.TransactionStatus.IDLE and not connection.autocommit:
        # A reader's begins with its first statement, and this one had nothing to ask.
        return True
    return bool(status == psycopg.pq.TransactionStatus.INTRANS)


class Job(Generic[T]):
    """One transaction asked for, and the way back to who asked."""

    __slots__ = ("_error", "_future", "_listener", "_result", "fn", "is_delivered", "loop", "topics")

    def __init__(
        self, fn: Callable[[Connection], T], listener: Callable[[frozenset[str]], None] | None
    ) -> None:
        self.fn = fn
        self.topics: frozenset[str] = frozenset()
        self.is_delivered = False
        self.loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self.loop.create_future()
        self._listener = listener
        self._result: T | None = None
        self._error: BaseException | None = None

    async def outcome(self) -> T:
        """The result, once the transaction is over.

        If the caller is cancelled meanwhile, the cancellation waits for that too: whoever cleans up
        afterwards never races the transaction it gave up on.
        """
        cancelled: asyncio.CancelledError | None = None
        while not self.is_delivered:
            try:
                await self._future
            except asyncio.CancelledError as error:
                cancelled = error
                self._future = self.loop.create_future()
        if cancelled is not None:
            raise cancelled
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def settle(self, result: T | None, error: BaseException | None) -> None:
        """What became of it; told to nobody before `deliver`."""
        self._result, self._error = result, error
        if error is not None:
            self.topics = frozenset()

    def deliver(self) -> None:
        """Called on the loop of who asked."""
        self.is_delivered = True
        if not self._future.done():
            self._future.set_result(None)
        if self.topics and self._listener is not None:
            self._listener(self.topics)


def deliver_all(jobs: Sequence[Job[Any]]) -> None:
    """Tell those who asked, from the worker's thread: each loop is woken once."""
    for loop in dict.fromkeys(job.loop for job in jobs):
        mine = [job for job in jobs if job.loop is loop]
        try:
            loop.call_soon_threadsafe(_deliver, mine)
        except RuntimeError:
            log.debug("the loop that asked for a transaction is closed")


def _deliver(jobs: Sequence[Job[Any]]) -> None:
    for job in jobs:
        job.deliver()


class Worker:
    """A thread with one connection that takes jobs from a queue (others may share it) until told to end."""

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
        # A daemon: a program that forgot to close its store must still be able to end.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._alone(job)
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
            try:
                return self._transaction(job)
            except DBAPIError as error:
                if error.connection_invalidated:
                    self._disconnect()
                if not self._is_worth_retrying(error):
                    if isinstance(error, OperationalError):
                        raise Unavailable(why=f"the database failed: {error.orig}") from error
                    raise
                if attempt == ATTEMPTS:
                    raise Unavailable(why=f"the database is busy or away: {error.orig}") from error
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
            conn = self._conn = self._engine.connect()
        try:
            driver.begin(conn)
        except DBAPIError:
            # On PostgreSQL it may have begun, and failed to get the lock.
            self._roll_back()
            raise
        return conn

    def _commit(self, conn: Connection) -> None:
        try:
            driver.commit(conn)
        except DBAPIError as error:
            # SQLite's transaction is still open then.
            self._disconnect()
            if error.connection_invalidated:
                # It may have been committed: trying again could do it twice.
                raise Unavailable(
                    why="the database went away during the commit; look before retrying"
                ) from error
            raise

    def _roll_back(self) -> None:
        conn = self._conn
        if conn is None:
            return
        if not driver.is_as_begun(conn):
            self._disconnect()
            return
        try:
            driver.roll_back(conn)
        except DBAPIError:
            log.warning("rollback failed; dropping the connection", exc_info=True)
            self._disconnect()

    def _disconnect(self) -> None:
        conn, self._conn = self._conn, None
        if conn is None:
            return
        try:
            conn.close()
        except DBAPIError:
            log.warning("closing a database connection failed", exc_info=True)
