"""Volumes: the table, races and restarts on each database; and that a real server finds them again."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest

from sandboxer.accounts.caps import Caps
from sandboxer.artifacts.noun_reconcilers import VolumeReconciler
from sandboxer.artifacts.reconciler import Funds, demanded
from sandboxer.artifacts.records import VOLUMES, Signal, State
from sandboxer.artifacts.snapshots.use_cases import Wanted as WantedSnapshot
from sandboxer.artifacts.volumes.records import Volume
from sandboxer.artifacts.volumes.repository import Step
from sandboxer.artifacts.volumes.use_cases import Wanted
from sandboxer.backends.contract import Presence, VolumeMount
from sandboxer.backends.namespaces import open_backend
from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import Conflict, IllegalTransition, SandboxerError
from sandboxer.kernel.values import new_id
from sandboxer.money.policy import Standing
from sandboxer.sandboxes.requests import CreateRequest, WantedVolume
from sandboxer.sandboxes.use_cases import creation, lifetime, pause
from sandboxer.wiring import Platform
from tests.support.charging import RATES, cap, paying, settled
from tests.support.clock import ManualClock
from tests.support.real_backend import (
    clear,
    make_order,
    remove_leftovers,
    require_walls,
    settings_for,
    state_folder,
)
from tests.support.sandboxes import ALICE, OpenPlatform


def test_every_step_is_in_the_table_or_refused() -> None:
    for state, signal in product(State, Signal):
        if (state, signal) in VOLUMES.transitions:
            assert VOLUMES.next_state(state, signal) is VOLUMES.transitions[state, signal]
        else:
            with pytest.raises(IllegalTransition):
                VOLUMES.next_state(state, signal)


def test_money_demands_what_it_should(clock: ManualClock) -> None:
    now = clock.now()
    one = Volume(
        id="vol_1",
        version=0,
        account="alice",
        created_by="k",
        name="data",
        state=State.READY,
        reason="made",
        backend="ext.namespaces",
        size_mb=64,
        rate_msats=5,
        created_at=now,
        state_since=now,
    )
    rich = Funds(standing=Standing.ALIVE, is_ending=False)
    dry, over = replace(rich, standing=Standing.REAPED), replace(rich, is_ending=True)
    unpaid = replace(one, state=State.UNPAID, expires_at=now + timedelta(days=1))
    due = replace(unpaid, expires_at=now)
    assert demanded(one, rich, now=now) is None
    assert demanded(one, dry, now=now) is Signal.DRY
    assert demanded(replace(one, rate_msats=0), dry, now=now) is None
    assert demanded(one, over, now=now) is Signal.DROP
    assert demanded(unpaid, rich, now=now) is Signal.PAID
    assert demanded(unpaid, dry, now=now) is None
    assert demanded(due, dry, now=now) is Signal.RETENTION_OVER
    assert demanded(replace(due, state=State.DROPPING), dry, now=now) is None


async def made(platform: Platform, name: str = "data") -> Volume:
    return await platform.artifacts.volumes.create(Wanted(name=name, size_mb=64), ALICE)


async def with_volume(platform: Platform, volume_id: str, *, read_only: bool = False) -> str:
    use_cases = platform.artifacts.volumes
    mounts = await use_cases.mounts(
        [WantedVolume(volume=volume_id, path="/data", is_read_only=read_only)], ALICE
    )
    request = CreateRequest(volumes=mounts)
    sandbox = await creation.create(platform.sandboxes, request, ALICE)
    return sandbox.id


async def test_of_all_who_want_it_at_once_one_writer_gets_it_or_it_is_dropped(open_one: OpenPlatform) -> None:
    """Each database: the volume's row decides."""
    async with open_one() as platform:
        one = await made(platform)
        use_cases = platform.artifacts.volumes

        async def attempt(act: object) -> object:
            try:
                return await act  # type: ignore[misc]
            except SandboxerError as error:
                return error.code

        wanted = [with_volume(platform, one.id) for _ in range(6)]
        done = await asyncio.gather(*(attempt(each) for each in (*wanted, use_cases.drop(one.id, ALICE))))
        winners = [each for each in done[:6] if isinstance(each, str) and each.startswith("sbx_")]
        is_dropped = isinstance(done[6], Volume)
        assert len(winners) + is_dropped == 1, done
        again = [made(platform, "same") for _ in range(4)]
        named = await asyncio.gather(*(attempt(each) for each in again))
        assert sorted(str(each) for each in named if isinstance(each, str)) == ["conflict"] * 3


