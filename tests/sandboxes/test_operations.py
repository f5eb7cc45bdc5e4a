"""Operations: one at a time, and the sandbox is free again however one ends."""

from __future__ import annotations

import asyncio
import errno

import pytest

from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import Conflict, Unavailable
from sandboxer.kernel.tasks import own_tasks
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.operations import Operations
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, inspection, pause
from tests.support.sandboxes import ALICE, OpenPlatform

FULL = "/var/lib/sandboxer/run/box.json"


async def test_an_operation_cut_short_before_its_first_step_lets_go_of_the_sandbox() -> None:
    async def never() -> None:
        raise AssertionError("it was cut short")

    async def act() -> str:
        return "gone"

    async with own_tasks() as tasks:
        operations = Operations(tasks)
        begun = operations.start("sbx_1", "recreate", never)
        async with asyncio.timeout(5):
            assert await operations.preempt("sbx_1", "destroy", act) == "gone"
            with pytest.raises(Conflict, match="cut short"):
                await operations.outcome(begun)
        assert operations.running("sbx_1") is None


async def test_a_full_host_is_a_typed_error_and_its_paths_stay_untold(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one() as platform:
        backend.fail_next("provision", OSError(errno.ENOSPC, "No space left on device", FULL))
        with pytest.raises(Unavailable, match="a disk of the host is full") as refused:
            await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        assert FULL not in str(refused.value)
        (failed,) = (await inspection.list_sandboxes(platform.sandboxes, ALICE)).records
        assert (failed.state, failed.reason) == (State.FAILED, "unavailable")
        assert FULL not in str(await platform.events.page(failed.id))


async def test_a_full_host_does_not_stop_what_runs(open_one: OpenPlatform, backend: Scripted) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        backend.fail_next("stop", OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(Unavailable, match="a disk of the host is full"):
            await pause.stop(platform.sandboxes, sandbox.id, ALICE)
        assert (await pause.stop(platform.sandboxes, sandbox.id, ALICE)).state is State.STOPPED
