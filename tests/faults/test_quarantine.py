"""What has no record is noted, shown and kept for its grace; no start removes it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sandboxer.backends.contract import Order, Resources, Trust
from sandboxer.backends.scripted import Scripted
from sandboxer.backends.scripted.disk import Disk
from sandboxer.kernel.values import new_id
from sandboxer.sandboxes.quarantine import LONGEST_STEP, goes_at, is_due, seen_again
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, inspection
from tests.support.clock import ManualClock, eventually
from tests.support.sandboxes import ALICE, OWNER, OpenPlatform

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GRACE = timedelta(days=7)
HOUR = timedelta(hours=1)


def order(**changes: object) -> Order:
    plain = Order(
        sandbox_id=new_id("sbx"),
        image="base",
        resources=Resources(vcpus=1, memory_mb=64, disk_mb=64, pids=16),
        trust=Trust.ZERO,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_only_time_in_which_somebody_looked_counts() -> None:
    seen = seen_again(None, NOW)
    assert not is_due(seen, grace=GRACE)
    assert goes_at(seen, grace=GRACE, now=NOW) == NOW + GRACE
    # A clock set forward and back, and a month in which no server ran.
    seen = seen_again(seen, NOW + timedelta(days=365))
    assert seen.seen_for == LONGEST_STEP
    seen = seen_again(seen, NOW)
    assert seen.seen_for == LONGEST_STEP
    for hours in range(1, 7 * 24 - 2):
        seen = seen_again(seen, NOW + hours * HOUR)
        assert not is_due(seen, grace=GRACE)
    assert is_due(seen_again(seen, NOW + 7 * 24 * HOUR), grace=GRACE)


async def strew(backend: Scripted) -> dict[str, str]:
    """One of each kind, without a record."""
    made = {
        "sandbox": new_id("sbx"),
        "snapshot": new_id("snp"),
        "image": new_id("img"),
        "volume": new_id("vol"),
    }
    await backend.provision(order(sandbox_id=made["sandbox"]))
    for kind in ("snapshot", "image"):
        backend.kept_disks[made[kind]] = Disk(1 << 20)
    await backend.make_volume(made["volume"], size_mb=16)
    return made


async def test_no_start_removes_what_has_no_record(open_one: OpenPlatform, backend: Scripted) -> None:
    async with open_one() as platform:
        await creation.create(platform.sandboxes, CreateRequest(), ALICE)
    made = await strew(backend)
    for _ in range(3):
        async with open_one() as platform:
            held = await inspection.find_stale(platform.sandboxes, OWNER)
            assert {one.unknown.kind.value: one.unknown.id for one in held} == made
            assert set(made.values()) <= set(await backend.disks())
    async with open_one() as platform:
        removed = await inspection.reap_stale(platform.sandboxes, OWNER)
        assert {one.unknown.id for one in removed} == set(made.values())
        assert not set(made.values()) & set(await backend.disks())


async def test_what_has_no_record_goes_after_its_grace_and_not_before(
    open_one: OpenPlatform, backend: Scripted, clock: ManualClock
) -> None:
    async with open_one(quarantine_grace="5h") as platform:
        await creation.create(platform.sandboxes, CreateRequest(ttl="1h"), ALICE)
    made = set((await strew(backend)).values())
    async with open_one(quarantine_grace="5h") as platform:
        quarantine = platform.sandboxes.quarantine
        await eventually(lambda: clock.sleepers() > 0)
        held = await quarantine.look()
        for hours in range(1, 5):
            clock.advance(HOUR)
            held = await quarantine.look()
            assert {one.sighting.seen_for for one in held} == {hours * HOUR}
            assert made <= set(await backend.disks())
        clock.advance(HOUR)
        await quarantine.remove_due()
        assert not made & set(await backend.disks())
        assert await quarantine.look() == []


async def test_a_sandbox_that_nobody_ever_had_goes_at_the_next_start(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    """It stood ready when the server was killed. One that was given to somebody is never taken for it."""
    async with open_one(warm_pool={"profile.agent-dev": 1}) as platform:
        await eventually(lambda: platform.sandboxes.warm.count() == 1)
        claimed = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        assert not backend.boxes[claimed.id].order.is_spare
    ready = order(is_spare=True)
    await backend.provision(ready)
    # As if its server was killed between the record and the word to the backend.
    backend.boxes[claimed.id].order = replace(backend.boxes[claimed.id].order, is_spare=True)
    async with open_one():
        assert list(backend.boxes) == [claimed.id]
        assert not backend.boxes[claimed.id].order.is_spare


async def test_a_source_that_cannot_look_forgets_nothing(open_one: OpenPlatform, backend: Scripted) -> None:
    async with open_one() as platform:
        await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        made = await strew(backend)
        quarantine = platform.sandboxes.quarantine
        first = {one.unknown.id: one.sighting.first_seen for one in await quarantine.look()}
        broken = quarantine.sources[0]

        class Blind:
            kinds = broken.kinds

            async def find(self) -> list[object]:
                raise OSError("nobody can look")

        quarantine.sources[0] = Blind()  # type: ignore[assignment]
        assert made["sandbox"] not in {one.unknown.id for one in await quarantine.look()}
        quarantine.sources[0] = broken
        assert {one.unknown.id: one.sighting.first_seen for one in await quarantine.look()} == first


@pytest.mark.parametrize("word", ["", "{", "[]", '{"installation": "x"}', "\x00"])
async def test_a_mark_that_nobody_can_read_counts_as_none(
    open_one: OpenPlatform, backend: Scripted, word: str
) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
    await backend.set_mark(word)
    async with open_one() as platform:
        assert (await platform.sandboxes.visible(sandbox.id, ALICE)).id == sandbox.id
