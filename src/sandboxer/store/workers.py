"""Carries out transactions in threads with one connection each.

A thread with its own queue and its own open connection costs a third of a pooled executor plus a pooled
connection, and this path is walked by every request.

Describes one requested transaction: who waits for it, and for how long.

A job waits so long for its turn; one that never had it was not done, and its caller is told so. One that a
thread has in hand is interrupted when its time is over. If even that does not end it, its caller is told that
nobody knows: a thread that hangs in the kernel must not take every caller with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, OperationalError

from sandboxer.kernel.errors import Broken, FateUnknown, Unavailable
from sandboxer.kernel.program import late
from sandboxer.kernel.values import value_class
from sandboxer.store.databases import begin, commit, is_as_begun, roll_back

T = TypeVar("T")
RETRY_AFTER_S = 2


@value_class
class Patience:
    """Limits how long a job waits for its turn, may then take, and is waited for after it was interrupted."""

    turn_s: float
    run_s: float
    end_s: float = 2.0


class Interruptible(Protocol):
    """The thread that carries out a job and can be interrupted."""

    def interrupt(self, *, busy_for_s: float) -> None: ...


def away(why: str) -> Unavailable:
    return Unavailable(why=why, retry_after_s=RETRY_AFTER_S, hint="Retry in a few seconds.")


class Job(Generic[T]):
    """One requested transaction, and how its result reaches the caller."""

    __slots__ = (
        "_error",
        "_future",
        "_is_given_up",
        "_listener",
        "_patience",
        "_places",
        "_result",
        "_timer",
        "_worker",
        "acquired_at",
        "fn",
        "is_delivered",
        "is_late",
        "is_trusted",
        "loop",
        "topics",
    )

    def __init__(
        self,
        fn: Callable[[Connection], T],
        listener: Callable[[frozenset[str]], None] | None,
        patience: Patience | None = None,
    ) -> None:
        self.fn = fn
        self.topics: frozenset[str] = frozenset()
        self.is_delivered = False
        # It did not come in time: the database, or the queue before it, is not well.
        self.is_late = False
        # One with little patience says nothing of those who have more, and must not end what they wait for.
        self.is_trusted = True
        self.loop = asyncio.get_running_loop()
        self.acquired_at = 0.0
        self._future: asyncio.Future[None] = self.loop.create_future()
        self._listener = listener
        self._result: T | None = None
        self._error: BaseException | None = None
        self._is_given_up = False
        # Whoever takes the one place has it: the worker to carry it out, or its caller to withdraw it.
        self._places = [True]
        self._worker: Interruptible | None = None
        self._patience = patience
        self._timer: asyncio.TimerHandle | None = None
        if patience is not None:
            self._timer = self.loop.call_later(patience.turn_s, self._turn_is_over)

    def take(self, worker: Interruptible | None = None) -> bool:
        """Marks the job as begun. Returns False if its caller has withdrawn it: then nothing may be done."""
        try:
            self._places.pop()
        except IndexError:
            return False
        self._worker, self.acquired_at = worker, time.monotonic()
        return True

    def is_overdue(self) -> bool:
        """Says whether it is too late to try it (again)."""
        return self._patience is not None and time.monotonic() - self.acquired_at >= self._patience.run_s

    def hurry(self, patience: Patience) -> None:
        """Shortens the time that it still has. Called on the loop."""
        if self._timer is None or self.is_delivered or self._is_given_up:
            return
        self._timer.cancel()
        self._patience = patience
        left = patience.turn_s if self._places else patience.run_s
        self._timer = self.loop.call_later(left, self._turn_is_over)

    async def outcome(self) -> T:
        """Returns the result once the transaction is over.

        If the caller is cancelled meanwhile, the cancellation waits for that too: whoever cleans up
        afterwards never races the transaction it gave up on.
        """
        cancelled: asyncio.CancelledError | None = None
        while not (self.is_delivered or self._is_given_up):
            try:
                await self._future
            except asyncio.CancelledError as error:
                cancelled = error
                self._future = self.loop.create_future()
        if cancelled is not None:
            raise cancelled
        if self._is_given_up and not self.is_delivered:
            raise self._unknown()
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def settle(self, result: T | None, error: BaseException | None) -> None:
        """Records the result. The caller gets it with `deliver`."""
        self._result, self._error = result, error
        if error is not None:
            self.topics = frozenset()

    def deliver(self) -> None:
        """Gives the result to the caller. Called on the caller's loop."""
        self.is_delivered = True
        self._wake()
        if self.topics and self._listener is not None:
            self._listener(self.topics)

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._future.done():
            self._future.set_result(None)

    def _turn_is_over(self) -> None:
        self.is_late = True
        if self.take():
            self.settle(None, away("the database does not answer; nothing of this was done"))
            self.deliver()
            return
        patience = self._patience or Patience(turn_s=0, run_s=0)
        left = self.acquired_at + patience.run_s - time.monotonic()
        # Whoever was taken in the meantime has the time of its transaction still before it.
        self.is_late = left <= 0
        self._timer = self.loop.call_later(max(0.0, left), self._run_is_over)

    def _run_is_over(self) -> None:
        self.is_late = True
        patience = self._patience or Patience(turn_s=0, run_s=0)
        if self._worker is not None and self.is_trusted:
            self._worker.interrupt(busy_for_s=patience.run_s * 0.9)
        self._timer = self.loop.call_later(patience.end_s, self._give_up)

    def _give_up(self) -> None:
        log.error("a transaction does not end although its connection was cut; its caller goes on without it")
        self._is_given_up = True
        self._wake()

    def _unknown(self) -> Unavailable:
        if self._listener is None:
            return away("the database does not answer")
        return FateUnknown(
            why="the database does not answer, and the transaction had begun", retry_after_s=RETRY_AFTER_S
        )


def deliver_all(jobs: Sequence[Job[Any]]) -> None:
    """Delivers results to the callers, from the worker's thread. Each loop is woken once."""
    for loop in dict.fromkeys(job.loop for job in jobs):
        mine = [job for job in jobs if job.loop is loop]
        try:
            loop.call_soon_threadsafe(_deliver, mine)
        except RuntimeError:
            log.debug("the loop that asked for a transaction is closed")


def _deliver(jobs: Sequence[Job[Any]]) -> None:
    for job in jobs:
        job.deliver()


if TYPE_CHECKING:
    import psycopg
else:
    psycopg = late("psycopg")

log = logging.getLogger(__name__)

ATTEMPTS = 4
_FIRST_PAUSE_S = 0.01
_TOPICS = "sandboxer.topics"


def announce(conn: Connection, *topics: str) -> None:
    """Announces `topics` to listeners of `Store.on_commit` once this transaction is committed."""
    conn.info.setdefault(_TOPICS, set()).update(topics)


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
        if (since := self._busy_since) is not None and time.monotonic() - since >= busy_for_s:
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
        if (conn := self._conn) is None:
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
        if (conn := self._conn) is None:
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
