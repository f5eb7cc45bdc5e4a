"""Survival: sandboxes outlive the server, the next one finds them, and what ended is known to have ended."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from sandboxer.backends.contract import Handle, Presence
from sandboxer.backends.namespaces import NamespacesBackend, NamespacesSettings, open_backend
from sandboxer.backends.namespaces.box import RECORD, BoxFolder, Stage
from tests.support.walls import Maker, Sandbox, becomes_true, order_for, traces

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def own(settings: NamespacesSettings) -> AsyncIterator[NamespacesSettings]:
    """A state folder for one test, whose backend may be opened, killed and opened again."""
    state = Path(tempfile.mkdtemp(prefix="walls-own-", dir="/var/tmp"))
    mine = replace(settings, state_dir=state, pool_size_mb=512, uid_base=settings.uid_base + 65536 * 4096)
    yield mine
    async with open_backend(mine) as backend:
        for sandbox_id in await backend.inventory():
            await backend.teardown(sandbox_id)
        pool = backend.dependencies.pool
    pool.unmount()
    shutil.rmtree(state, ignore_errors=True)


async def test_a_sandbox_goes_on_when_the_server_ends(own: NamespacesSettings) -> None:
    order = order_for()
    async with open_backend(own) as first:
        handle = await first.provision(order)
        box = Sandbox(first, handle, order)
        await box.sh("echo kept > /root/file; sleep 1000 >/dev/null 2>&1 & echo $! > /root/pid")
    stored = Handle(**json.loads(json.dumps({**_fields(handle)})))
    async with open_backend(own) as second:
        assert (await second.recover(stored)).presence is Presence.RUNNING
        again = Sandbox(second, stored, order)
        assert (
            await again.sh("cat /root/file; kill -0 $(cat /root/pid) && echo running")
        ).stdout == "kept\nrunning\n"
        assert second.dependencies.promised.memory_mb == order.resources.memory_mb
        assert second.dependencies.ranges.acquired
        deaths = second.deaths()
        os.kill(box.pid, signal.SIGKILL)
        async with asyncio.timeout(5):
            assert await anext(deaths) == order.sandbox_id


async def test_two_servers_cannot_share_a_state_folder(
    own: NamespacesSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandboxer.backends.namespaces.dependencies.LOCK_TIMEOUT_S", 0.2)
    async with open_backend(own):
        with pytest.raises(Exception, match="another server"):
            async with open_backend(own):
                pass


async def test_the_death_of_a_sandbox_is_heard(make: Maker, backend: NamespacesBackend) -> None:
    box = await make()
    deaths = backend.deaths()
    os.kill(box.pid, signal.SIGKILL)
    async with asyncio.timeout(5):
        while await anext(deaths) != box.id:
            pass
    seen = await backend.recover(box.handle)
    assert (seen.presence, seen.reason) == (Presence.STOPPED, "exited")


async def test_a_destroy_is_not_reported_as_a_death(make: Maker, backend: NamespacesBackend) -> None:
    asked, other = await make(), await make()
    deaths = backend.deaths()
    await backend.teardown(asked.id)
    os.kill(other.pid, signal.SIGKILL)
    async with asyncio.timeout(5):
        assert await anext(deaths) == other.id


async def test_a_silent_supervisor_is_found_out(
    make: Maker, backend: NamespacesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandboxer.backends.namespaces.backend.ANSWER_TIMEOUT_S", 0.3)
    box = await make()
    os.kill(box.pid, signal.SIGSTOP)
    seen = await backend.recover(box.handle)
    assert (seen.presence, seen.reason) == (Presence.STOPPED, "not_answering")
    assert await becomes_true(lambda: not os.path.exists(f"/proc/{box.pid}/ns/pid"))


async def test_stopping_keeps_the_disk_and_resuming_finds_it(make: Maker, backend: NamespacesBackend) -> None:
    box = await make()
    await box.sh("echo kept > /root/file; sleep 1000 >/dev/null 2>&1 &")
    machine = (await box.sh("cat /etc/machine-id")).stdout
    await backend.stop(box.handle)
    await backend.stop(box.handle)
    assert (await backend.recover(box.handle)).presence is Presence.STOPPED
    assert not backend.dependencies.cgroups.ids() & {box.id}
    handle = await backend.resume(box.handle, box.order)
    again = Sandbox(backend, handle, box.order)
    assert (await again.sh("cat /root/file /etc/machine-id")).stdout == "kept\n" + machine
    assert "1000" not in (await again.sh("cat /proc/[0-9]*/cmdline")).stdout


async def test_resuming_in_another_uid_range_keeps_owners(make: Maker, backend: NamespacesBackend) -> None:
    box = await make()
    await box.sh("touch /root/f; chown 1000:1000 /root/f")
    slot = backend.dependencies.known[box.id].slot
    await backend.stop(box.handle)
    other = await make()
    assert backend.dependencies.known[other.id].slot == slot
    again = Sandbox(backend, await backend.resume(box.handle, box.order), box.order)
    assert backend.dependencies.known[box.id].slot != slot
    assert (
        await again.sh("stat -c '%u %g' /root/f; chown 5:5 /root/f && echo ok")
    ).stdout == "1000 1000\nok\n"


async def test_resuming_at_once_never_lays_two_overlays_over_one_disk(
    make: Maker, backend: NamespacesBackend
) -> None:
    """The kernel permits it with a warning and undefined results."""

    def warnings() -> int:
        log = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
        return log.count("upperdir is in-use")

    before = await asyncio.to_thread(warnings)
    boxes = [await make(memory_mb=64, disk_mb=32) for _ in range(4)]

    async def again_and_again(box: Sandbox) -> None:
        handle = box.handle
        for _ in range(10):
            await backend.stop(handle)
            handle = await backend.resume(handle, box.order)

    async with asyncio.TaskGroup() as group:
        for box in boxes:
            group.create_task(again_and_again(box))
    assert await asyncio.to_thread(warnings) == before


async def test_files_can_be_read_while_processes_are_frozen(make: Maker, backend: NamespacesBackend) -> None:
    box = await make()
    await box.sh("date > /root/tick; (while :; do date +%s%N > /root/tick; done) >/dev/null 2>&1 &")
    guest = await box.guest()

    async def tick() -> bytes:
        return b"".join([chunk async for chunk in guest.files.read("/root/tick")])

    await backend.freeze(box.handle)
    assert (await backend.recover(box.handle)).presence is Presence.FROZEN
    stood = await tick()
    await asyncio.sleep(0.1)
    assert await tick() == stood
    await backend.thaw(box.handle)

    seen = stood
    async with asyncio.timeout(5):
        while seen in (stood, b""):
            seen = await tick()
    assert (await backend.recover(box.handle)).presence is Presence.RUNNING


async def test_after_a_host_reboot_sandboxes_are_stopped_and_can_be_resumed(own: NamespacesSettings) -> None:
    order = order_for()
    async with open_backend(own) as before:
        handle = await before.provision(order)
        await Sandbox(before, handle, order).sh("echo kept > /root/file; sync")
        before.dependencies.cgroups.kill(order.sandbox_id)
        assert before.dependencies.cgroups.wait_empty(order.sandbox_id, 5)
        before.dependencies.cgroups.remove(order.sandbox_id)
        pool = before.dependencies.pool
    pool.unmount()
    _forge_boot_id(own, order.sandbox_id)
    async with open_backend(own) as after:
        assert after.dependencies.promised.memory_mb == 0
        seen = await after.recover(handle)
        assert (seen.presence, seen.reason) == (Presence.STOPPED, "host_rebooted")
        assert seen.last_seen_alive is not None
        again = Sandbox(after, await after.resume(handle, order), order)
        assert (await again.sh("cat /root/file")).stdout == "kept\n"


async def test_the_launcher_may_die_and_the_next_order_starts_another(
    make: Maker, backend: NamespacesBackend
) -> None:
    first = await make()
    running = backend.dependencies.launcher._running
    assert running is not None
    running.process.kill()
    assert await becomes_true(lambda: running.process.poll() is not None)
    await asyncio.sleep(0)
    second = await make()
    assert (await first.sh("echo one")).stdout == "one\n"
    assert (await second.sh("echo two")).stdout == "two\n"


KILLED_SERVER = """
import asyncio, json, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.support.walls import order_for
from sandboxer.backends.namespaces import NamespacesSettings, open_backend

