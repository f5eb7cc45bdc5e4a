"""A host that has run out of something says so with 503 and a reason, kills nothing for it and leaves no heap
of failed records behind."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import subprocess
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from sandboxer.backends.contract import Presence
from sandboxer.backends.namespaces.backend import NamespacesBackend, open_backend
from sandboxer.backends.namespaces.holdings import check_writable
from sandboxer.backends.scripted import Scripted
from sandboxer.backends.shared import pidfd_of, started_at
from sandboxer.kernel.errors import NoCapacity, Unavailable, host_exhausted
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation
from sandboxer.settings import Settings
from tests.support.clock import ManualClock
from tests.support.clock import eventually as by_the_clock
from tests.support.crash import kill_everything
from tests.support.http.served import Served, eventually, serving
from tests.support.real_backend import (
    GUEST_DIR,
    IMAGES_DIR,
    clear,
    make_order,
    remove_leftovers,
    require_walls,
    settings_for,
    state_folder,
)
from tests.support.sandboxes import ALICE, OpenPlatform


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """This process has none left: those that are open stay, and one that is closed meanwhile is not to be had
    again, since every number above stderr's is out of bounds."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextlib.asynccontextmanager
async def walls(state: Path) -> AsyncIterator[NamespacesBackend]:
    async with open_backend(settings_for(state, pool_size_mb=600)) as backend:
        try:
            yield backend
        finally:
            await clear(backend)
    remove_leftovers(backend)


def sleeper(uid: int | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "1000"], user=uid)


@contextlib.asynccontextmanager
async def real_platform(state: Path) -> AsyncIterator[Served]:
    config = Settings.model_validate(
        {
            "state_dir": state,
            "images_dir": IMAGES_DIR,
            "guest_dir": GUEST_DIR,
            "pool_size_mb": 600,
            "host": "127.0.0.1",
            "port": 0,
            "charging": False,
        }
    )
    async with serving(config, None) as served:
        yield served


async def test_exec_without_descriptors_answers_503_with_the_reason_and_works_again_after() -> None:
    require_walls()
    with state_folder() as state:
        try:
            async with real_platform(state) as served:
                path = await served.sandbox(resources={"disk_mb": 64})
                command = {"argv": ["/bin/echo", "hi"]}
                # So that the connection is there already.
                assert (await served.client.post(f"{path}/exec", command)).status_code == 200
                with no_descriptors():
                    refused = await served.client.post(f"{path}/exec", command)
                    listed = await served.client.get(f"{path}/processes")
                    made = await served.client.post("/v1/sandboxes", {})
                for answer in (refused, listed, made):
                    assert answer.status_code == 503, answer.text
                    assert answer.json()["code"] in ("unavailable", "no_capacity"), answer.text
                    assert "descriptors" in answer.text
                again = await served.client.post(f"{path}/exec", command)
                assert (again.status_code, again.json()["stdout"]) == (200, "hi\n")
                states = (await served.client.get("/v1/host")).json()["sandboxes"]
                assert (states["ready"] + states["active"], states["failed"]) == (1, 0)
        finally:
            kill_everything(state)


async def test_a_living_sandbox_is_not_taken_for_dead_when_descriptors_run_out() -> None:
    require_walls()
    with state_folder() as state:
        async with walls(state) as backend:
            handle = await backend.provision(make_order())
            with no_descriptors(), pytest.raises((OSError, Unavailable)):
                await backend.recover(handle)
            assert (await backend.recover(handle)).presence is Presence.RUNNING
            with no_descriptors(), pytest.raises(Unavailable, match="descriptors"):
                await backend.check_host()


async def test_a_sandbox_is_not_taken_for_lost_while_its_pool_is_unmounted() -> None:
    require_walls()
    with state_folder() as state:
        async with walls(state) as backend:
            handle = await backend.provision(make_order())
            pool = backend.dependencies.pool
            device = mounted_from(pool.path)
            await asyncio.to_thread(mount, "umount", "--lazy", str(pool.path))
            with pytest.raises(Unavailable, match="not mounted"):
                await backend.recover(handle)
            await asyncio.to_thread(mount, "mount", device, str(pool.path))
            assert (await backend.recover(handle)).presence is Presence.RUNNING


def mounted_from(place: Path) -> str:
    rows = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return next(row[0] for row in rows if row[1] == str(place))


def mount(*words: str) -> None:
    subprocess.run(words, check=True)


