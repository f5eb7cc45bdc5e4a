"""Runs transactions: `await store.write(fn)` and `await store.read(fn)`.

`fn(conn)` is a plain function, run in another thread inside one short transaction. It cannot await, so no
network call can hide in a transaction. It may be run again after a lost lock: it must touch nothing but
`conn`. See decision 0002.

Threads that write and threads that read have a bounded queue each, which is closed while the database is
away. A queue whose jobs do not come back in time refuses new ones at once, so that callers are told to retry
instead of waiting behind each other. Who watches the store (`Store.watch`) tries again every second and opens
it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar

from sqlalchemy import Connection

from sandboxer.kernel.errors import Unavailable
from sandboxer.store.claim import Claim, look
from sandboxer.store.databases import Database, Durability, open_database
from sandboxer.store.migrations import migrate
from sandboxer.store.workers import Job, Patience, Worker, away
from sandboxer.store.writer import Writer

T = TypeVar("T")
Jobs = SimpleQueue[Job[Any] | None]

# More waiting than this means the database has stopped keeping up: say so instead of growing.
MAX_WAITING = 10_000
LATE_IN_A_ROW = 2


class JobQueue:
    def __init__(self, name: str, jobs: Jobs, workers: Sequence[Worker]) -> None:
        self._name = name
        self._jobs = jobs
        self._workers = workers
        self._under_way: set[Job[Any]] = set()
        # Only somebody who tries again by himself may close it.
        self.is_watched = False
        self.is_away = False
        self._late_in_a_row = 0
        self._late_at_most = LATE_IN_A_ROW

    async def ask(self, job: Job[T], *, is_probe: bool = False) -> T:
        if self.is_away and not is_probe:
            raise away("the database does not answer")
        if self._jobs.qsize() >= MAX_WAITING:
            raise away("the database does not keep up with what is asked of it")
        self._jobs.put(job)
        self._under_way.add(job)
        try:
            return await job.outcome()
        finally:
            self._under_way.discard(job)
            if job.is_trusted:
                self._learn(job.is_late)

    def hurry(self, patience: Patience) -> None:
        """The server ends. One that is late from now on is the last that is waited for: those who close one
        after the other would each wait as long."""
        self._late_at_most = 1
        for job in tuple(self._under_way):
            job.hurry(patience)

    def end(self) -> None:
        for _ in self._workers:
            self._jobs.put(None)

    def cut(self) -> None:
        for worker in self._workers:
            worker.interrupt()

    def join(self, until: float | None) -> bool:
        """Says whether all have ended by that moment of the monotonic clock. None waits for ever."""
        ended = [
            worker.join(None if until is None else max(0.0, until - time.monotonic()))
            for worker in self._workers
        ]
        return all(ended)

    def _learn(self, is_late: bool) -> None:
        """Learns from a job's end. One late job may be due to a busy machine; several in a row are not."""
        self._late_in_a_row = self._late_in_a_row + 1 if is_late else 0
        is_away = self._late_in_a_row >= self._late_at_most
        if self.is_watched and is_away != self.is_away:
            self.is_away = is_away
            if is_away:
                log.error("the database does not answer (%s): requests are refused until it does", self._name)
            else:
                log.warning("the database answers again (%s)", self._name)


log = logging.getLogger(__name__)
CommitListener = Callable[[frozenset[str]], None]

READERS = 3
# What a request waits for at most: its turn, then its transaction.
PATIENCE = Patience(turn_s=10.0, run_s=10.0)
# Of a probe, of what is left to do when the server ends, and of the threads themselves then.
PROBE_PATIENCE = Patience(turn_s=2.0, run_s=2.0, end_s=1.0)
LAST_PATIENCE = Patience(turn_s=2.0, run_s=2.0, end_s=0.5)
WATCH_EVERY_S = 1.0


