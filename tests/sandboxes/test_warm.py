"""The warm pool: sandboxes without a record, claimed in one transaction, refilled, and never left behind."""

from __future__ import annotations

import pytest

from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import Conflict
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.requests import CreateRequest, WantedResources
from sandboxer.sandboxes.use_cases import creation
from tests.support.clock import eventually
from tests.support.sandboxes import ALICE, OpenPlatform

POOL = {"warm_pool": {"profile.agent-dev": 2}}


async def test_a_fitting_create_takes_a_warm_sandbox_and_another_is_made(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one(**POOL) as platform:
        await eventually(lambda: platform.sandboxes.warm.count() == 2)
        waiting = set(backend.boxes)
        sandbox = await creation.create(
            platform.sandboxes, CreateRequest(env={"A": "1"}, labels={"a": "b"}), ALICE
        )
        assert sandbox.id in waiting
        assert sandbox.state is State.READY
        assert "claim" in sandbox.timings_ms
        assert [event.kind for event in await platform.events.page(sandbox.id)] == [
            "sandbox.requested",
            "sandbox.provisioning",
            "sandbox.ready",
        ]
        await eventually(lambda: platform.sandboxes.warm.count() == 2)
        assert len(backend.boxes) == 3


async def test_a_create_that_asks_for_something_else_is_made_to_order(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one(**POOL) as platform:
        await eventually(lambda: platform.sandboxes.warm.count() == 2)
        waiting = set(backend.boxes)
        wanted = CreateRequest(resources=WantedResources(memory_mb=99))
        assert (await creation.create(platform.sandboxes, wanted, ALICE)).id not in waiting


async def test_a_name_that_is_taken_costs_no_warm_sandbox(open_one: OpenPlatform, backend: Scripted) -> None:
    async with open_one(**POOL) as platform:
        wanted = CreateRequest(name="dev")
        await creation.create(platform.sandboxes, wanted, ALICE)
        await eventually(lambda: platform.sandboxes.warm.count() == 2)
        waiting = set(backend.boxes)
        with pytest.raises(Conflict):
            await creation.create(platform.sandboxes, wanted, ALICE)
        assert set(backend.boxes) == waiting


async def test_the_pool_is_emptied_when_the_server_ends_and_others_stay(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one(**POOL) as platform:
        await eventually(lambda: platform.sandboxes.warm.count() == 2)
        sandbox = await creation.create(platform.sandboxes, CreateRequest(profile="profile.build"), ALICE)
    assert set(backend.boxes) == {sandbox.id}


async def test_a_warm_sandbox_that_dies_is_replaced_and_its_remains_removed(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one(**POOL) as platform:
        warm = platform.sandboxes.warm
        await eventually(lambda: warm.count() == 2)
        dead = next(iter(backend.boxes))
        backend.die(dead)
        await eventually(lambda: dead not in backend.boxes and warm.count() == 2)
