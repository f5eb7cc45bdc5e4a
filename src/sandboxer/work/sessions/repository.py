"""The session repository is the only writer of session records, and holds the interpreters of those that have
not ended.

How far cells extend a session is kept in memory and written down now and then, because a cell of a
millisecond must not cost a write. A crash forgets half a minute of that at most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

from sqlalchemy import Connection, Select

from sandboxer.accounts.delegation import accounts_above
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import SandboxerError, or_not_found
from sandboxer.kernel.tasks import TaskOwner
from sandboxer.observe import events
from sandboxer.sandboxes.charging import is_frozen
from sandboxer.sandboxes.demands import ended_by_money
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import LIVE
from sandboxer.sandboxes.use_cases import lifetime, pause
from sandboxer.sandboxes.use_cases.locks import is_guarded
from sandboxer.store import steps
from sandboxer.store.engine import Store
from sandboxer.store.repository import RememberedRepository
from sandboxer.store.rows import Page
from sandboxer.work.sessions import records
from sandboxer.work.sessions.attached import Attached
from sandboxer.work.sessions.records import LIFECYCLE, Session, Signal, State, bumped
from sandboxer.work.sessions.shelf import KeptCells, Shelf

log = logging.getLogger(__name__)
ACTOR = "system:sessions"
SYSTEM = Caller(public_key=ACTOR, account="system", is_owner=True)
Step = steps.Step[Session, Signal]


def over(actor: str, reason: str) -> Step:
    """Returns the step that ends a session. Its environment is deleted with it."""
    return Step(signal=Signal.END, actor=actor, reason=reason, changes={"env": {}})


class SessionRepository(RememberedRepository[Session, Step]):
    noun = "session"

    def __init__(
        self,
        store: Store,
        clock: Clock,
        sandboxes: SandboxDependencies,
        tasks: TaskOwner,
        shelf: Shelf | None = None,
    ) -> None:
        super().__init__(store, clock, records.rows, LIFECYCLE)
        self.sandboxes = sandboxes
        self._tasks = tasks
        self._shelf = shelf or Shelf()
        self._by_sandbox: dict[str, set[str]] = {}
        self._attached: dict[str, Attached] = {}
        # Interpreters that are gone; their cells can still be read.
        self._former: dict[str, Attached] = {}
        # Sessions that the platform is ending; what their sandbox does meanwhile does not matter.
        self.ending: set[str] = set()
        # Sessions whose end has moved since it was last written.
        self.unwritten: set[str] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # -- reading

    async def page(
        self, query: Select[Any], *, cursor: str | None, limit: int, oldest_first: bool = False
    ) -> Page[Session]:
        found = await super().page(query, cursor=cursor, limit=limit, oldest_first=oldest_first)
        # The memory has what was not written down yet.
        known = [self._memory.get(session.id, session) for session in found.records]
        return Page(records=known, next_cursor=found.next_cursor)

    def of_sandbox(self, sandbox_id: str) -> Sequence[Session]:
        return [self._memory[name] for name in self._by_sandbox.get(sandbox_id, ())]

    def attached(self, session_id: str) -> Attached | None:
        return self._attached.get(session_id)

    def former(self, session_id: str) -> Attached | None:
        return self._former.get(session_id)

    def is_frozen(self, session: Session) -> bool:
        sandbox = self.sandboxes.repository.peek(session.sandbox_id)
        return sandbox is not None and is_frozen(sandbox)

    @asynccontextmanager
    async def one_at_a_time(self, name: str) -> AsyncIterator[None]:
        """Serialises starts and ends of one session, and those who count a sandbox's sessions."""
        if (lock := self._locks.get(name)) is None:
            lock = self._locks[name] = asyncio.Lock()
        async with lock:
            yield

    # -- writing

    async def give_up(self, session_id: str, reason: str) -> None:
        """Ends a session whose sandbox was never made; its record may not exist either."""
        await self._look_again(session_id)
        if session_id in self._memory:
            await self.move(session_id, over(ACTOR, reason))

    async def renew(self, session_id: str, *, actor: str) -> Session:
        """Prepares the record for another interpreter."""

        def decide(session: Session) -> dict[str, object]:
            number = session.generation + 1
            return {"generation": number, "process_id": f"{session_id}-{number}"}

        step = Step(signal=Signal.RESTART, actor=actor, reason="restarted", decide=decide)
        return await self.move(session_id, step)

    def touch(self, session_id: str) -> None:
        """Extends the session after an activity."""
        if (session := self._memory.get(session_id)) is None:
            return
        self._memory[session_id] = bumped(session, now=self.clock.now())
        self.unwritten.add(session_id)

    async def write_down(self) -> None:
        """Writes how far activities have extended sessions."""
        dirty = [self._memory[name] for name in self.unwritten if name in self._memory]
        self.unwritten.clear()

        def write(conn: Connection) -> None:
            for session in dirty:
                records.save_span(conn, session)

        await self.store.write(write)

    def _record(self, conn: Connection, change: steps.Change[Session, Step]) -> None:
        session, step = change.after, change.entries[-1].step if change.entries else None
        if session.id in self.unwritten:
            records.save_span(conn, session)
        # The subject is the sandbox: whoever may see it may see the events of its sessions.
        events.record(
            conn,
            subject=session.sandbox_id,
            kind=f"session.{session.state.value}",
            actor=session.created_by if step is None else step.actor,
            reason=session.reason,
            at=change.now,
            data={"session_id": session.id, "language": session.language, "generation": session.generation},
        )

    async def _current(self, id: str) -> Session:
        """Of those that have not ended: who changes one knows it."""
        return self.known(id)

    def _remember(self, record: Session) -> None:
        if (known := self._memory.get(record.id)) is not None:
            # Only activities move its end, and one may have done so while the step was being written.
            record = replace(record, expires_at=known.expires_at, last_active_at=known.last_active_at)
        super()._remember(record)
        if record.id in self._memory:
            self._by_sandbox.setdefault(record.sandbox_id, set()).add(record.id)

    def _forget(self, record: Session) -> None:
        super()._forget(record)
        if (others := self._by_sandbox.get(record.sandbox_id)) is not None:
            others.discard(record.id)
            if not others:
                del self._by_sandbox[record.sandbox_id]
        self._former.pop(record.id, None)
        self._shelf.close(record.id)
        self.unwritten.discard(record.id)

    # -- interpreters

    async def cells_of(self, session: Session) -> KeptCells:
        """Returns where the cells of a session are kept; they count for the account at its root."""
        above = await self.store.read(lambda conn: accounts_above(conn, (session.account,)))
        return self._shelf.open(session.id, above.get(session.account, (session.account,))[0])

    def attach(self, session_id: str, attached: Attached) -> None:
        self._former.pop(session_id, None)
        self._attached[session_id] = attached
        self._tasks.start(attached.live(), name=f"interpreter of {session_id}")

    async def gone(self, session_id: str, attached: Attached, reason: str) -> None:
        """Handles the end of an interpreter, whoever wanted it."""
        if self._attached.get(session_id, attached) is not attached:
            # It goes on by another line: only this one has ended.
            return
        if self._attached.get(session_id) is attached:
            del self._attached[session_id]
            if session_id in self._memory:
                self._former[session_id] = attached
            else:
                # The session ended first: nobody would ever take this away.
                self._shelf.close(session_id)
        session = self._memory.get(session_id)
        if session is None or session.state in (State.DIED, State.ENDED) or reason == "restarted":
            return
        if session_id in self.ending:
            return
        if reason in ("killed", "lost"):
            await self.sandboxes.operations.ended(session.sandbox_id)
            session = self._memory.get(session_id, session)
            reason = self._fate(session.sandbox_id) or reason
            attached.reason = reason
            if reason.startswith("sandbox_"):
                attached.why = f"its sandbox is no longer running ({reason.removeprefix('sandbox_')})"
            if (refusal := self.ended_by_money(session)) is not None:
                attached.why = f"{refusal} {refusal.facts['hint']}"
            if session.state in (State.DIED, State.ENDED):
                # The loop recorded the end while this task waited for the reason.
                return
        try:
            await self.move(session_id, Step(signal=Signal.GONE, actor=ACTOR, reason=reason))
        except SandboxerError as error:
            log.warning("could not record the end of %s's interpreter: %s", session_id, error)
        except Exception:
            # The end of an interpreter's task: a database that is away for a moment must not end them all.
            log.exception("could not record the end of %s's interpreter", session_id)

    def ended_by_money(self, session: Session) -> SandboxerError | None:
        """Returns the error for the paying account if the sandbox ended for want of sats or at a cap."""
        sandbox = self.sandboxes.repository.peek(session.sandbox_id)
        return None if sandbox is None else ended_by_money(sandbox)

    def _fate(self, sandbox_id: str) -> str | None:
        """Returns what is happening to a sandbox whose processes have ended."""
        dependencies = self.sandboxes
        if (sandbox := dependencies.repository.peek(sandbox_id)) is None:
            return "sandbox_destroyed"
        if sandbox.state not in LIVE:
            return f"sandbox_{sandbox.state.value}"
        under_way = dependencies.operations.running(sandbox_id)
        names = {"money": "reaped", "stop": "stopped", "destroy": "destroyed", "death": "failed"}
        return None if under_way is None else f"sandbox_{names.get(under_way, under_way)}"

    # -- ending

    async def end(self, session_id: str, *, actor: str, reason: str, despite_lock: bool = False) -> Session:
        """Ends the session. One that has ended already counts as success."""
        async with self.one_at_a_time(session_id):
            session = or_not_found(await self.find(session_id), what="session", id=session_id)
            if session.state is State.ENDED:
                return session
            self.ending.add(session_id)
            try:
                if session.owns_sandbox:
                    await self._end_sandbox(session, despite_lock=despite_lock)
                elif (attached := self._attached.get(session_id)) is not None:
                    await attached.kill("ended", "the session was ended")
                return await self.move(session_id, over(actor, reason))
            finally:
                self.ending.discard(session_id)

    async def _end_sandbox(self, session: Session, *, despite_lock: bool) -> None:
        if (sandbox := self.sandboxes.repository.peek(session.sandbox_id)) is None:
            return
        if is_guarded(sandbox) and not despite_lock:
            # As whenever the time of a locked sandbox is over: its processes end and its disk is kept.
            if sandbox.state in LIVE:
                if is_frozen(sandbox):
                    await pause.thaw(self.sandboxes, sandbox.id, SYSTEM)
                await pause.stop(self.sandboxes, sandbox.id, SYSTEM)
            return
        await lifetime.destroy(self.sandboxes, sandbox.id, SYSTEM, despite_lock=despite_lock)
