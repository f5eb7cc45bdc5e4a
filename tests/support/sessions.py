"""Records of sessions, as they stand in the database."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from sandboxer.kernel.values import new_id
from sandboxer.work.sessions.records import Session, State
from sandboxer.work.sessions.repository import SessionRepository


def a_session(account: str, *, created_at: datetime, expires_at: datetime, idle: timedelta) -> Session:
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
        idle=idle,
        created_at=created_at,
        expires_at=expires_at,
        last_active_at=created_at,
    )


def over(repository: SessionRepository, account: str) -> Session:
    """One whose time is over, in a sandbox of its account."""
    now, hour = repository.clock.now(), timedelta(hours=1)
    ended = a_session(account, created_at=now - 2 * hour, expires_at=now - hour, idle=hour)
    return replace(ended, last_active_at=now)
