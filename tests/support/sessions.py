"""Records of sessions, as they stand in the database."""

from __future__ import annotations

from datetime import timedelta

from sandboxer.kernel.ids import new_id
from sandboxer.work.sessions.lifecycle import State
from sandboxer.work.sessions.records import Session
from sandboxer.work.sessions.repository import SessionRepository


def over(repository: SessionRepository, account: str) -> Session:
    """One whose time is over, in a sandbox of its account."""
    now = repository.clock.now()
    return Session(
        id=new_id("ses"),
        account=account,
        created_by="key",
        name=None,
        sandbox_id=new_id("sbx"),
        owns_sandbox=False,
        language="python",
        state=State.READY,
        reason="ready",
        process_id="prc_1",
        generation=1,
        env={"TOKEN": "secret"},
        cwd=None,
        idle=timedelta(hours=1),
        created_at=now - timedelta(hours=2),
        expires_at=now - timedelta(hours=1),
        last_active_at=now,
    )
