"""The door to the database: `await store.write(fn)` and `await store.read(fn)`.

`fn(conn)` is a plain function, run in another thread inside one short transaction. It cannot await, so no
network call can hide in a transaction. It may be run again after a lost lock: it must touch nothing but
`conn`. See decision 0002.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import Connection

from sandboxer.kernel.errors import Unavailable
from sandboxer.store.claim import Claim, look
from sandboxer.store.databases import Database, Durability, open_database
from sandboxer.store.jobs import Job, Patience
from sandboxer.store.lane import Jobs, Lane
from sandboxer.store.migrate import migrate
from sandboxer.store.workers import Worker
from sandboxer.store.writer import Writer

log = logging.getLogger(__name__)
T = TypeVar("T")
CommitListener = Callable[[frozenset[str]], None]

READERS = 3
# What a request waits for at most: its turn, then its transaction.
PATIENCE = Patience(turn_s=10.0, run_s=10.0)
# Of a probe, of what is left to do when the server ends, and of the threads themselves then.
PROBE_PATIENCE = Patience(turn_s=2.0, run_s=2.0, end_s=1.0)
LAST_PATIENCE = Patience(turn_s=2.0, run_s=2.0, end_s=0.5)
WATCH_EVERY_S = 1.0


class Store:
    """One writer thread, a few reader threads. Writes happen in the order they were asked for.

    `patience` is how long a caller waits; None: for ever, for programs that have the database to themselves.
    """

    def __init__(
        self, database: Database, *, readers: int = READERS, patience: Patience | None = PATIENCE
    ) -> None:
        self.database = database
        self._patience = patience
        writes: Jobs = queue.SimpleQueue()
        reads: Jobs = queue.SimpleQueue()
        retry = database.is_worth_retrying
        writer = Writer("store-write", database.writing, writes, retry, database.claim)
        self._writing = Lane("writes", writes, [writer])
        self._reading = Lane(
            "reads",
            reads,
            [Worker(f"store-read-{number}", database.reading, reads, retry) for number in range(readers)],
        )
        self._listeners: list[CommitListener] = []
        self._is_closed = False

    async def write(self, fn: Callable[[Connection], T]) -> T:
        """What `fn` returned, after its transaction was committed; nothing of it stays if it raised.

        Once asked for, it is carried out as a whole even if the caller is cancelled; the cancellation is
        delivered when the transaction is over.
        """
        return await self._ask(self._writing, Job(fn, self._tell_listeners, self._patience))

    async def read(self, fn: Callable[[Connection], T]) -> T:
        """What `fn` returned; it saw the database as of one moment and cannot change it."""
        return await self._ask(self._reading, Job(fn, None, self._patience))

    async def probe(
        self,
        fn: Callable[[Connection], T],
        *,
        is_write: bool = True,
        patience: Patience | None = PROBE_PATIENCE,
    ) -> T:
        """As `write` or `read`, with little patience, and also while others are refused."""
        lane, listener = (self._writing, self._tell_listeners) if is_write else (self._reading, None)
        job = Job(fn, listener, patience)
        job.is_trusted = patience is not PROBE_PATIENCE
        return await self._ask(lane, job, True)

    async def watch(self) -> None:
        """For ever: see each second whether the database answers. A server's lock that was lost is taken
        again, and a server that was passed over learns of it, though nobody asks for anything."""
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
            for lane in (self._writing, self._reading):
                lane.hurry(LAST_PATIENCE)

    def on_commit(self, listener: CommitListener) -> Callable[[], None]:
        """Call `listener(topics)` on the loop after each write that announced something; returns the way out.

        Called after the commit is visible to every later read. Must be quick and must not raise.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def close(self) -> None:
        """Finish what was asked for, then let go of the database. Idempotent.

        A thread that hangs is cut off, and after that left behind.
        """
        if self._is_closed:
            return
        self._is_closed = True
        for lane in (self._writing, self._reading):
            lane.end()
        await asyncio.to_thread(self._join)

    async def _ask(self, lane: Lane, job: Job[T], is_probe: bool = False) -> T:
        if self._is_closed:
            raise Unavailable(why="the store is closed")
        return await lane.ask(job, is_probe=is_probe)

    def _tell_listeners(self, topics: frozenset[str]) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(topics)
            except Exception:
                log.exception("a commit listener failed")

    def _join(self) -> None:
        lanes = (self._writing, self._reading)
        # Whoever is known to hang is not waited for.
        wait_s = 0.0 if any(lane.is_away for lane in lanes) else self._closes_within_s
        if not _all_ended(lanes, wait_s):
            for lane in lanes:
                lane.cut()
            if not _all_ended(lanes, LAST_PATIENCE.end_s):
                log.error("a thread hangs in the database; it is left behind")
                return
        self.database.dispose()

    @property
    def _closes_within_s(self) -> float | None:
        return None if self._patience is None else self._patience.run_s


def _all_ended(lanes: Sequence[Lane], within_s: float | None) -> bool:
    """All of them together have this long: threads that hang must not be waited for one after the other."""
    until = None if within_s is None else time.monotonic() + within_s
    ended = [lane.join(until) for lane in lanes]
    return all(ended)


def open_store(
    url: str,
    *,
    durability: Durability = "normal",
    claim: Claim | None = None,
    patience: Patience | None = PATIENCE,
) -> Store:
    """A store whose schema is up to date. Blocks while it migrates: call it before serving.

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
