"""A platform on a host whose wall clock is set: signatures, meters and alarms go by the server's own time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sandboxer.backends.scripted import Scripted
from sandboxer.identity.keys import NewKey
from sandboxer.kernel.errors import Unauthenticated, Unavailable
from sandboxer.money.heartbeat import gaps_after, read_beat
from sandboxer.money.records import GapKind
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation
from sandboxer.settings import Settings
from sandboxer.wiring import Platform, open_platform
from tests.faults.lying_host import START, LyingHost
from tests.support.charging import RATES, fund, settled
from tests.support.identity import Signed
from tests.support.sandboxes import ALICE

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
Open = Callable[..., AbstractAsyncContextManager[Platform]]


@pytest.fixture
def host() -> LyingHost:
    return LyingHost()


@pytest.fixture
def box(host: LyingHost) -> Scripted:
    return Scripted(name="ext.namespaces", clock=host.truth)


@pytest.fixture
def open_it(tmp_path: Path, database_url: str, host: LyingHost, box: Scripted) -> Open:
    def start(**rates: int) -> AbstractAsyncContextManager[Platform]:
        pricing = {"rates": {**RATES, **rates}}
        chosen = Settings.model_validate(
            {
                "state_dir": tmp_path / "state",
                "database": database_url,
                "pricing": pricing,
                "retention": "30d",
            }
        )
        return open_platform(chosen, time_source=host, backends={box.name: box})

    return start


def ask(platform: Platform, key: NewKey, nonce: str, at: datetime) -> Coroutine[Any, Any, object]:
    request = Signed(key=key, nonce=nonce.ljust(20, "0"), timestamp=str(int(at.timestamp()))).v2()
    headers = [(name.encode(), value.encode()) for name, value in request.headers.items()]
    return platform.authenticator.check_head(headers, request.method, request.path, platform.clock.now())


async def seconds_until(host: LyingHost, condition: Callable[[], object]) -> None:
    """Seconds pass until it has come about: the server looks at the wall clock once in each."""
    deadline = asyncio.get_running_loop().time() + 5
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it never came about"
        host.pass_time(timedelta(seconds=1))
        await asyncio.sleep(0.01)


async def test_a_clock_set_forward_and_back_refuses_nobody_and_charges_nobody(
    open_it: Open, host: LyingHost
) -> None:
    async with open_it() as platform:
        await fund(platform, 10_000, id="first")
        await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        key = await platform.keys.create("alice", "test")
        host.pass_time(MINUTE)
        host.set_wall(HOUR)
        await seconds_until(host, lambda: platform.timekeeper.trouble is not None)
        await ask(platform, key, "while-it-is-wrong", host.truth.now())
        host.set_wall(-HOUR)
        await seconds_until(host, lambda: platform.timekeeper.trouble is None)
        await ask(platform, key, "after", host.truth.now())
        with pytest.raises(Unauthenticated) as refused:
            await ask(platform, key, "after", host.truth.now())
        assert refused.value.facts["reason"] == "replayed"
        lived = (host.truth.now() - START) // timedelta(seconds=1)
        assert lived < 120
        assert (await settled(platform)).posted == 10_000 - lived
        events = [event.kind for event in await platform.events.page("server")]
        assert events == ["clock.jumped", "clock.agrees"]
        shown = platform.metrics.render().decode()
        assert 'sandboxer_clock_findings_total{finding="jumped"} 1.0' in shown


async def test_who_has_the_time_of_our_wall_clock_is_told_that_it_is_our_fault(
    open_it: Open, host: LyingHost
) -> None:
    async with open_it() as platform:
        key = await platform.keys.create("alice", "test")
        # The clock had been wrong, and is put right: the caller's is right as well.
        host.set_wall(HOUR)
        await seconds_until(host, lambda: platform.timekeeper.trouble is not None)
        with pytest.raises(Unavailable) as ours:
            await ask(platform, key, "right", host.truth.now() + HOUR)
        assert (ours.value.facts["reason"], ours.value.facts["skew_s"]) == ("server_clock", 3600)
        with pytest.raises(Unauthenticated) as theirs:
            await ask(platform, key, "wrong", host.truth.now() - HOUR)
        assert theirs.value.facts["reason"] == "clock_skew"
        # It stays so: after ten minutes it is believed, and nobody has paid for the hour.
        host.pass_time(10 * MINUTE)
        await seconds_until(host, lambda: platform.timekeeper.trouble is None)
        await ask(platform, key, "right", platform.clock.now())
        assert platform.clock.now() == host.read().wall


async def test_a_server_that_stood_still_says_so_though_the_clock_was_set_as_well(
    open_it: Open, host: LyingHost
) -> None:
    async with open_it() as platform:
        host.set_wall(HOUR)
        await seconds_until(host, lambda: platform.timekeeper.trouble is not None)
        host.pass_time(10 * MINUTE)
        await seconds_until(host, lambda: platform.timekeeper.trouble is None)
        gaps = await platform.store.read(lambda conn: gaps_after(conn, START))
        assert [gap.kind for gap in gaps] == [GapKind.OUTAGE, GapKind.UNWITNESSED]
        assert gaps[0].ended_at == gaps[1].began_at


@pytest.mark.parametrize("stays", [False, True])
async def test_a_jump_of_the_clock_drains_no_funded_account(
    open_it: Open, host: LyingHost, stays: bool
) -> None:
    async with open_it() as platform:
        await fund(platform, 1_000_000, id="first")
        await creation.create(platform.sandboxes, CreateRequest(ttl="24h"), ALICE)
        host.set_wall(timedelta(days=7))
        await seconds_until(host, lambda: platform.timekeeper.trouble is not None)
        host.pass_time(timedelta(minutes=10 if stays else 9))
        if stays:
            await seconds_until(host, lambda: platform.timekeeper.trouble is None)
            assert platform.clock.now() - host.truth.now() == timedelta(days=7)
        lived = (host.truth.now() - START) // timedelta(seconds=1)
        assert (await settled(platform)).posted == 1_000_000 - lived


async def test_a_clock_set_while_the_server_was_down_charges_what_the_boot_clock_says(
    open_it: Open, host: LyingHost
) -> None:
    async with open_it() as platform:
        await fund(platform, 1_000_000, id="first")
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="24h"), ALICE)
    host.pass_time(MINUTE)
    host.set_wall(timedelta(days=365))
    async with open_it() as platform:
        host.pass_time(MINUTE)
        assert (await settled(platform)).posted == 1_000_000 - 120
        assert (await platform.sandboxes.visible(sandbox.id, ALICE)).state is State.READY


async def test_time_over_a_reboot_is_charged_to_nobody_whatever_the_clock_says(
    open_it: Open, host: LyingHost, box: Scripted
) -> None:
    async with open_it(stored_disk_gb_msats=1000) as platform:
        await fund(platform, 1_000_000, id="first")
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="24h"), ALICE)
        stored = sandbox.terms.card.stored
        host.pass_time(timedelta(seconds=8))
    box.reboot()
    host.reboot(takes=timedelta(seconds=40))
    host.set_wall(timedelta(days=3650))
    async with open_it(stored_disk_gb_msats=1000) as platform:
        found = await platform.sandboxes.visible(sandbox.id, ALICE)
        assert (found.state, found.reason) == (State.STOPPED, "host_rebooted")
        bucket = await settled(platform)
        assert (bucket.posted, bucket.flow.carried) == (1_000_000 - 8, 0)
        host.pass_time(timedelta(seconds=10))
        bucket = await settled(platform)
        used = (1_000_000 - bucket.posted) * 10**9 + bucket.flow.carried
        assert used == 8 * 10**9 + 10 * stored * 10**6


async def test_a_sign_of_life_is_kept_while_nothing_happens(open_it: Open, host: LyingHost) -> None:
    async with open_it() as platform:
        first = await platform.store.read(read_beat)
        assert first is not None
        deadline = asyncio.get_running_loop().time() + 5
        while (found := await platform.store.read(read_beat)) == first:
            assert asyncio.get_running_loop().time() < deadline, "no sign of life"
            host.pass_time(timedelta(seconds=1))
        assert found is not None
        assert timedelta(seconds=5) <= found.moment - first.moment


async def test_a_host_that_wakes_with_a_wrong_clock_keeps_everything_until_it_is_put_right(
    open_it: Open, host: LyingHost, box: Scripted
) -> None:
    async with open_it() as platform:
        await fund(platform, 1000, id="first")
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
    box.reboot()
    host.reboot(takes=MINUTE)
    host.set_wall(timedelta(days=3650))
    async with open_it() as platform:
        host.pass_time(MINUTE)
        host.set_wall(timedelta(days=-3650))
        host.pass_time(MINUTE)
        assert (await platform.sandboxes.visible(sandbox.id, ALICE)).state is State.STOPPED
