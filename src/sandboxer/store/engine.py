"""The door to the database: `await store.write(fn)` and `await store.read(fn)`.

`fn(conn)` is a plain function, run in another thread inside one short transaction. It cannot await, so no
network call can hide in a transaction. It may be run again after a lost lock: it must touch nothing but
`conn`. See docs/decisions/0002.
"""

from __future__ import annotations

import asyncio
import logging
import queue
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection

from sandboxer.kernel.errors import Unavailable
from sandboxer.store.databases import Database, Durability, open_database
from sandboxer.store.migrate import migrate
from sandboxer.store.workers import Job, Worker
from sandboxer.store.writer import Writer

log = logging.getLogger(__name__)
T = TypeVar("T")
CommitListener = Callable[[frozenset[str]], None]

READERS = 3
# More waiting than this means the database has stopped keeping up: say so instead of growing.
MAX_WAITING = 10_000


class Store:
    """One writer thread, a few reader threads. Writes happen in the order they were asked for."""

    def __init__(self, database: Database, *, readers: int = READERS) -> None:
        self.database = database
        self._writes: queue.SimpleQueue[Job[Any] | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[Job[Any] | None] = queue.SimpleQueue()
        retry = database.is_worth_retrying
        self._writer = Writer("store-write", database.writing, self._writes, retry)
        self._readers = [
            Worker(f"store-read-{number}", database.reading, self._reads, retry) for number in range(readers)
        ]
        self._listeners: list[CommitListener] = []
        self._is_closed = False

    async def write(self, fn: Callable[[Connection], T]) -> T:
        """What `fn` returned, after its transaction was committed; nothing of it stays if it raised.

        Once asked for, it is carried out as a whole even if the caller is cancelled; the cancellation is
        delivered when the transaction is over.
        """
        return await self._ask(self._writes, Job(fn, self._tell_listeners))

    async def read(self, fn: Callable[[Connection], T]) -> T:
        """What `fn` returned; it saw the database as of one moment and cannot change it."""
        return await self._ask(self._reads, Job(fn, None))

    def on_commit(self, listener: CommitListener) -> Callable[[], None]:
        """Call `listener(topics)` on the loop after each write that announced something; returns the way out.

        Called after the commit is visible to every later read. Must be quick and must not raise.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def close(self) -> None:
        """Finish what was asked for, then let go of the database. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._writes.put(None)
        for _ in self._readers:
            self._reads.put(None)
        await asyncio.to_thread(self._join)

    async def _ask(self, jobs: queue.SimpleQueue[Job[Any] | None], job: Job[T]) -> T:
        if self._is_closed:
            raise Unavailable(why="the store is closed")
        if jobs.qsize() >= MAX_WAITING:
            raise Unavailable(why="the database does not keep up with what is asked of it")
        jobs.put(job)
        return await job.outcome()

    def _tell_listeners(self, topics: frozenset[str]) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(topics)
            except Exception:
                log.exception("a commit listener failed")

    def _join(self) -> None:
        for worker in (self._writer, *self._readers):
            worker.join()
        self.database.dispose()


def open_store(url: str, *, durability: Durability = "normal") -> Store:
    """A store whose schema is up to date. Blocks while it migrates: call it before serving.

    `durability="full"` makes every commit survive a power cut (an fsync each); "normal" survives any crash
    of ours and loses at most the last moments before a power cut, never consistency.
    """
    database = open_database(url, durability=durability)
    try:
        migrate(database)
    except BaseException:
        database.dispose()
        raise
    return Store(database)