class Store:
    """Runs transactions in one writer thread and a few reader threads. Writes happen in the order they were
    asked for.

    `patience` is how long a caller waits; None: for ever, for programs that have the database to themselves.
    """

    def __init__(
        self, database: Database, *, readers: int = READERS, patience: Patience | None = PATIENCE
    ) -> None:
        self.database = database
        self._patience = patience
        writes: Jobs = SimpleQueue()
        reads: Jobs = SimpleQueue()
        retry = database.is_worth_retrying
        writer = Writer("store-write", database.writing, writes, retry, database.claim)
        self._writing = JobQueue("writes", writes, [writer])
        self._reading = JobQueue(
            "reads",
            reads,
            [Worker(f"store-read-{number}", database.reading, reads, retry) for number in range(readers)],
        )
        self._listeners: list[CommitListener] = []
        self._is_closed = False

    async def write(self, fn: Callable[[Connection], T]) -> T:
        """Returns what `fn` returned, after its transaction was committed. Nothing of it stays if it raised.

        Once asked for, it is carried out as a whole even if the caller is cancelled; the cancellation is
        delivered when the transaction is over.
        """
        return await self._ask(self._writing, Job(fn, self._tell_listeners, self._patience))

    async def read(self, fn: Callable[[Connection], T]) -> T:
        """Returns what `fn` returned. It sees the database as of one moment and cannot change it."""
        return await self._ask(self._reading, Job(fn, None, self._patience))

    async def probe(
        self,
        fn: Callable[[Connection], T],
        *,
        is_write: bool = True,
        patience: Patience | None = PROBE_PATIENCE,
    ) -> T:
        """Does the same as `write` or `read` with a short timeout, and also while others are refused."""
        queue, listener = (self._writing, self._tell_listeners) if is_write else (self._reading, None)
        job = Job(fn, listener, patience)
        job.is_trusted = patience is not PROBE_PATIENCE
        return await self._ask(queue, job, True)

    async def watch(self) -> None:
        """Checks each second, until cancelled, whether the database answers. A server's lock that was
        lost is taken again, and a server that was passed over learns of it, though nobody asks for
        anything.
        """
        self._writing.is_watched = self._reading.is_watched = True
        try:
            while True:
                # Once the server ends nobody asks any more: who closes it would have to wait for the answer.
                if self._patience is not LAST_PATIENCE:
                    await self._see_whether_it_answers()
                await asyncio.sleep(WATCH_EVERY_S)
        finally:
            self._writing.is_watched = self._reading.is_watched = False

    async def _see_whether_it_answers(self) -> None:
        for look_at, is_write in ((look, True), (_nothing, False)):
            try:
                await self.probe(look_at, is_write=is_write, patience=self._patience)
            except Exception as error:
                log.warning("the database, asked whether it is there: %s", error)

    def hurry(self) -> None:
        """The server ends: whoever waits, or comes from now on, waits no longer than that allows."""
        if self._patience is not None:
            self._patience = LAST_PATIENCE
            for queue in (self._writing, self._reading):
                queue.hurry(LAST_PATIENCE)

    def on_commit(self, listener: CommitListener) -> Callable[[], None]:
        """Calls `listener(topics)` on the loop after each write that announced something. Returns a function
        that stops this.

        Called after the commit is visible to every later read. Must be quick and must not raise.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def close(self) -> None:
        """Finishes what was asked for, then closes the database. Idempotent.

        A thread that hangs is cut off, and after that left behind.
        """
        if self._is_closed:
            return
        self._is_closed = True
        for queue in (self._writing, self._reading):
            queue.end()
        await asyncio.to_thread(self._join)

    async def _ask(self, queue: JobQueue, job: Job[T], is_probe: bool = False) -> T:
        if self._is_closed:
            raise Unavailable(why="the store is closed")
        return await queue.ask(job, is_probe=is_probe)

    def _tell_listeners(self, topics: frozenset[str]) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(topics)
            except Exception:
                log.exception("a commit listener failed")

    def _join(self) -> None:
        queues = (self._writing, self._reading)
        # Whoever is known to hang is not waited for.
        wait_s = 0.0 if any(queue.is_away for queue in queues) else self._closes_within_s
        if not _all_ended(queues, wait_s):
            for queue in queues:
                queue.cut()
            if not _all_ended(queues, LAST_PATIENCE.end_s):
                log.error("a thread hangs in the database; it is left behind")
                return
        self.database.dispose()

    @property
    def _closes_within_s(self) -> float | None:
        return None if self._patience is None else self._patience.run_s


def _all_ended(queues: Sequence[JobQueue], within_s: float | None) -> bool:
    """Waits for all of them together: threads that hang must not be waited for one after the other."""
    until = None if within_s is None else time.monotonic() + within_s
    ended = [queue.join(until) for queue in queues]
    return all(ended)


def open_store(
    url: str,
    *,
    durability: Durability = "normal",
    claim: Claim | None = None,
    patience: Patience | None = PATIENCE,
) -> Store:
    """Opens a store and brings its schema up to date. Blocks while it migrates: call it before serving.

    `durability="full"` makes every commit survive a power cut (an fsync each); "normal" survives any crash
    of ours and loses at most the last moments before a power cut, never consistency.
    """
    database = open_database(url, durability=durability, claim=claim)
    try:
        migrate(database)
    except BaseException:
        database.dispose()
        raise
    return Store(database, patience=patience)


def _nothing(conn: Connection) -> None:
    conn.exec_driver_sql("SELECT 1").one()