def test_only_a_missing_process_is_missing() -> None:
    me = os.getpid()
    started = started_at(me)
    assert started is not None
    fd = pidfd_of(me, started)
    assert fd is not None
    os.close(fd)
    assert pidfd_of(me, started + 1) is None
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        pidfd_of(me, started)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.EMFILE, "x"), "descriptors_exhausted"),
        (OSError(errno.ENFILE, "x"), "descriptors_exhausted"),
        (OSError(errno.ENOSPC, "x", "/secret/path"), "disk_full"),
        (OSError(errno.EDQUOT, "x"), "disk_full"),
        (OSError(errno.EROFS, "x"), "disk_read_only"),
        (OSError(errno.EIO, "x"), "disk_failing"),
        (OSError(errno.ENOMEM, "x"), "memory_exhausted"),
        (MemoryError(), "memory_exhausted"),
        (RuntimeError("can't start new thread"), "threads_exhausted"),
        (OSError(errno.EPERM, "x"), None),
        (OSError("without a number"), None),
        (RuntimeError("a bug"), None),
    ],
)
def test_every_exhaustion_of_the_host_has_a_reason_and_no_path(error: Exception, reason: str | None) -> None:
    reported = host_exhausted(error)
    assert (None if reported is None else reported.facts["reason"]) == reason
    assert reported is None or "/" not in str(reported)


@contextlib.contextmanager
def small_disk(place: Path, size_mb: int) -> Iterator[None]:
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(file: Path) -> None:
    with contextlib.suppress(OSError), open(file, "wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(4096))


def remount(place: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(place)], check=True)


async def test_creates_on_a_full_disk_are_refused_without_a_record() -> None:
    """Twenty-one times, as a client in a loop does."""
    require_walls()
    # The records of running sandboxes on a disk of their own; the pool and the database have room.
    with state_folder() as state, small_disk(state / "run", 8):
        try:
            async with real_platform(state) as served:
                path = await served.sandbox(resources={"disk_mb": 64})
                fill(state / "run" / "ballast")
                for _ in range(21):
                    refused = await served.client.post("/v1/sandboxes", {})
                    assert (refused.status_code, refused.json()["reason"]) == (503, "disk_full")
                (state / "run" / "ballast").unlink()
                states = (await served.client.get("/v1/host")).json()["sandboxes"]
                assert (states["ready"] + states["active"], states["failed"]) == (1, 0)
                assert (await served.client.delete(path)).status_code == 200
        finally:
            kill_everything(state)


def test_a_disk_that_cannot_be_written_to_any_more_is_noticed(tmp_path: Path) -> None:
    require_walls()
    with small_disk(tmp_path / "disk", 8):
        check_writable(os.statvfs(tmp_path / "disk"))
        remount(tmp_path / "disk", "ro")
        with pytest.raises(OSError, match="Read-only"):
            check_writable(os.statvfs(tmp_path / "disk"))


async def test_what_the_host_had_no_room_for_leaves_no_record_for_long(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    full = [NoCapacity(resource="disk", why="full"), OSError(errno.ENOSPC, "full")] * 10
    backend = Scripted(name="ext.namespaces", clock=clock, fail_on={"provision": full})
    async with open_one(on=backend) as platform:
        for _ in full:
            with pytest.raises(Unavailable):
                await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        assert (await platform.sandboxes.repository.counts())["failed"] == len(full)
        clock.advance(timedelta(minutes=11))
        await by_the_clock(lambda: not list(platform.sandboxes.repository.living()))
        assert (await platform.sandboxes.repository.counts())["failed"] == 0


async def test_a_process_outside_of_every_sandbox_is_seen_and_ended() -> None:
    """A supervisor whose create died: in the folder above all sandboxes, or somewhere else with their uid."""
    require_walls()
    with state_folder() as state:
        async with walls(state) as backend:
            handle = await backend.provision(make_order())
            dependencies = backend.dependencies
            slot = dependencies.known[handle.sandbox_id].slot
            assert slot is not None
            above = sleeper()
            uid = dependencies.ranges.first_uid(slot) + 5
            beside = sleeper(uid)
            try:
                Path(dependencies.cgroups._unified, "cgroup.procs").write_text(str(above.pid))
                strays = await backend.strays()
                assert {int(one.split("-")[1]) for one in strays} == {above.pid, beside.pid}
                for one in strays:
                    await backend.end_stray(one)
                    await backend.end_stray(one)
                await asyncio.to_thread(above.wait, 10)
                await asyncio.to_thread(beside.wait, 10)
                assert await backend.strays() == {}
                assert (await backend.recover(handle)).presence is Presence.RUNNING
            finally:
                for process in (above, beside):
                    process.kill()
                    process.wait()


async def test_a_stray_process_is_stale_and_reaped_by_the_owner() -> None:
    require_walls()
    with state_folder() as state:
        try:
            async with real_platform(state) as served:
                await served.sandbox(resources={"disk_mb": 64})
                dependencies = served.platform.backends["ext.namespaces"].dependencies  # type: ignore[attr-defined]
                stray = sleeper()
                try:
                    Path(dependencies.cgroups._unified, "cgroup.procs").write_text(str(stray.pid))
                    (held,) = (await served.client.get("/v1/host/stale")).json()["stale"]
                    assert (held["kind"], held["id"].split("-")[1]) == ("process", str(stray.pid))
                    assert len((await served.client.post("/v1/host/reap-stale")).json()["removed"]) == 1
                    await eventually(lambda: stray.poll() is not None)
                finally:
                    stray.kill()
                    stray.wait()
        finally:
            kill_everything(state)