async def main():
    settings = NamespacesSettings(
        state_dir=Path({state!r}), images_dir=Path({images!r}), guest_dir=Path({guest!r}),
        pool_size_mb=512, uid_base={uid_base},
    )
    async with open_backend(settings) as backend:
        print("open", flush=True)
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(work(backend))

async def work(backend):
    while True:
        order = order_for(disk_mb=32)
        handle = await backend.provision(order)
        print(json.dumps({{"id": order.sandbox_id, "data": dict(handle.data)}}), flush=True)
        await backend.stop(handle)
        handle = await backend.resume(handle, order)
        await backend.teardown(order.sandbox_id)
        print(json.dumps({{"gone": order.sandbox_id}}), flush=True)

asyncio.run(main())
"""


@pytest.mark.timeout(180)
async def test_a_server_killed_at_any_moment_leaves_nothing_the_next_cannot_remove(
    own: NamespacesSettings,
) -> None:
    program = KILLED_SERVER.format(
        root=str(Path(__file__).parents[2]),
        state=str(own.state_dir),
        images=str(own.images_dir),
        guest=str(own.guest_dir),
        uid_base=own.uid_base,
    )
    rng = random.Random(7)
    for _ in range(12):
        server = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=subprocess.PIPE)
        assert server.stdout is not None
        assert await server.stdout.readline() == b"open\n"
        await asyncio.sleep(rng.uniform(0.0, 0.12))
        server.kill()
        await server.communicate()
        async with open_backend(own) as next_server:
            found = await next_server.inventory()
            assert {*next_server.dependencies.known} <= set(found)
            for sandbox_id in found:
                await next_server.recover(Handle(sandbox_id=sandbox_id, backend=next_server.name, version=1))
                await next_server.teardown(sandbox_id)
                assert traces(next_server, sandbox_id) == []
            assert await next_server.inventory() == []
            assert next_server.dependencies.promised == type(next_server.dependencies.promised)()
            assert not next_server.dependencies.ranges.acquired


@pytest.mark.parametrize("record", [None, b""])
async def test_the_folder_of_a_record_that_was_never_written_is_removed(
    own: NamespacesSettings, record: bytes | None
) -> None:
    """As a server leaves it that is killed before the one write that makes the record."""
    sandbox_id = order_for().sandbox_id
    _leave_folder(own, sandbox_id, record)
    async with open_backend(own) as next_server:
        assert traces(next_server, sandbox_id) == []
        assert await next_server.inventory() == []


async def test_what_a_damaged_record_is_about_is_left_alone(own: NamespacesSettings) -> None:
    """Somebody may want it back: it is shown, and kept for its grace."""
    torn, emptied = order_for(), order_for()
    _leave_folder(own, torn.sandbox_id, b'{"sandbox_id": "sbx_')
    async with open_backend(own) as first:
        await first.provision(emptied)
    os.truncate(own.run_dir / emptied.sandbox_id / RECORD, 0)
    async with open_backend(own) as second:
        assert await second.inventory() == sorted([torn.sandbox_id, emptied.sandbox_id])
        assert second.dependencies.pool.has_disk(emptied.sandbox_id)


def _leave_folder(settings: NamespacesSettings, sandbox_id: str, record: bytes | None) -> None:
    folder = settings.run_dir / sandbox_id
    folder.mkdir(parents=True)
    if record is not None:
        (folder / RECORD).write_bytes(record)


def _fields(handle: Handle) -> dict[str, object]:
    return {
        "sandbox_id": handle.sandbox_id,
        "backend": handle.backend,
        "version": handle.version,
        "data": dict(handle.data),
    }


def _forge_boot_id(settings: NamespacesSettings, sandbox_id: str) -> None:
    folder = BoxFolder(settings.run_dir)
    box = folder.read(sandbox_id)
    assert box is not None
    assert box.stage is Stage.RUNNING
    folder.write(replace(box, boot_id="an-earlier-boot"))
    folder.close()
