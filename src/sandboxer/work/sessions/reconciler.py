"""The session reconciler ends sessions whose time is over, makes them follow their sandboxes, and writes down
how far activities have extended them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from sandboxer.kernel.errors import NotFound, SandboxerError
from sandboxer.kernel.tasks import TaskOwner
from sandboxer.sandboxes.charging import is_frozen
from sandboxer.sandboxes.lifecycle import LIVE
from sandboxer.sandboxes.lifecycle import State as SandboxState
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.repository import Step as SandboxStep
from sandboxer.store.reconciler import FAR, Reconciler
from sandboxer.work.sessions.records import Session, Signal, State, end_due, look_at
from sandboxer.work.sessions.repository import ACTOR, SessionRepository, Step, over

log = logging.getLogger(__name__)
WRITE_EVERY = timedelta(seconds=30)
# A session that is busy or frozen past its idle time is checked again after this time, not in a tight loop.
LEAST_WAIT = timedelta(seconds=1)
_MAKING = frozenset({SandboxState.REQUESTED, SandboxState.PROVISIONING})
_KEPT = frozenset({SandboxState.STOPPED, SandboxState.REAPED, SandboxState.FAILED})


class SessionReconciler(Reconciler):
    def __init__(self, repository: SessionRepository, tasks: TaskOwner) -> None:
        super().__init__("sessions", repository.store, repository.clock)
        self._repository = repository
        self._tasks = tasks
        # Sessions whose time is over and that are being ended, each in a task of its own.
        self._due: set[str] = set()
        # Sessions whose sandbox has ended.
        self._bereft: set[str] = set()
        self._written_at = repository.clock.now()
        repository.on_change(self._look_again)
        repository.sandboxes.repository.on_change(self._follow)

    def _look_again(self, session: Session, steps: Sequence[Step]) -> None:
        if any(step.signal is Signal.FOUND for step in steps):
            self._bereft.discard(session.id)
        self.wake()

    def _follow(self, sandbox: Sandbox, steps: Sequence[SandboxStep]) -> None:
        for session in self._repository.of_sandbox(sandbox.id):
            if (attached := self._repository.attached(session.id)) is not None:
                attached.set_frozen(is_frozen(sandbox))
            if sandbox.state not in LIVE and sandbox.state not in _MAKING:
                self._bereft.add(session.id)
                self.wake()

    async def _round(self) -> datetime:
        while self._bereft:
            await self._bury(self._bereft.pop())
        now = self.clock.now()
        for session in self._repository.living():
            self._end_if_due(session, now)
        if self._repository.unwritten and now >= self._written_at + WRITE_EVERY:
            self._written_at = now
            await self._repository.write_down()
        moments = [
            self._look_at(session.id, look_at(session))
            for session in self._repository.living()
            if session.id not in self._due
        ]
        if self._repository.unwritten:
            moments.append(now + WRITE_EVERY)
        return max(min(moments, default=FAR), now + LEAST_WAIT)

    def _end_if_due(self, session: Session, now: datetime) -> None:
        repository, attached = self._repository, self._repository.attached(session.id)
        is_busy = attached is not None and attached.is_busy
        due = end_due(session, is_busy=is_busy, is_frozen=repository.is_frozen(session), now=now)
        if due is None or session.id in self._due or self._is_paused(session.id):
            return
        # Not awaited: a slow sandbox, or a start in progress, must not keep other sessions alive.
        self._due.add(session.id)
        self._tasks.start(self._end(session.id, due), name=f"end of {session.id}")

    async def _end(self, session_id: str, reason: str) -> None:
        async def act() -> None:
            with suppress(NotFound):
                await self._repository.end(session_id, actor=ACTOR, reason=reason)

        try:
            await self._attend(session_id, act)
        finally:
            self._due.discard(session_id)
            self.wake()

    async def _bury(self, session_id: str) -> None:
        """Handles a session whose sandbox ended: if its disk is kept it can be restarted, otherwise it is
        over.
        """
        session = self._repository.peek(session_id)
        if session is None or session_id in self._repository.ending:
            return
        sandbox = self._repository.sandboxes.repository.peek(session.sandbox_id)
        if sandbox is not None and sandbox.state in LIVE:
            return
        if sandbox is None or sandbox.state not in _KEPT:
            step = over(ACTOR, "sandbox_ended")
        elif session.state in (State.STARTING, State.READY):
            step = Step(signal=Signal.GONE, actor=ACTOR, reason=f"sandbox_{sandbox.state.value}")
        else:
            return
        try:
            await self._repository.move(session_id, step)
        except SandboxerError as error:
            log.info("session %s could not follow its sandbox: %s", session_id, error)
        except Exception:
            # The database is away for a moment: the next round tries again.
            self._bereft.add(session_id)
            raise