async def test_of_two_that_grow_into_one_name_the_loser_has_no_more_than_it_pays_for(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one() as platform:
        use_cases = platform.artifacts.volumes
        both = [await made(platform, name) for name in ("one", "two")]
        grown = [use_cases.change(one.id, ALICE, name="same", size_mb=4096) for one in both]
        done = await asyncio.gather(*grown, return_exceptions=True)
        assert [type(each) for each in done if not isinstance(each, Volume)] == [Conflict], done
        for one in both:
            size_mb = (await use_cases.get(one.id, ALICE)).size_mb
            assert (await backend.volume_usage(one.id)).limit_bytes == size_mb << 20
        assert sorted([(await use_cases.get(one.id, ALICE)).size_mb for one in both]) == [64, 4096]


async def test_an_attachment_lasts_over_stop_restart_and_resume_until_the_end(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one() as platform:
        one = await made(platform)
        sandbox_id = await with_volume(platform, one.id)
        await pause.stop(platform.sandboxes, sandbox_id, ALICE)
    async with open_one() as platform:
        use_cases = platform.artifacts.volumes
        with pytest.raises(Conflict):
            await with_volume(platform, one.id, read_only=True)
        with pytest.raises(Conflict):
            await use_cases.drop(one.id, ALICE)
        await pause.resume(platform.sandboxes, sandbox_id, ALICE)
        assert backend.boxes[sandbox_id].disk.info("/data").path == "/data"
        with pytest.raises(Conflict):
            await backend.drop_volume(one.id)
        await lifetime.destroy(platform.sandboxes, sandbox_id, ALICE)
        readers = [await with_volume(platform, one.id, read_only=True) for _ in range(3)]
        assert len((await use_cases.attachments([one]))[one.id]) == 3
        for reader in readers:
            await lifetime.destroy(platform.sandboxes, reader, ALICE)
        assert (await use_cases.drop(one.id, ALICE)).state is State.DROPPED


@pytest.mark.parametrize("seed", range(2))
async def test_a_volume_costs_its_size_of_the_moment_to_the_sat(
    open_one: OpenPlatform, clock: ManualClock, seed: int
) -> None:
    """Made, grown, shrunk, put back, attached or not, and dropped at odd moments: the sum is exact."""
    chance, owed_nsats, sizes = random.Random(seed), 0, dict[str, int]()
    rates = {**RATES, "running_msats": 0, "stored_disk_gb_msats": 777_777}
    async with paying(open_one, sats=10**7, rates=rates) as platform:
        use_cases = platform.artifacts.volumes
        for number in range(40):
            match chance.choice(["make", "grow", "grow", "attach", "restore", "drop"]):
                case "make":
                    size_mb = chance.randint(16, 4000)
                    one = await use_cases.create(Wanted(name=f"v{number}", size_mb=size_mb), ALICE)
                    sizes[one.id] = size_mb
                case "grow" if sizes:
                    one_id = chance.choice(list(sizes))
                    sizes[one_id] = chance.randint(16, 4000)
                    changed = await use_cases.change(one_id, ALICE, size_mb=sizes[one_id])
                    assert changed.rate_msats == -(-777_777 * sizes[one_id] // 1024)
                case "attach" if sizes:
                    sandbox_id = await with_volume(platform, chance.choice(list(sizes)))
                    await lifetime.destroy(platform.sandboxes, sandbox_id, ALICE)
                case "restore" if sizes:
                    one_id = chance.choice(list(sizes))
                    kept = await use_cases.snapshot(one_id, WantedSnapshot(), ALICE)
                    await use_cases.restore(one_id, kept.id, ALICE)
                    await platform.artifacts.snapshots.drop(kept.id, ALICE)
                case "drop" if sizes:
                    one_id = chance.choice(list(sizes))
                    del sizes[one_id]
                    await use_cases.drop(one_id, ALICE)
                case _:
                    pass
            passed = timedelta(microseconds=chance.randint(1, 90_000_000))
            micros = passed // timedelta(microseconds=1)
            owed_nsats += sum(-(-777_777 * size // 1024) for size in sizes.values()) * micros
            clock.advance(passed)
        bucket = await settled(platform)
        assert 10**7 - bucket.posted == owed_nsats // 10**9


async def test_a_spending_cap_ends_the_charge_of_a_volume_at_its_very_moment(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    rates = {**RATES, "running_msats": 0, "stored_disk_gb_msats": 64_000}
    async with paying(open_one, sats=10_000, rates=rates) as platform:
        await cap(platform, Caps(per_key_sats=100))
        use_cases = platform.artifacts.volumes
        one = await use_cases.create(Wanted(name="data", size_mb=16), ALICE)
        assert one.rate_msats == 1000
        with pytest.raises(SandboxerError):
            # More than its cap leaves for the least time that anything is paid for.
            await use_cases.change(one.id, ALICE, size_mb=16 * 1024)
        clock.advance(timedelta(seconds=10))
        await use_cases.change(one.id, ALICE, size_mb=32)
        clock.advance(timedelta(hours=2))
        deadline = asyncio.get_running_loop().time() + 30
        while (found := await use_cases.get(one.id, ALICE)).state is not State.UNPAID:
            assert asyncio.get_running_loop().time() < deadline, f"it stays {found.state}"
            await asyncio.sleep(0.005)
        bucket = await settled(platform)
        assert (found.reason, bucket.posted, bucket.flow.rate) == ("spending_cap", 9900, 0)


async def test_a_start_finishes_what_was_begun_and_says_what_is_missing(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one() as platform:
        lost, dropping, resized = [await made(platform, name) for name in ("lost", "dropping", "resized")]
        use_cases = platform.artifacts.volumes
        step = Step(signal=Signal.DROP, actor="test", reason="test")
        await use_cases.repository.move(dropping.id, step)
        backend._volumes.disks.pop(lost.id)
        await backend.resize_volume(resized.id, size_mb=128)
        stray = new_id("vol")
        await backend.make_volume(stray, size_mb=16)
        await VolumeReconciler(use_cases).reconcile()
        states = {one.name: (await use_cases.get(one.id, ALICE)).state for one in (lost, dropping, resized)}
        assert states == {"lost": State.LOST, "dropping": State.DROPPED, "resized": State.READY}
        # What has no record is not the reconciler's to remove.
        assert set(await backend.volumes()) == {resized.id, stray}
        assert (await backend.volume_usage(resized.id)).limit_bytes == 64 << 20


async def test_a_real_server_that_was_ended_finds_its_volumes_and_who_has_them() -> None:
    require_walls()
    with state_folder() as state:
        settings, volume_id = settings_for(state, pool_size_mb=700), new_id("vol")
        order = replace(make_order(), volumes=(VolumeMount(volume_id=volume_id, path="/data"),))
        async with open_backend(settings) as opened:
            await opened.make_volume(volume_id, size_mb=32)
            handle = await opened.provision(order)
            promised = opened.dependencies.promised
        async with open_backend(settings) as opened:
            assert opened.dependencies.promised == promised
            assert await opened.volumes() == [volume_id]
            assert (await opened.recover(handle)).presence is Presence.RUNNING
            other = replace(order, sandbox_id=make_order().sandbox_id)
            with pytest.raises(Conflict):
                await opened.provision(other)
            with pytest.raises(Conflict):
                await opened.drop_volume(volume_id)
            await opened.teardown(order.sandbox_id)
            await opened.provision(other)
            await clear(opened)
            await opened.drop_volume(volume_id)
            assert opened.dependencies.promised.disk_mb == 0
        remove_leftovers(opened)
