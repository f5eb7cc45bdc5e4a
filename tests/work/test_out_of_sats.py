"""A run whose sandbox went because the sats ran out: that is told to who pays, not as a fault of ours."""

from __future__ import annotations

from datetime import timedelta

from sandboxer.kernel.errors import BackendLost, InsufficientCredit
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.work.execute.one_shot import lost
from tests.sandboxes.clock import ManualClock
from tests.sandboxes.conftest import ALICE, OpenPlatform, backend, clock, open_one  # noqa: F401
from tests.sandboxes.test_charging import go_dry, paying, until


async def test_a_run_that_outlived_its_sats_is_short_of_credit(
    open_one: OpenPlatform,  # noqa: F811
    clock: ManualClock,  # noqa: F811
) -> None:
    """It was answered with 503 backend_lost, as if it could be had again for nothing."""
    async with paying(open_one, sats=100) as platform:
        sandbox = await platform.sandboxes.create(CreateRequest(ttl="4h"), ALICE)
        loss = BackendLost(why="the program was killed with its sandbox")
        assert isinstance(await lost(platform.sandboxes, sandbox.id, loss), BackendLost)
        await go_dry(platform, clock, timedelta(seconds=100))
        await until(platform, sandbox.id, State.GRACE)
        await go_dry(platform, clock, timedelta(seconds=61))
        await until(platform, sandbox.id, State.REAPED)
        told = await lost(platform.sandboxes, sandbox.id, loss)
        assert isinstance(told, InsufficientCredit), told
        assert told.facts["sandbox_id"] == sandbox.id
        assert "Add credit" in str(told.facts["hint"])
