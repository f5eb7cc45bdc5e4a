"""Several that begin to run again at once: who may is decided where it is written, one after the other."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import Connection

from sandboxer.accounts import records as accounts
from sandboxer.artifacts.snapshots.use_cases import Wanted
from sandboxer.backends.contract import Presence
from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import InsufficientCredit
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, disks, pause
from sandboxer.wiring import Platform
from tests.support.charging import paying
from tests.support.sandboxes import ACTS, ALICE, OpenPlatform


async def entitle(platform: Platform) -> None:
    """To one slot."""
    now = platform.clock.now()

    def write(conn: Connection) -> None:
        accounts.ensure(conn, "alice", actor="test", now=now)
        until = now + timedelta(days=30)
        accounts.entitle(conn, "alice", tier=1, until=until, actor="test", reason="bought", now=now)

    await platform.store.write(write)


async def stopped(platform: Platform) -> str:
    sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="1h"), ALICE)
    await pause.stop(platform.sandboxes, sandbox.id, ALICE)
    return sandbox.id


@pytest.mark.parametrize("way", ["resume", "recreate"])
async def test_one_free_slot_starts_one_of_four_and_leaves_the_others_stopped(
    open_one: OpenPlatform, backend: Scripted, way: str
) -> None:
    """All four were told that the slot was free, and three were reaped a moment later."""
    async with paying(open_one) as platform:
        await entitle(platform)
        ids = [await stopped(platform) for _ in range(4)]
        again = ACTS[way]
        ended = await asyncio.gather(
            *(again(platform.sandboxes, one, ALICE) for one in ids), return_exceptions=True
        )
        (started,) = [one for one in ended if isinstance(one, Sandbox)]
        assert started.terms.is_entitled
        assert sum(isinstance(one, InsufficientCredit) for one in ended) == 3, ended
        for sandbox_id in set(ids) - {started.id}:
            kept = await platform.sandboxes.visible(sandbox_id, ALICE)
            assert kept.state is State.STOPPED
            assert kept.handle is not None
            assert (await backend.recover(kept.handle)).presence is Presence.STOPPED


@pytest.mark.parametrize("way", ["thaw", "restore"])
async def test_sats_for_one_start_one_of_two_and_leave_the_other_frozen(
    open_one: OpenPlatform, backend: Scripted, way: str
) -> None:
    async with paying(open_one, sats=130) as platform:
        ids, kept = [], {}
        for _ in range(2):
            ids.append((await creation.create(platform.sandboxes, CreateRequest(ttl="1h"), ALICE)).id)
            kept[ids[-1]] = (await platform.artifacts.snapshots.take(ids[-1], Wanted(), ALICE)).id
            await pause.freeze(platform.sandboxes, ids[-1], ALICE)

        async def start(sandbox_id: str) -> Sandbox:
            if way == "thaw":
                return await pause.thaw(platform.sandboxes, sandbox_id, ALICE)
            return await disks.restore(platform.sandboxes, sandbox_id, ALICE, kept[sandbox_id])

        ended = await asyncio.gather(*map(start, ids), return_exceptions=True)
        (started,) = [one for one in ended if isinstance(one, Sandbox)]
        (refused,) = [one for one in ended if isinstance(one, InsufficientCredit)]
        (other,) = set(ids) - {started.id}
        still = await platform.sandboxes.visible(other, ALICE)
        assert (started.state, still.state) == (State.READY, State.FROZEN), refused
        assert still.handle is not None
        assert (await backend.recover(still.handle)).presence is Presence.FROZEN
