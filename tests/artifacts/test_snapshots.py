"""Snapshots on a clock that stands still, on each database: the table, restarts, time, money, lineage."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

import pytest

from sandboxer.artifacts.clones import Batch
from sandboxer.artifacts.reconciler import Funds, demanded
from sandboxer.artifacts.records import DISKS, Signal, State
from sandboxer.artifacts.snapshots.records import Snapshot, flattened, grow
from sandboxer.artifacts.snapshots.use_cases import Wanted
from sandboxer.backends.contract import Resources
from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import IllegalTransition
from sandboxer.money.policy import Standing
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, disks
from tests.support.clock import ManualClock
from tests.support.sandboxes import ALICE, OpenPlatform


def made(clock: ManualClock, id_: str = "snp_1", parent: str | None = None, **changes: object) -> Snapshot:
    values: dict[str, object] = {
        "id": id_,
        "version": 0,
        "account": "alice",
        "created_by": "k",
        "name": None,
        "state": State.KEPT,
        "reason": "taken",
        "sandbox_id": "sbx_1",
        "parent_id": parent,
        "backend": "ext.namespaces",
        "image": "base",
        "profile": "profile.agent-dev",
        "resources": Resources(vcpus=1, memory_mb=64, disk_mb=64, pids=16),
        "created_at": clock.now(),
        "state_since": clock.now(),
    }
    return Snapshot(**{**values, **changes})  # type: ignore[arg-type]


def test_every_step_is_in_the_table_or_refused() -> None:
    for state, signal in product(State, Signal):
        if (state, signal) in DISKS.transitions:
            assert DISKS.next_state(state, signal) is DISKS.transitions[state, signal]
        else:
            with pytest.raises(IllegalTransition):
                DISKS.next_state(state, signal)


def test_time_and_money_demand_what_they_should(clock: ManualClock) -> None:
    now = clock.now()
    past, rich = now - timedelta(seconds=1), Funds(standing=Standing.ALIVE, is_ending=False)
    dry, over = (
        Funds(standing=Standing.REAPED, is_ending=False),
        Funds(standing=Standing.ALIVE, is_ending=True),
    )
    cases = [
        (made(clock), rich, None),
        (made(clock, expires_at=past), rich, Signal.EXPIRE),
        (made(clock, expires_at=past, locked_at=now), rich, None),
        (made(clock, rate_msats=1), dry, Signal.DRY),
        (made(clock, rate_msats=0), dry, None),
        (made(clock, state=State.UNPAID, expires_at=past), dry, Signal.RETENTION_OVER),
        (made(clock, state=State.UNPAID, expires_at=past), rich, Signal.PAID),
        (made(clock, locked_at=now), over, Signal.DROP),
        (made(clock, state=State.DROPPED, expires_at=past), over, None),
    ]
    for snapshot, funds, wanted in cases:
        assert demanded(snapshot, funds, now=now) is wanted, (snapshot.state, funds)


def test_a_lineage_a_thousand_deep_is_a_tree_without_what_is_gone(clock: ManualClock) -> None:
    chain = [made(clock, "snp_0000")]
    for number in range(1, 1500):
        state = State.DROPPED if number % 2 or number > 1400 else State.KEPT
        chain.append(made(clock, f"snp_{number:04}", chain[-1].id, state=state))
    lines = flattened(grow(chain, [("sbx_9", "snp_0700")]))
    # What is gone stays where something descends from it, and goes at the end.
    assert [depth for depth, _ in lines] == list(range(1401))
    assert lines[700][1].sandbox_ids == ("sbx_9",)


async def test_a_restart_settles_what_was_under_way_and_finds_what_is_missing(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one() as platform:
        use_cases = platform.artifacts.snapshots
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        marked = Wanted(labels={"team/run": "1"})
        first, second, third = [await use_cases.take(sandbox.id, marked, ALICE) for _ in range(3)]
        for labels, count in (({"team/run": "1"}, 3), ({"team/run": "2"}, 0), ({"run": "1"}, 0)):
            assert len((await use_cases.list(ALICE, labels=labels)).records) == count
        assert (second.parent_id, third.parent_id) == (first.id, second.id)
        backend.fail_next("drop", OSError(5, "scripted"))
        with pytest.raises(Exception, match=r"scripted|could not|of the host"):
            await use_cases.drop(third.id, ALICE)
    # Meanwhile one vanished, and one is kept that nobody knows.
    del backend.kept_disks[first.id]
    backend.kept_disks["snp_00000000000000000000000000"] = backend.kept_disks[second.id]
    async with open_one() as platform:
        use_cases = platform.artifacts.snapshots
        states = {each.id: each.state for each in (await use_cases.list(ALICE)).records}
        assert states == {first.id: State.LOST, second.id: State.KEPT}
        assert (await use_cases.get(third.id, ALICE)).state is State.DROPPED
        # What has no record is not the reconciler's to remove.
        assert set(backend.kept_disks) == {second.id, "snp_00000000000000000000000000"}
        # It works on: forked, and the source may go.
        made_ = await platform.artifacts.cloning.clone(second.id, CreateRequest(), ALICE, Batch(count=2))
        assert {each.origin for each in made_.sandboxes} == {second.id}
        again = await disks.recreate(platform.sandboxes, made_.sandboxes[0].id, ALICE)
        assert ("provision", again.id) in backend.calls
