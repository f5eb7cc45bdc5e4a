"""Opens what sessions need: the repository is read, running interpreters are found, the loop is started."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import SandboxerError
from sandboxer.kernel.tasks import own_tasks
from sandboxer.sandboxes.lifecycle import LIVE
from sandboxer.sandboxes.use_cases import SandboxUseCases
from sandboxer.store.engine import Store
from sandboxer.work.languages.images import HostImages
from sandboxer.work.sessions.lifecycle import Signal, State
from sandboxer.work.sessions.reconciler import SessionReconciler
from sandboxer.work.sessions.records import Session
from sandboxer.work.sessions.repository import ACTOR, SessionRepository, Step, over
from sandboxer.work.sessions.sessions import Sessions

log = logging.getLogger(__name__)
# For one sandbox to say what became of an interpreter in it.
ADOPT_S = 10.0


@asynccontextmanager
async def open_sessions(
    store: Store, clock: Clock, sandboxes: SandboxUseCases, images: HostImages
) -> AsyncIterator[Sessions]:
    """After `reconcile`: it must be known which sandboxes live. Leaving lets go; interpreters go on."""
    async with own_tasks() as tasks:
        repository = SessionRepository(store, clock, sandboxes, tasks)
        sessions, loop = Sessions(repository, images), SessionReconciler(repository, tasks)
        for session in await repository.load():
            await _take_up(session, sessions, repository)
        tasks.start(loop.run(), name="sessions")
        try:
            yield sessions
        finally:
            await repository.write_down()


async def _take_up(session: Session, sessions: Sessions, repository: SessionRepository) -> None:
    sandbox = repository.sandboxes.dependencies.repository.peek(session.sandbox_id)
    try:
        if sandbox is None:
            await repository.move(session.id, over(ACTOR, "sandbox_ended"))
        elif sandbox.state in LIVE:
            async with asyncio.timeout(ADOPT_S):
                await sessions.adopt(session)
        elif session.state is not State.DIED:
            reason = f"sandbox_{sandbox.state.value}"
            await repository.move(session.id, Step(signal=Signal.GONE, actor=ACTOR, reason=reason))
    except (SandboxerError, OSError) as error:
        # TimeoutError too: one sandbox that does not answer must not keep the platform from starting.
        log.warning("could not find the interpreter of %s again: %r", session.id, error)
