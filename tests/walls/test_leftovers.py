"""Ends: nothing outlives its destroy, and a failed or abandoned making leaves nothing. Within five seconds:
the kernel cleans up when it has time."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxer.backends.contract import Presence
from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.kernel.errors import BackendLost, InvalidRequest, NoCapacity, ProvisionFailed
from tests.support.walls import Maker, becomes_true, order_for, traces

pytestmark = pytest.mark.asyncio(loop_scope="session")


def loops_of(backend: NamespacesBackend) -> list[str]:
    """Loop devices on files of this state folder; other servers of this host have their own."""
    backing = Path("/sys/block").glob("loop*/loop/backing_file")
    return [
        text
        for text in (file.read_text() for file in backing)
        if str(backend.dependencies.settings.state_dir) in text
    ]


def host_has(marker: str) -> bool:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if marker in Path(f"/proc/{name}/cmdline").read_text(errors="replace"):
                    return True
            except OSError:
                continue
    return False


async def test_nothing_is_left_after_a_destroy(make: Maker, backend: NamespacesBackend) -> None:
    loops = loops_of(backend)
    ranges, promised = backend.dependencies.ranges.acquired, backend.dependencies.promised
    box = await make()
    await box.sh("head -c 5M /dev/urandom > /root/some; sleep 1000 >/dev/null 2>&1 &")
    assert traces(backend, box.id)
    await backend.teardown(box.id)
    assert await becomes_true(lambda: traces(backend, box.id) == [])
    assert await becomes_true(lambda: not os.path.exists(f"/proc/{box.pid}/ns/pid"))
    assert backend.dependencies.ranges.acquired == ranges
    assert backend.dependencies.promised == promised
    assert loops_of(backend) == loops
    assert box.id not in await backend.inventory()


async def test_no_process_outlives_its_destroy(make: Maker, backend: NamespacesBackend) -> None:
    box = await make()
    await box.sh(
        "trap '' TERM HUP INT; (setsid nohup sh -c 'trap \"\" TERM; sleep 31415926; :' >/dev/null 2>&1 &)"
    )
    assert await becomes_true(lambda: host_has("31415926"))
    await backend.teardown(box.id)
    assert await becomes_true(lambda: not host_has("31415926"))


async def test_destroying_twice_is_success(make: Maker, backend: NamespacesBackend) -> None:
    box = await make()
    await backend.teardown(box.id)
    await backend.teardown(box.id)
    assert (await backend.recover(box.handle)).presence is Presence.GONE
    with pytest.raises(BackendLost):
        await backend.guest(box.handle)


async def test_destroying_a_frozen_one_works(make: Maker, backend: NamespacesBackend) -> None:
    box = await make()
    await box.sh("sleep 27182818 >/dev/null 2>&1 &")
    await backend.freeze(box.handle)
    await backend.teardown(box.id)
    assert await becomes_true(lambda: not host_has("27182818"))
    assert traces(backend, box.id) == []


@pytest.mark.alone
async def test_a_destroy_does_not_wait_for_a_neighbours_unwritten_data(
    make: Maker, backend: NamespacesBackend
) -> None:
    """An overlay's last unmount writes out its whole pool."""
    writer, other = await make(disk_mb=700, memory_mb=2048, vcpus=2.0), await make()
    await writer.sh("head -c 500M /dev/zero > /root/big", timeout_s=60)
    began = time.monotonic()
    await backend.teardown(other.id)
    took = time.monotonic() - began
    began = time.monotonic()
    await asyncio.to_thread(os.sync)
    flushing = time.monotonic() - began
    assert took < max(0.1, flushing / 3), f"{took:.3f} s, while writing it all out took {flushing:.3f} s"


async def test_the_space_of_a_removed_disk_comes_back(make: Maker, backend: NamespacesBackend) -> None:
    def free_mb() -> int:
        seen = os.statvfs(backend.dependencies.pool.path)
        return seen.f_bavail * seen.f_frsize >> 20

    box = await make(disk_mb=512)
    await box.sh("head -c 300M /dev/zero | tr '\\0' x > /root/big; sync", timeout_s=60)
    full = free_mb()
    await backend.teardown(box.id)
    assert await becomes_true(lambda: free_mb() > full + 250, within_s=20)


async def test_a_failed_making_leaves_nothing(
    backend: NamespacesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = order_for()
    before = backend.dependencies.promised, backend.dependencies.ranges.acquired
    monkeypatch.setattr(backend.dependencies, "masked", ("no-such-entry/at/all",))
    with pytest.raises(ProvisionFailed) as failure:
        await backend.provision(order)
    assert failure.value.facts["step"] == "proc_masks"
    assert traces(backend, order.sandbox_id) == []
    assert (backend.dependencies.promised, backend.dependencies.ranges.acquired) == before


async def test_a_supervisor_that_never_answers_is_given_up(
    backend: NamespacesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = order_for()
    monkeypatch.setattr(
        backend.dependencies, "settings", replace(backend.dependencies.settings, boot_timeout_s=0.0)
    )
    with pytest.raises(ProvisionFailed) as failure:
        await backend.provision(order)
    assert failure.value.facts["step"] == "boot"
    assert traces(backend, order.sandbox_id) == []


async def test_a_cancelled_making_leaves_nothing_whenever_it_is_cancelled(backend: NamespacesBackend) -> None:
    before = backend.dependencies.promised, backend.dependencies.ranges.acquired
    for delay_ms in (0, 0.2, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 8):
        order = order_for()
        making = asyncio.create_task(backend.provision(order))
        await asyncio.sleep(delay_ms / 1000)
        making.cancel()
        result = (await asyncio.gather(making, return_exceptions=True))[0]
        if not isinstance(result, BaseException):
            await backend.teardown(order.sandbox_id)
        assert traces(backend, order.sandbox_id) == []
    assert (backend.dependencies.promised, backend.dependencies.ranges.acquired) == before


async def test_an_unknown_image_and_bad_words_are_refused_before_anything_is_made(
    backend: NamespacesBackend,
) -> None:
    order = order_for()
    for image in ("no-such-image", "../images", "/etc", ""):
        with pytest.raises(InvalidRequest):
            await backend.provision(replace(order, image=image))
    for hostname in ("a b", "x\n127.0.0.1 evil", "-a", "a" * 64):
        with pytest.raises(InvalidRequest):
            await backend.provision(replace(order, hostname=hostname))
    assert traces(backend, order.sandbox_id) == []


async def test_a_full_host_refuses_with_a_reason(backend: NamespacesBackend) -> None:
    for limits, resource in (
        ({"disk_mb": 10_000_000}, "disk"),
        ({"memory_mb": 100_000_000}, "memory"),
        ({"vcpus": 10_000.0}, "cpu"),
        ({"pids": 100_000_000}, "processes"),
    ):
        order = order_for(**limits)
        with pytest.raises(NoCapacity) as refusal:
            await backend.provision(order)
        assert refusal.value.facts["resource"] == resource
        assert traces(backend, order.sandbox_id) == []


async def test_no_more_disk_is_promised_than_may_be(
    backend: NamespacesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    dependencies = backend.dependencies
    once = replace(dependencies.settings, overcommit=replace(dependencies.settings.overcommit, disk=1.0))
    monkeypatch.setattr(dependencies, "settings", once)
    left_mb = dependencies.host.disk_mb - dependencies.promised.disk_mb
    with pytest.raises(NoCapacity):
        await backend.provision(order_for(disk_mb=left_mb + 1))
