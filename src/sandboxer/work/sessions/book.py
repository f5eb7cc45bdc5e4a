"""The book of sessions: the only writer of their records, a memory of all that have not ended, and the loop
that ends those whose time is over.

What every cell adds to a session's end is kept in memory and written down now and then: a cell of a
millisecond must not cost a write. A crash forgets half a minute of it at most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from weakref import WeakValueDictionary

from sqlalchemy import Connection

from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import NotFound, SandboxerError
from sandboxer.kernel.tasks import TaskOwner
from sandboxer.sandboxes.book import Also, Step
from sandboxer.sandboxes.charging import is_frozen
from sandboxer.sandboxes.lifecycle import LIVE
from sandboxer.sandboxes.lifecycle import State as SandboxState
from sandboxer.sandboxes.locks import is_guarded
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.use_cases import SandboxUseCases
from sandboxer.store.engine import Store
from sandboxer.work.sessions import lifetime, records
from sandboxer.work.sessions.attached import Attached
from sandboxer.work.sessions.lifecycle import Signal, State, next_state
from sandboxer.work.sessions.records import Page, Session

log = logging.getLogger(__name__)
ACTOR = "system:sessions"
SYSTEM = Caller(public_key=ACTOR, account="system", is_owner=True)
WRITE_EVERY = timedelta(seconds=30)
# A session whose end failed is tried again after this.
RETRY = timedelta(seconds=30)
_MAKING = frozenset({SandboxState.REQUESTED, SandboxState.PROVISIONING})
_KEPT = frozenset({SandboxState.STOPPED, SandboxState.REAPED, SandboxState.FAILED})


class SessionBook:
    def __init__(self, store: Store, clock: Clock, sandboxes: SandboxUseCases, tasks: TaskOwner) -> None:
        self._store = store
        self.clock = clock
        self.sandboxes = sandboxes
        self._tasks = tasks
        self._memory: dict[str, Session] = {}
        self._by_sandbox: dict[str, set[str]] = {}
        self._attached: dict[str, Attached] = {}
        # Those whose interpreter is gone: their cells can still be read.
        self._former: dict[str, Attached] = {}
        # Being ended by us: what their sandbox does meanwhile is no news.
        self._ending: set[str] = set()
        # Whose time is over, and who are being ended for it, each in a task of its own.
        self._due: set[str] = set()
        self._unwritten: set[str] = set()
        self._written_at = clock.now()
        self._not_before: dict[str, datetime] = {}
        self._changed: asyncio.Queue[str] = asyncio.Queue()
        self._stirred = asyncio.Event()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        sandboxes.room.book.on_change(self._hear)

    # -- reading

    async def load(self) -> Sequence[Session]:
        living = await self._store.read(records.load_living)
        for session in living:
            self.remember(session)
        return living

    async def find(self, session_id: str) -> Session | None:
        known = self._memory.get(session_id)
        if known is not None:
            return known
        return await self._store.read(lambda conn: records.load_session(conn, session_id))

    async def page(
        self,
        *,
        account: str | None,
        sandbox_id: str | None,
        state: State | None,
        cursor: str | None,
        limit: int,
    ) -> Page:
        found = await self._store.read(
            lambda conn: records.load_page(
                conn, account=account, sandbox_id=sandbox_id, state=state, cursor=cursor, limit=limit
            )
        )
        # In memory is what was not written down yet.
        known = [self._memory.get(session.id, session) for session in found.sessions]
        return Page(sessions=known, next_cursor=found.next_cursor)

    def of_sandbox(self, sandbox_id: str) -> Sequence[Session]:
        return [self._memory[name] for name in self._by_sandbox.get(sandbox_id, ())]

    def attached(self, session_id: str) -> Attached | None:
        return self._attached.get(session_id)

    def former(self, session_id: str) -> Attached | None:
        return self._former.get(session_id)

    def is_frozen(self, session: Session) -> bool:
        sandbox = self.sandboxes.room.book.peek(session.sandbox_id)
        return sandbox is not None and is_frozen(sandbox)

    @asynccontextmanager
    async def one_at_a_time(self, name: str) -> AsyncIterator[None]:
        """Starts and ends of one session never overlap; nor do two who count a sandbox's sessions."""
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        async with lock:
            yield

    # -- writing

    async def open(self, session: Session, also: Also | None) -> Session:
        await self._store.write(lambda conn: self.insert(conn, session, also))
        return self.remember(session)

    def insert(self, conn: Connection, session: Session, also: Also | None) -> None:
        """In the transaction of whoever makes its sandbox."""
        records.insert_session(conn, session)
        if also is not None:
            also(conn, session.id)

    def remember(self, session: Session) -> Session:
        self._memory[session.id] = session
        self._by_sandbox.setdefault(session.sandbox_id, set()).add(session.id)
        self._stirred.set()
        return session

    async def give_up(self, session_id: str, reason: str) -> None:
        """Of one whose sandbox never came to be; maybe not even its record did."""
        found = await self.find(session_id)
        if found is not None and found.state is not State.ENDED:
            self.remember(found)
            await self.move(session_id, Signal.END, actor=ACTOR, reason=reason)

    async def move(
        self, session_id: str, signal: Signal, *, actor: str, reason: str, process_id: str | None = None
    ) -> Session:
        before = self._known(session_id)
        now = self.clock.now()
        after = replace(
            before,
            state=next_state(before.state, signal),
            reason=reason,
            process_id=process_id or before.process_id,
            ended_at=now if signal is Signal.END else None,
            # What it was told is not kept longer than it.
            env={} if signal is Signal.END else before.env,
        )
        # First in memory: what comes in between must see where it goes.
        self.remember(after)
        await self._store.write(lambda conn: records.replace_session(conn, after, actor=actor, now=now))
        if after.state is State.ENDED:
            self._forget(session_id)
        return after

    async def renew(self, session_id: str, *, actor: str) -> Session:
        """For another interpreter."""
        before = self._known(session_id)
        number = before.generation + 1
        after = replace(
            before,
            state=next_state(before.state, Signal.RESTART),
            reason="restarted",
            generation=number,
            process_id=f"{session_id}-{number}",
        )
        now = self.clock.now()
        self.remember(after)
        await self._store.write(lambda conn: records.replace_session(conn, after, actor=actor, now=now))
        return after

    def touch(self, session_id: str) -> None:
        """An activity: the end moves."""
        session = self._memory.get(session_id)
        if session is None:
            return
        span = lifetime.bumped(session.span, now=self.clock.now())
        self._memory[session_id] = replace(
            session, expires_at=span.expires_at, last_active_at=span.last_active
        )
        self._unwritten.add(session_id)

    # -- interpreters

    def attach(self, session_id: str, attached: Attached) -> None:
        self._former.pop(session_id, None)
        self._attached[session_id] = attached
        self._tasks.start(attached.live(), name=f"interpreter of {session_id}")

    async def gone(self, session_id: str, attached: Attached, reason: str) -> None:
        """An interpreter ended, whoever wanted it."""
        if self._attached.get(session_id) is attached:
            del self._attached[session_id]
            self._former[session_id] = attached
        session = self._memory.get(session_id)
        if session is None or session.state in (State.DIED, State.ENDED) or reason == "restarted":
            return
        if session_id in self._ending:
            return
        if reason in ("killed", "lost"):
            reason = self._fate(session.sandbox_id) or reason
            attached.reason = reason
            if reason.startswith("sandbox_"):
                attached.why = f"its sandbox is no longer running ({reason.removeprefix('sandbox_')})"
        try:
            await self.move(session_id, Signal.GONE, actor=ACTOR, reason=reason)
        except SandboxerError as error:
            log.warning("could not record the end of %s's interpreter: %s", session_id, error)
        except Exception:
            # The end of an interpreter's task: a database that is away for a moment must not end them all.
            log.exception("could not record the end of %s's interpreter", session_id)

    def _fate(self, sandbox_id: str) -> str | None:
        """What is happening to a sandbox whose processes went."""
        room = self.sandboxes.room
        sandbox = room.book.peek(sandbox_id)
        if sandbox is None:
            return "sandbox_destroyed"
        if sandbox.state not in LIVE:
            return f"sandbox_{sandbox.state.value}"
        under_way = room.operations.running(sandbox_id)
        names = {"money": "reaped", "stop": "stopped", "destroy": "destroyed", "death": "failed"}
        return None if under_way is None else f"sandbox_{names.get(under_way, under_way)}"

    # -- ending

    async def end(self, session_id: str, *, actor: str, reason: str, despite_lock: bool = False) -> Session:
        """Ended already is success."""
        async with self.one_at_a_time(session_id):
            session = await self.find(session_id)
            if session is None:
                raise NotFound(what="session", id=session_id)
            if session.state is State.ENDED:
                return session
            self._ending.add(session_id)
            try:
                if session.owns_sandbox:
                    await self._end_sandbox(session, despite_lock=despite_lock)
                elif (attached := self._attached.get(session_id)) is not None:
                    await attached.kill("ended", "the session was ended")
                return await self.move(session_id, Signal.END, actor=actor, reason=reason)
            finally:
                self._ending.discard(session_id)

    async def _end_sandbox(self, session: Session, *, despite_lock: bool) -> None:
        sandbox = self.sandboxes.room.book.peek(session.sandbox_id)
        if sandbox is None:
            return
        if is_guarded(sandbox) and not despite_lock:
            # As at the end of any locked sandbox's time: its processes are over, its disk is kept.
            if sandbox.state in LIVE:
                if is_frozen(sandbox):
                    await self.sandboxes.thaw(sandbox.id, SYSTEM)
                await self.sandboxes.stop(sandbox.id, SYSTEM)
            return
        await self.sandboxes.destroy(sandbox.id, SYSTEM, despite_lock=despite_lock)

    def _known(self, session_id: str) -> Session:
        session = self._memory.get(session_id)
        if session is None:
            raise NotFound(what="session", id=session_id)
        return session

    def _forget(self, session_id: str) -> None:
        session = self._memory.pop(session_id, None)
        if session is not None and (others := self._by_sandbox.get(session.sandbox_id)) is not None:
            others.discard(session_id)
            if not others:
                del self._by_sandbox[session.sandbox_id]
        self._former.pop(session_id, None)
        self._unwritten.discard(session_id)
        self._not_before.pop(session_id, None)

    # -- the loop

    def _hear(self, sandbox: Sandbox, steps: Sequence[Step]) -> None:
        for session in self.of_sandbox(sandbox.id):
            if (attached := self._attached.get(session.id)) is not None:
                attached.set_frozen(is_frozen(sandbox))
            if sandbox.state not in LIVE and sandbox.state not in _MAKING:
                self._changed.put_nowait(session.id)
                self._stirred.set()

    async def run(self) -> None:
        """For ever; cancel it to stop."""
        while True:
            self._stirred.clear()
            try:
                await self._turn()
            except Exception:
                # An outermost loop: what failed is looked at again in the next turn.
                log.exception("the sessions' loop met a fault")
            await self._pause(self.clock.now())

    async def _turn(self) -> None:
        await self._bury()
        now = self.clock.now()
        for session in tuple(self._memory.values()):
            self._look_at(session, now)
        if self._unwritten and now >= self._written_at + WRITE_EVERY:
            self._written_at = now
            await self.write_down()

    async def write_down(self) -> None:
        dirty = [self._memory[name] for name in self._unwritten if name in self._memory]
        self._unwritten.clear()

        def write(conn: Connection) -> None:
            for session in dirty:
                records.save_session(conn, session)

        await self._store.write(write)

    async def _pause(self, now: datetime) -> None:
        moments = [
            max(lifetime.look_at(session.span), self._not_before.get(session.id, now))
            for session in self._memory.values()
            if session.id not in self._due
        ]
        if self._unwritten:
            moments.append(now + WRITE_EVERY)
        if not moments:
            await self._stirred.wait()
            return
        # At least a second: one that is busy or frozen past its idle time is looked at again, not in a loop.
        delay = max(timedelta(seconds=1), min(moments) - now)
        sleeping = asyncio.ensure_future(self.clock.sleep(delay))
        waking = asyncio.ensure_future(self._stirred.wait())
        try:
            await asyncio.wait({sleeping, waking}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            waking.cancel()

    def _look_at(self, session: Session, now: datetime) -> None:
        attached = self._attached.get(session.id)
        is_busy = attached is not None and attached.is_busy
        due = lifetime.end_due(session.span, is_busy=is_busy, is_frozen=self.is_frozen(session), now=now)
        if due is None or session.id in self._due or now < self._not_before.get(session.id, now):
            return
        # Not awaited: a sandbox that answers slowly, or a start under way, must not keep the others alive.
        self._due.add(session.id)
        self._tasks.start(self._attempt_end(session.id, due), name=f"end of {session.id}")

    async def _attempt_end(self, session_id: str, reason: str) -> None:
        try:
            await self.end(session_id, actor=ACTOR, reason=reason)
        except NotFound:
            return
        except Exception:
            # An outermost loop: one session's trouble must not keep the others alive for ever.
            log.exception("could not end session %s", session_id)
            self._not_before[session_id] = self.clock.now() + RETRY
        finally:
            self._due.discard(session_id)

    async def _bury(self) -> None:
        """Sessions whose sandbox ended: with a kept disk they can be started again, else they are over."""
        while not self._changed.empty():
            session = self._memory.get(self._changed.get_nowait())
            if session is None or session.id in self._ending:
                continue
            sandbox = self.sandboxes.room.book.peek(session.sandbox_id)
            if sandbox is not None and sandbox.state in LIVE:
                continue
            if sandbox is not None and sandbox.state in _KEPT:
                if session.state in (State.STARTING, State.READY):
                    reason = f"sandbox_{sandbox.state.value}"
                    await self._attempt_move(session.id, Signal.GONE, reason)
            else:
                await self._attempt_move(session.id, Signal.END, "sandbox_ended")

    async def _attempt_move(self, session_id: str, signal: Signal, reason: str) -> None:
        try:
            await self.move(session_id, signal, actor=ACTOR, reason=reason)
        except SandboxerError as error:
            log.info("session %s could not follow its sandbox: %s", session_id, error)
