"""Removes the sandboxes of runs, beside the answer and after every crash.

Each such sandbox is written down in the transaction that records it (`run_sandboxes`), so that what a dead
server left is found at the next start. Until then its TTL, a minute longer than its program's, holds.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Column, Connection, Index, Table, Text, delete, exists, insert, select

from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, NotFound, SandboxerError
from sandboxer.kernel.tasks import TaskOwner
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.records import sandboxes
from sandboxer.sandboxes.use_cases import SandboxUseCases
from sandboxer.store.engine import Store
from sandboxer.store.metadata import UtcDateTime, metadata
from sandboxer.store.repository import Also

log = logging.getLogger(__name__)
# The platform itself, clearing away what it made for a run.
CLEANER = Caller(public_key="system:execute", account="system", is_owner=True)
SWEEP_EVERY = timedelta(minutes=5)
# Longer than any run lasts: a sandbox that old, and nobody's here, is nobody's.
UNOWNED_AFTER = timedelta(minutes=20)

run_sandboxes = Table(
    "run_sandboxes",
    metadata,
    Column("sandbox_id", Text, primary_key=True),
    Column("created_at", UtcDateTime, nullable=False),
    Index(None, "created_at"),
)


class Claim:
    """Whose the sandbox of a run is: its id once it is recorded, unless the run was given up before that.

    The record is written in another thread, so both sides ask under a lock.
    """

    def __init__(self, now: datetime, also: Also | None = None) -> None:
        self._now = now
        self._also = also
        self._lock = threading.Lock()
        self._is_given_up = False
        self.sandbox_id: str | None = None

    def write(self, conn: Connection, sandbox_id: str) -> None:
        with self._lock:
            if self._is_given_up:
                raise Conflict(why="whoever asked for this run went away")
            self.sandbox_id = sandbox_id
        conn.execute(insert(run_sandboxes).values(sandbox_id=sandbox_id, created_at=self._now))
        if self._also is not None:
            self._also(conn, sandbox_id)

    def give_up(self) -> str | None:
        """From now on no sandbox is recorded; the id of one that was."""
        with self._lock:
            self._is_given_up = True
            return self.sandbox_id


class Endings:
    def __init__(self, sandboxes: SandboxUseCases, store: Store, clock: Clock, tasks: TaskOwner) -> None:
        self._sandboxes = sandboxes
        self._store = store
        self._clock = clock
        self._tasks = tasks
        # Sandboxes of runs that this server is busy with.
        self._owned: set[str] = set()
        self._going: dict[str, asyncio.Task[None]] = {}

    def own(self, sandbox_id: str) -> None:
        self._owned.add(sandbox_id)

    def soon(self, sandbox_id: str) -> None:
        """Remove it in the background; the caller need not wait."""
        self._owned.add(sandbox_id)
        task = self._tasks.start(self._remove(sandbox_id), name=f"end of run in {sandbox_id}")
        self._going[sandbox_id] = task
        task.add_done_callback(lambda _: self._going.pop(sandbox_id, None))

    async def settled(self) -> bool:
        """Returns when what is being removed now is gone. False: nothing was."""
        going = tuple(self._going.values())
        if going:
            await asyncio.wait(going)
        return bool(going)

    async def gone(self, sandbox_id: str) -> None:
        """Returns when it is gone, or could not be removed."""
        if (going := self._going.get(sandbox_id)) is not None:
            await asyncio.wait((going,))

    async def sweep(self, *, at_start: bool = False) -> None:
        """Remove what runs of the past left behind; at the start, all that nobody here owns."""
        now = self._clock.now()
        await self._store.write(_forget_removed)
        rows = await self._store.read(_all)
        for sandbox_id, created_at in rows:
            is_old = at_start or created_at < now - UNOWNED_AFTER
            if is_old and sandbox_id not in self._owned:
                await self._remove(sandbox_id)

    async def run(self) -> None:
        """For ever; cancel it to stop."""
        while True:
            await self._clock.sleep(SWEEP_EVERY)
            try:
                await self.sweep()
            except Exception:
                # An outermost loop: one bad sweep must not end them all.
                log.exception("could not sweep after runs")

    async def _remove(self, sandbox_id: str) -> None:
        try:
            await self._destroy(sandbox_id)
        except asyncio.CancelledError:
            # We are ending; the row stays, and the next server sweeps.
            raise
        except Exception as error:
            # The row stays: the next sweep tries again, and the sandbox's TTL holds.
            log.warning("sandbox %s of a run is still there: %r", sandbox_id, error)
        finally:
            self._owned.discard(sandbox_id)

    async def _destroy(self, sandbox_id: str) -> None:
        try:
            await self._sandboxes.destroy(sandbox_id, CLEANER, despite_lock=True)
        except NotFound:
            # Perhaps its record is being written just now.
            try:
                await self._sandboxes.recall(sandbox_id, CLEANER)
                await self._sandboxes.destroy(sandbox_id, CLEANER, despite_lock=True)
            except NotFound:
                return
        except SandboxerError as error:
            if error.code != "conflict":
                raise
            await self._sandboxes.recall(sandbox_id, CLEANER)
            await self._sandboxes.destroy(sandbox_id, CLEANER, despite_lock=True)


def _all(conn: Connection) -> Sequence[tuple[str, datetime]]:
    query = select(run_sandboxes.c.sandbox_id, run_sandboxes.c.created_at)
    return [(row.sandbox_id, row.created_at) for row in conn.execute(query)]


def _forget_removed(conn: Connection) -> None:
    """By the sweep, all at once: a write for each run would cost the next one time."""
    # Asked for each of ours: all that were ever destroyed may be a million.
    is_removed = exists().where(
        sandboxes.c.id == run_sandboxes.c.sandbox_id, sandboxes.c.state == State.DESTROYED.value
    )
    conn.execute(delete(run_sandboxes).where(is_removed))
