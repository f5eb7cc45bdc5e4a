"""Sandboxes that exist for one piece of work: a run of code, a build of an image.

`Endings` remove them when the work is over and after every crash. Each is listed in `run_sandboxes` in the
transaction that records it, so that the next start finds what a dead server left behind.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import Column, Connection, Index, Table, Text, delete, exists, insert, select

from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, NotFound, SandboxerError
from sandboxer.kernel.tasks import TaskOwner
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.records import sandboxes
from sandboxer.sandboxes.use_cases import creation, lifetime
from sandboxer.store.engine import Store
from sandboxer.store.metadata import UtcDateTime, metadata
from sandboxer.store.repository import Also

log = logging.getLogger(__name__)
# The platform acts as this caller when it removes what it made for a run.
CLEANER = Caller(public_key="system:execute", account="system", is_owner=True)
SWEEP_EVERY = timedelta(minutes=5)
# Longer than any run lasts: a sandbox of this age that no run of this server owns is abandoned.
UNOWNED_AFTER = timedelta(minutes=20)

run_sandboxes = Table(
    "run_sandboxes",
    metadata,
    Column("sandbox_id", Text, primary_key=True),
    Column("created_at", UtcDateTime, nullable=False),
    Index(None, "created_at"),
)


class Claim:
    """A claim holds the id of a run's sandbox once it is recorded, unless the run was given up before.

    The record is written in another thread, so both sides use a lock.
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
                raise Conflict(why="whoever asked for this run went away", hint="Ask for it again.")
            self.sandbox_id = sandbox_id
        conn.execute(insert(run_sandboxes).values(sandbox_id=sandbox_id, created_at=self._now))
        if self._also is not None:
            self._also(conn, sandbox_id)

    def give_up(self) -> str | None:
        """Prevents that a sandbox is recorded from now on; returns the id of one that was
        recorded already.
        """
        with self._lock:
            self._is_given_up = True
            return self.sandbox_id


@dataclass(slots=True, eq=False, repr=False)
class Endings:
    sandboxes: SandboxDependencies
    store: Store
    clock: Clock
    tasks: TaskOwner
    # Sandboxes of the runs that this server is executing.
    _owned: set[str] = field(default_factory=set)
    _going: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def own(self, sandbox_id: str) -> None:
        self._owned.add(sandbox_id)

    def soon(self, sandbox_id: str) -> None:
        """Removes the sandbox in the background, so that the caller need not wait."""
        self._owned.add(sandbox_id)
        task = self.tasks.start(self._remove(sandbox_id), name=f"end of run in {sandbox_id}")
        self._going[sandbox_id] = task
        task.add_done_callback(lambda _: self._going.pop(sandbox_id, None))

    async def settled(self) -> bool:
        """Returns when everything that is being removed now is gone. Returns False if nothing was."""
        if going := tuple(self._going.values()):
            await asyncio.wait(going)
        return bool(going)

    async def gone(self, sandbox_id: str) -> None:
        """Returns when the sandbox is gone or could not be removed."""
        if (going := self._going.get(sandbox_id)) is not None:
            await asyncio.wait((going,))

    async def sweep(self, *, at_start: bool = False) -> None:
        """Removes what earlier runs left behind; at the start, everything that this server does not own."""
        now = self.clock.now()
        await self.store.write(_forget_removed)
        rows = await self.store.read(_all)
        for sandbox_id, created_at in rows:
            is_old = at_start or created_at < now - UNOWNED_AFTER
            if is_old and sandbox_id not in self._owned:
                await self._remove(sandbox_id)

    async def run(self) -> None:
        """Sweeps again and again until it is cancelled."""
        while True:
            await self.clock.sleep(SWEEP_EVERY)
            try:
                await self.sweep()
            except Exception:
                # An outermost loop: one bad sweep must not end them all.
                log.exception("could not sweep after runs")

    async def _remove(self, sandbox_id: str) -> None:
        try:
            await self._destroy(sandbox_id)
        except asyncio.CancelledError:
            # The server is stopping; the row stays, and the next server removes the sandbox.
            raise
        except Exception as error:
            # The row stays: the next sweep tries again, and the sandbox's TTL limits it meanwhile.
            log.warning("sandbox %s of a run is still there: %r", sandbox_id, error)
        finally:
            self._owned.discard(sandbox_id)

    async def _destroy(self, sandbox_id: str) -> None:
        try:
            await lifetime.destroy(self.sandboxes, sandbox_id, CLEANER, despite_lock=True)
        except SandboxerError as error:
            # Its record may be being written at this moment, or something else is under way with it.
            if error.code not in ("not_found", "conflict"):
                raise
            with suppress(NotFound):
                await creation.recall(self.sandboxes, sandbox_id, CLEANER)
                await lifetime.destroy(self.sandboxes, sandbox_id, CLEANER, despite_lock=True)


def _all(conn: Connection) -> Sequence[tuple[str, datetime]]:
    query = select(run_sandboxes.c.sandbox_id, run_sandboxes.c.created_at)
    return [(row.sandbox_id, row.created_at) for row in conn.execute(query)]


def _forget_removed(conn: Connection) -> None:
    """Deletes the rows of removed sandboxes together: a write after each run would delay the next one."""
    # Each of ours is looked up by itself, since a million sandboxes may have been destroyed over time.
    is_removed = exists().where(
        sandboxes.c.id == run_sandboxes.c.sandbox_id, sandboxes.c.state == State.DESTROYED.value
    )
    conn.execute(delete(run_sandboxes).where(is_removed))
