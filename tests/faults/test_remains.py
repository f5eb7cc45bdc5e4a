"""A server that dies while it writes down that a sandbox is lost leaves nothing that nobody answers for."""

from __future__ import annotations

import pytest

from sandboxer.backends.contract import Presence
from sandboxer.backends.scripted import Scripted
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation
from tests.support.sandboxes import ALICE, OpenPlatform


class Killed(BaseException):
    """The process is no more: nothing that handles errors sees it."""


async def test_remains_of_a_lost_sandbox_go_before_the_record_says_so(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
    # Its disk is gone, and its cgroup or its notes are not.
    backend.boxes[sandbox.id].presence = Presence.GONE
    backend.fail_next("teardown", Killed())  # type: ignore[arg-type]
    with pytest.raises(BaseExceptionGroup):
        async with open_one():
            pass
    async with open_one() as platform:
        assert (await platform.sandboxes.visible(sandbox.id, ALICE)).state is State.FAILED
        assert list(backend.boxes) == []
        assert await platform.sandboxes.quarantine.look() == []
