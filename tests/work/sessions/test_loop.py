"""The loop that ends sessions whose time is over: no tenant's trouble may keep the others' alive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import cast

from sandboxer.backends.guest import Exit, Process
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.settings import Settings
from sandboxer.wiring import open_platform
from sandboxer.work.sessions.attached import Attached
from sandboxer.work.sessions.records import State
from tests.support.http.served import eventually
from tests.support.sessions import over


async def test_a_session_that_cannot_be_ended_now_does_not_keep_others_alive(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path / "state", charging=False)
    backends = {"ext.namespaces": Scripted(name="ext.namespaces")}
    async with open_platform(settings, backends=backends) as platform:
        repository = platform.sessions.repository
        stuck, other = over(repository, "acme"), over(repository, "beta")
        # As if its interpreter were being started in a sandbox that was frozen meanwhile.
        async with repository.one_at_a_time(stuck.id):
            for session in (stuck, other):
                await repository.create(session)
            await eventually(lambda: repository.of_sandbox(other.sandbox_id) == [])
            assert [one.id for one in repository.of_sandbox(stuck.sandbox_id)] == [stuck.id]
        await eventually(lambda: repository.of_sandbox(stuck.sandbox_id) == [])
        ended = await repository.find(other.id)
        assert ended is not None
        assert (ended.state, ended.reason, dict(ended.env)) == (State.ENDED, "ttl", {})


class Slow:
    """An interpreter that takes its time to end."""

    process_id = "prc_slow"

    def __init__(self) -> None:
        self.may_end = asyncio.Event()

    async def __aenter__(self) -> Slow:
        return self

    async def __aexit__(self, *error: object) -> None:
        return

    async def output(self) -> AsyncIterator[Exit]:
        await self.may_end.wait()
        yield Exit(code=0)

    async def kill(self) -> None:
        return


async def test_nothing_is_kept_of_an_interpreter_that_ends_after_its_session(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path / "state", charging=False)
    backends = {"ext.namespaces": Scripted(name="ext.namespaces")}
    async with open_platform(settings, backends=backends) as platform:
        repository, process = platform.sessions.repository, Slow()
        session = over(repository, "acme")
        async with repository.one_at_a_time(session.id):
            await repository.create(session)
            attached = Attached(
                cast(Process, process),
                repository.clock,
                kept=await repository.cells_of(session),
                is_shell=False,
                working=lambda: nullcontext(),
                when_gone=lambda gone, reason, why: repository.gone(session.id, gone, reason),
            )
            repository.attach(session.id, attached)
        await eventually(lambda: repository.of_sandbox(session.sandbox_id) == [])
        process.may_end.set()
        await attached.over.wait()
        assert repository.attached(session.id) is None
        assert repository.former(session.id) is None
