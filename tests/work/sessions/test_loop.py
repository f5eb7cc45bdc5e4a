"""The loop that ends sessions whose time is over: no tenant's trouble may keep the others' alive."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.kernel.ids import new_id
from sandboxer.settings import Settings
from sandboxer.wiring import open_platform
from sandboxer.work.sessions.book import SessionBook
from sandboxer.work.sessions.lifecycle import State
from sandboxer.work.sessions.records import Session
from tests.http.conftest import eventually


def over(book: SessionBook, account: str) -> Session:
    """One whose time is over, in a sandbox of its account."""
    now = book.clock.now()
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


async def test_a_session_that_cannot_be_ended_now_does_not_keep_others_alive(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path / "state", charging=False)
    backends = {"ext.namespaces": Scripted(name="ext.namespaces")}
    async with open_platform(settings, backends=backends) as platform:
        book = platform.sessions.book
        stuck, other = over(book, "acme"), over(book, "beta")
        # As if its interpreter were being started in a sandbox that was frozen meanwhile.
        async with book.one_at_a_time(stuck.id):
            for session in (stuck, other):
                await book.open(session, None)
            await eventually(lambda: book.of_sandbox(other.sandbox_id) == [])
            assert [one.id for one in book.of_sandbox(stuck.sandbox_id)] == [stuck.id]
        await eventually(lambda: book.of_sandbox(stuck.sandbox_id) == [])
        ended = await book.find(other.id)
        assert ended is not None
        assert (ended.state, ended.reason, dict(ended.env)) == (State.ENDED, "ttl", {})
