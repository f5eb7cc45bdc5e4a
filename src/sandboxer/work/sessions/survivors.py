"""Interpreters that were kept with the memory of their sandbox go on with it: their sessions are ready again,
and in a copy each is a session of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sandboxer.backends.contract import KeepsMemory
from sandboxer.backends.guest import Guest, ProcessInfo
from sandboxer.kernel.errors import SandboxerError
from sandboxer.kernel.values import new_id
from sandboxer.sandboxes.dependencies import OpenGuest
from sandboxer.sandboxes.records import Sandbox
from sandboxer.work.sessions.records import TTL_MAX, Session, Signal, State
from sandboxer.work.sessions.repository import ACTOR, SessionRepository, Step
from sandboxer.work.sessions.use_cases import Sessions

log = logging.getLogger(__name__)
# How long all interpreters of a sandbox may take to say where they are.
GREETING_S = 10.0


class Survivors:
    """A start hook: what runs is known before anybody can use the sandbox."""

    def __init__(self, sessions: Sessions, repository: SessionRepository) -> None:
        self._sessions = sessions
        self._repository = repository

    async def check(self, requested: Sandbox, secret_refs: Sequence[str]) -> None:
        """Refuses nothing."""

    def env(self, sandbox: Sandbox) -> Mapping[str, str]:
        return {}

    async def on_start(self, sandbox: Sandbox, open_guest: OpenGuest) -> None:
        if not self._may_have_some(sandbox):
            return
        try:
            async with asyncio.timeout(GREETING_S):
                guest = await open_guest()
                for info in await guest.processes():
                    await self._take_up(sandbox, guest, info)
        except (SandboxerError, OSError) as error:
            # TimeoutError too. A session that is not found can be restarted; the sandbox is good without it.
            log.warning("interpreters in %s could not be found again: %r", sandbox.id, error)

    def _may_have_some(self, sandbox: Sandbox) -> bool:
        """Tells whether it may go on where it, or what it is a copy of, was."""
        if not isinstance(self._repository.sandboxes.backends.get(sandbox.backend), KeepsMemory):
            return False
        return sandbox.origin is not None or bool(self._repository.of_sandbox(sandbox.id))

    async def _take_up(self, sandbox: Sandbox, guest: Guest, info: ProcessInfo) -> None:
        session_id = info.process_id.partition("-")[0]
        if info.exit is not None or not session_id.startswith("ses_"):
            return
        original = await self._repository.find(session_id)
        if original is None or original.account != sandbox.account:
            return
        if original.sandbox_id == sandbox.id:
            if original.state is not State.ENDED:
                await self._go_on(original, guest, info)
            return
        await self._go_on(await self._copied(original, sandbox, info), guest, info)

    async def _copied(self, original: Session, sandbox: Sandbox, info: ProcessInfo) -> Session:
        """Records the session of a copy's interpreter. It lives as long as the original was given."""
        now = self._repository.clock.now()
        copy = replace(
            original,
            id=new_id("ses"),
            version=0,
            created_by=sandbox.created_by,
            sandbox_id=sandbox.id,
            owns_sandbox=False,
            state=State.STARTING,
            reason="requested",
            process_id=info.process_id,
            created_at=now,
            expires_at=now + min(original.expires_at - original.created_at, TTL_MAX),
            last_active_at=now,
            ended_at=None,
        )
        await self._repository.create(copy)
        return copy

    async def _go_on(self, session: Session, guest: Guest, info: ProcessInfo) -> None:
        attached = await self._sessions.attach(session, await guest.attach(info.process_id))
        await attached.tell(op="hello")
        # Its cells are numbered on from the last one.
        await attached.greeted.wait()
        found = Step(
            signal=Signal.FOUND, actor=ACTOR, reason="went_on", changes={"process_id": info.process_id}
        )
        await self._repository.move(session.id, found)
