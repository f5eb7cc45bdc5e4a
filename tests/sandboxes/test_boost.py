"""More CPUs and memory for a while: at once, within bounds, and paid for exactly while it lasts."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import Connection

from sandboxer.accounts import records as accounts
from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import (
    IllegalTransition,
    InsufficientCredit,
    InvalidRequest,
    NoCapacity,
    NotFound,
)
from sandboxer.sandboxes.charging import rate_now
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import boosts, creation, lifetime, pause
from sandboxer.wiring import Platform
from tests.support.charging import RATES, paying, settled
from tests.support.clock import ManualClock, eventually
from tests.support.sandboxes import ALICE, BOB, OpenPlatform

SIZED = {**RATES, "running_msats": 0, "vcpu_msats": 1000, "frozen_memory_gb_msats": 500}


async def made(platform: Platform) -> str:
    return (await creation.create(platform.sandboxes, CreateRequest(ttl="4h"), ALICE)).id


async def test_a_boost_is_charged_from_its_moment_to_its_end(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted
) -> None:
    async with paying(open_one, sats=10_000, rates=SIZED) as platform:
        sandbox_id = await made(platform)
        clock.advance(timedelta(seconds=100))
        more = await boosts.boost(platform.sandboxes, sandbox_id, ALICE, vcpus=4)
        assert (more.resources.vcpus, more.resources.memory_mb) == (4.0, 8192)
        assert backend.boxes[sandbox_id].order.resources == more.resources
        assert rate_now(more) == 4000
        clock.advance(timedelta(seconds=50))
        await boosts.boost(platform.sandboxes, sandbox_id, ALICE, vcpus=2)
        clock.advance(timedelta(seconds=10))
        less = await boosts.unboost(platform.sandboxes, sandbox_id, ALICE)
        assert (less.resources.vcpus, less.resources.memory_mb, less.boosted_from) == (1.0, 512, None)
        assert await boosts.unboost(platform.sandboxes, sandbox_id, ALICE) == less
        clock.advance(timedelta(seconds=7))
        await lifetime.destroy(platform.sandboxes, sandbox_id, ALICE)
        assert (await settled(platform)).posted == 10_000 - (100 + 4 * 50 + 2 * 10 + 7)


async def test_what_cannot_be_given_is_refused_and_changes_nothing(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with paying(open_one, sats=700, rates=SIZED) as platform:
        sandbox_id = await made(platform)
        for vcpus in (1, 9):
            with pytest.raises(InvalidRequest):
                await boosts.boost(platform.sandboxes, sandbox_id, ALICE, vcpus=vcpus)
        with pytest.raises(NotFound):
            await boosts.boost(platform.sandboxes, sandbox_id, BOB, vcpus=2)
        backend.fail_next("resize", NoCapacity(resource="memory", why="full"))
        with pytest.raises(NoCapacity):
            await boosts.boost(platform.sandboxes, sandbox_id, ALICE, vcpus=2)
        await pause.freeze(platform.sandboxes, sandbox_id, ALICE)
        with pytest.raises(IllegalTransition):
            await boosts.boost(platform.sandboxes, sandbox_id, ALICE, vcpus=2)
        record = await platform.sandboxes.visible(sandbox_id, ALICE)
        assert (record.resources.vcpus, record.boosted_from) == (1.0, None)


async def test_a_boost_that_cannot_be_paid_for_a_minute_is_refused(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with paying(open_one, sats=200, rates=SIZED) as platform:
        sandbox_id = await made(platform)
        with pytest.raises(InsufficientCredit):
            await boosts.boost(platform.sandboxes, sandbox_id, ALICE, vcpus=8)
        assert rate_now(await platform.sandboxes.visible(sandbox_id, ALICE)) == 1000


async def test_one_slot_of_a_tier_is_one_though_two_boosts_end_at_once(open_one: OpenPlatform) -> None:
    """Both were told that the slot was free, and nobody looked again."""
    async with paying(open_one, sats=100_000, rates=SIZED) as platform:
        now = platform.clock.now()
        until = now + timedelta(days=30)

        def entitle(conn: Connection) -> None:
            accounts.ensure(conn, "alice", actor="test", now=now)
            accounts.entitle(conn, "alice", tier=1, until=until, actor="test", reason="bought", now=now)

        await platform.store.write(entitle)
        ids = [await made(platform), await made(platform)]
        for sandbox_id in ids:
            await boosts.boost(platform.sandboxes, sandbox_id, ALICE, vcpus=4)
        async with asyncio.TaskGroup() as group:
            for sandbox_id in ids:
                group.create_task(boosts.unboost(platform.sandboxes, sandbox_id, ALICE))
        peek = platform.sandboxes.repository.peek

        def entitled() -> int:
            return sum(one.terms.is_entitled for one in map(peek, ids) if one is not None)

        await eventually(lambda: entitled() == 1)
        assert (await settled(platform)).flow.rate == 1000
