"""The loop that ends sessions whose time is over: no tenant's trouble may keep the others' alive."""

from __future__ import annotations

from pathlib import Path

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.settings import Settings
from sandboxer.wiring import open_platform
from sandboxer.work.sessions.lifecycle import State
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
