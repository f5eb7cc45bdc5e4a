"""A spending cap also bounds what is kept: a snapshot costs nothing from the moment its cap is reached."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from sandboxer.accounts.caps import Caps
from sandboxer.artifacts.images.published.keeper import by_money
from sandboxer.artifacts.snapshots.desk import Wanted
from sandboxer.artifacts.snapshots.lifecycle import Signal, State
from sandboxer.artifacts.snapshots.records import Snapshot
from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import InsufficientCredit
from sandboxer.money.dryness import Standing
from sandboxer.sandboxes.capping import Reached
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.wiring import Platform
from tests.sandboxes.clock import ManualClock
from tests.sandboxes.conftest import ALICE, OpenPlatform
from tests.sandboxes.test_charging import RATES, paying, settled
from tests.sandboxes.test_charging_caps import cap

# A sat a second for a snapshot of up to a MB, and nothing for what runs.
KEPT = {**RATES, "running_msats": 0, "stored_disk_gb_msats": 1_024_000}


async def kept(platform: Platform, backend: Scripted) -> Snapshot:
    sandbox = await platform.sandboxes.create(CreateRequest(ttl="4h"), ALICE)
    backend.boxes[sandbox.id].disk.write("/root/x", b"x")
    return await platform.artifacts.snapshots.take(sandbox.id, Wanted(), ALICE)


async def becomes(platform: Platform, snapshot: Snapshot, state: State) -> Snapshot:
    deadline = asyncio.get_running_loop().time() + 5
    while (found := await platform.artifacts.snapshots.get(snapshot.id, ALICE)).state is not state:
        assert asyncio.get_running_loop().time() < deadline, f"it stays {found.state}"
        await asyncio.sleep(0.005)
    return found


@pytest.mark.parametrize("name", ["per_key_sats", "per_day_sats"])
async def test_a_snapshot_is_kept_without_charge_once_its_cap_is_reached(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted, name: str
) -> None:
    async with paying(open_one, sats=10_000, rates=KEPT) as platform:
        await cap(platform, Caps(**{name: 100}))
        snapshot = await kept(platform, backend)
        assert snapshot.rate_msats == 1000
        # Noticed late, and charged up to the very moment.
        clock.advance(timedelta(hours=2))
        unpaid = await becomes(platform, snapshot, State.UNPAID)
        assert unpaid.reason == "spending_cap"
        bucket = await settled(platform)
        assert (bucket.posted, bucket.flow.rate) == (9900, 0)
        (event,) = [e for e in await platform.events.page(snapshot.id) if e.kind == "snapshot.unpaid"]
        assert (event.data["cap"], event.data["limit_sats"]) == (name, 100)
        clock.advance(timedelta(days=1))
        if name == "per_key_sats":
            await asyncio.sleep(0.05)
            assert (await platform.artifacts.snapshots.get(snapshot.id, ALICE)).state is State.UNPAID
            await cap(platform, Caps(per_key_sats=200))
        await becomes(platform, snapshot, State.KEPT)


async def test_a_snapshot_of_a_stopped_sandbox_is_refused_before_it_is_taken_if_nobody_can_pay_for_it(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    rates = {**RATES, "running_msats": 0, "stored_disk_gb_msats": 1024}
    async with paying(open_one, sats=1, rates=rates) as platform:
        sandbox = await platform.sandboxes.create(CreateRequest(ttl="4h"), ALICE)
        backend.boxes[sandbox.id].disk.write("/root/x", b"x" * 5 * 2**20)
        await platform.sandboxes.stop(sandbox.id, ALICE)
        with pytest.raises(InsufficientCredit):
            await platform.artifacts.snapshots.take(sandbox.id, Wanted(), ALICE)
        assert not (await platform.artifacts.snapshots.list(ALICE)).snapshots


async def test_a_snapshot_and_a_sandbox_share_the_cap_of_their_key(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted
) -> None:
    async with paying(open_one, sats=10_000, rates={**KEPT, "running_msats": 1000}) as platform:
        await cap(platform, Caps(per_key_sats=100))
        snapshot = await kept(platform, backend)
        clock.advance(timedelta(hours=1))
        await becomes(platform, snapshot, State.UNPAID)
        deadline = asyncio.get_running_loop().time() + 5
        while (bucket := await settled(platform)).flow.rate:
            assert asyncio.get_running_loop().time() < deadline
        assert bucket.posted == 9900


def test_an_image_is_kept_without_charge_too(clock: ManualClock) -> None:
    met = Reached(cap="per_day_sats", limit_sats=100, at=clock.now())
    kept_, unpaid = (SimpleNamespace(state=state, rate_msats=1000) for state in (State.KEPT, State.UNPAID))
    cases: list[tuple[Any, Reached | None, Signal | None]] = [
        (kept_, met, Signal.DRY),
        (kept_, None, None),
        (unpaid, met, None),
        (unpaid, None, Signal.PAID),
    ]
    for image, reached, wanted in cases:
        assert by_money(image, Standing.ALIVE, reached) is wanted
