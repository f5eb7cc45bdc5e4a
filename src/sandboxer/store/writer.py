"""Lets writes that wait at the same moment share one commit, and so one flush to the disk.

Each of them stays a transaction of its own for everybody else. Later ones stand behind a savepoint, so a body
that raises takes back its own work alone. On PostgreSQL, where a savepoint is a way there and back, they do
so only for a while after one has raised; the first to raise lets its whole group be run again.

All are answered, also those that raised, only after the shared commit: what they saw of each other is then
true. If the shared transaction fails, each is run again alone. Nobody waits for company: who comes to an idle
writer is committed alone. See decision 0012.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from sandboxer.kernel.errors import Unavailable
from sandboxer.store.claim import Claim, take_session
from sandboxer.store.workers import Job, Worker, deliver_all, run_body

# PostgreSQL remembers 64 savepoints of a transaction in memory that others can look into quickly.
MOST_TOGETHER = 60
# After so long the first of them has waited enough.
LONGEST_S = 0.01
# Where savepoints are dear: how many groups get them after one would have been needed.
CAREFUL_GROUPS = 20


class _GroupFailed(Exception):
    """The shared transaction failed; nothing of it was committed."""


class _NoSavepoint(Exception):
    """There is no savepoint to go back to."""


class Writer(Worker):
    """Carries out writes in the order they were asked for."""

    _is_ending = False
    _careful_groups = 0

    def __init__(
        self,
        name: str,
        engine: Engine,
        jobs: queue.SimpleQueue[Job[Any] | None],
        is_worth_retrying: Callable[[DBAPIError], bool],
        claim: Claim | None = None,
    ) -> None:
        self._claim = claim
        super().__init__(name, engine, jobs, is_worth_retrying)

    def _work(self) -> None:
        while not self._is_ending and (job := self._jobs.get()) is not None:
            if job.take(self):
                self._busy_since = job.acquired_at
                self._together(job)
                self._busy_since = None
            del job
        self._disconnect()

    def _connect(self) -> Connection:
        """Connects, with the server's lock if this is a server's store: no session of the writer is
        without it.
        """
        conn = super()._connect()
        if self._claim is not None and conn.dialect.name != "sqlite":
            try:
                take_session(conn, self._claim)
            except BaseException:
                self._line.let_go()
                conn.close()
                raise
        return conn

    def _together(self, first: Job[Any]) -> None:
        members: list[Job[Any]] = []
        apart: Job[Any] | None = None
        is_over = True
        try:
            apart = self._shared(first, members)
        except _GroupFailed:
            is_over = False
        except BaseException as error:
            # Nobody knows what became of them; the thread must live on for the others.
            self._disconnect()
            for job in members:
                job.settle(None, error)
        if not is_over:
            for job in members:
                self._alone(job)
        deliver_all(members)
        if apart is not None:
            self._alone(apart)
            deliver_all((apart,))

    def _shared(self, first: Job[Any], members: list[Job[Any]]) -> Job[Any] | None:
        """Carries out `first` and the writes that wait behind it, which are added to `members`.

        Returns one that the database refused: it ends the group, and is tried alone after it.
        """
        members.append(first)
        try:
            conn = self._begin()
            first.settle(run_body(conn, first), None)
        except DBAPIError as error:
            self._give_up(error)
        except BaseException as error:
            self._roll_back()
            first.settle(None, error)
            return None
        apart = self._followers(conn, members)
        try:
            self._commit(conn)
        except Unavailable as error:
            for job in members:
                job.settle(None, error)
        except DBAPIError as error:
            self._give_up(error)
        return apart

    def _followers(self, conn: Connection, members: list[Job[Any]]) -> Job[Any] | None:
        until = time.monotonic() + LONGEST_S
        is_careful = conn.dialect.name == "sqlite" or self._careful_groups > 0
        savepoint = _Savepoint(conn, is_wanted=is_careful)
        self._careful_groups = max(0, self._careful_groups - 1)
        while len(members) < MOST_TOGETHER and time.monotonic() < until:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return None
            if job is None:
                self._is_ending = True
                return None
            if not job.take(self):
                continue
            members.append(job)
            try:
                savepoint.set()
            except savepoint.errors as error:
                self._give_up(error)
            if not self._behind(savepoint, conn, job):
                members.pop()
                return job
        return None

    def _behind(self, savepoint: _Savepoint, conn: Connection, job: Job[Any]) -> bool:
        """Carries out a write behind a savepoint. Returns False if the database refused it; nothing of it
        is left then, nor of one that raised.
        """
        is_refused = False
        try:
            job.settle(run_body(conn, job), None)
            return True
        except DBAPIError:
            is_refused = True
        except BaseException as error:
            job.settle(None, error)
        try:
            savepoint.undo()
        except _NoSavepoint as error:
            self._careful_groups = CAREFUL_GROUPS
            self._give_up(error)
        except savepoint.errors as error:
            self._give_up(error)
        return not is_refused

    def _give_up(self, error: BaseException) -> None:
        self._roll_back()
        if isinstance(error, DBAPIError) and error.connection_invalidated:
            self._disconnect()
        raise _GroupFailed from error


class _Savepoint:
    """Sets savepoints by the driver itself: through SQLAlchemy it would cost as much as a small
    transaction.
    """

    def __init__(self, conn: Connection, *, is_wanted: bool) -> None:
        self._driver: Any = conn.connection.driver_connection
        self._is_wanted = is_wanted
        self._is_set = False
        self._is_sqlite = conn.dialect.name == "sqlite"
        self.errors: tuple[type[BaseException], ...] = (DBAPIError, conn.dialect.loaded_dbapi.Error)

    def set(self) -> None:
        """Sets a savepoint and releases the one before, whose work now belongs to the transaction."""
        if not self._is_wanted:
            return
        if self._is_sqlite:
            if self._is_set:
                self._driver.execute("RELEASE one")
            self._driver.execute("SAVEPOINT one")
        else:
            words = "RELEASE SAVEPOINT one; SAVEPOINT one" if self._is_set else "SAVEPOINT one"
            # Two statements cannot be prepared as one.
            self._driver.execute(words, prepare=False)
        self._is_set = True

    def undo(self) -> None:
        if not self._is_wanted:
            raise _NoSavepoint
        self._driver.execute("ROLLBACK TO SAVEPOINT one")
