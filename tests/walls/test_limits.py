"""Limits: one greedy tenant meets its own ceiling, learns which, and nobody else notices."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sandboxer.backends.contract import Presence
from sandboxer.backends.guest import Command, EndReason, Exit, Output
from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.kernel.errors import BackendLost, NoCapacity
from tests.support.walls import Maker, Sandbox

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def is_unharmed(neighbour: Sandbox) -> bool:
    began = time.monotonic()
    ran = await neighbour.sh("echo x > /root/probe && cat /root/probe")
    return ran.stdout == "x\n" and time.monotonic() - began < 5


async def test_a_fork_bomb_meets_its_limit_and_is_told_so(make: Maker, neighbour: Sandbox) -> None:
    # Behind gVisor each of them takes megabytes.
    bomber = await make(pids=48, memory_mb=512)
    program = """
import os, signal, sys
children = []
while True:
    try:
        pid = os.fork()
    except OSError as error:
        print(len(children), error.errno)
        for child in children:
            os.kill(child, 9)
        sys.exit(3)
    if pid == 0:
        signal.pause()
    children.append(pid)
"""
    ran = await bomber.python(program)
    count, error = map(int, ran.stdout.split())
    assert 32 <= count <= 64
    assert error == 11
    assert ran.exit.reason is EndReason.PIDS_EXHAUSTED
    assert await is_unharmed(neighbour)
    assert (await bomber.sh("echo alive")).stdout == "alive\n"


async def test_a_wild_fork_bomb_can_be_killed(make: Maker, neighbour: Sandbox) -> None:
    bomber = await make(pids=64)
    await bomber.sh("bomb() { bomb | bomb & }; (bomb) >/dev/null 2>&1 &")
    assert await is_unharmed(neighbour)
    usage = await bomber.backend.usage(bomber.handle)
    assert usage.processes <= 64 + 16
    began = time.monotonic()
    await bomber.backend.teardown(bomber.id)
    assert time.monotonic() - began < 5


async def test_a_memory_hog_is_killed_and_told_so(make: Maker, neighbour: Sandbox) -> None:
    hog = await make(memory_mb=64)
    if hog.has_own_kernel:
        # What is out of memory is its kernel: it ends whole, and nobody else does.
        with pytest.raises(BackendLost):
            await hog.python("x = bytearray(200 << 20); print('got it')")
        seen = await hog.backend.recover(hog.handle)
        assert (seen.presence, seen.reason) == (Presence.STOPPED, "oom_killed")
        assert await is_unharmed(neighbour)
        return
    ran = await hog.python("x = bytearray(200 << 20); print('got it')")
    assert ran.stdout == ""
    assert ran.exit.reason is EndReason.OOM_KILLED
    assert ran.exit.signal == 9
    # The supervisor was spared.
    assert (await hog.sh("echo alive")).stdout == "alive\n"
    assert await is_unharmed(neighbour)


async def test_memory_behind_files_in_shared_memory_counts_too(make: Maker) -> None:
    hog = await make(memory_mb=256)
    ran = await hog.sh("head -c 100M /dev/zero > /dev/shm/big")
    assert ran.code != 0
    assert "No space left" in ran.stderr


async def test_a_full_disk_is_refused_at_once_and_told_so(make: Maker, neighbour: Sandbox) -> None:
    hog = await make(disk_mb=24)
    ran = await hog.sh("head -c 64M /dev/urandom > /root/big")
    assert ran.code != 0
    assert "quota exceeded" in ran.stderr.lower()
    assert ran.exit.reason is EndReason.DISK_FULL
    assert await is_unharmed(neighbour)
    usage = await hog.backend.usage(hog.handle)
    assert usage.disk_bytes <= usage.disk_limit_bytes == 24 << 20


async def test_a_full_disk_can_be_emptied_again(make: Maker) -> None:
    hog = await make(disk_mb=24)
    await hog.sh("head -c 64M /dev/urandom > /root/big")
    ran = await hog.sh("rm /root/big && sync && head -c 4M /dev/urandom > /root/small && echo fits")
    assert ran.stdout == "fits\n"


async def test_ten_thousand_files_do_not_leave_the_disk(make: Maker) -> None:
    box = await make(disk_mb=64)
    program = """
import os
os.mkdir("/root/many")
for number in range(10000):
    open(f"/root/many/{number}", "w").close()
print("done")
"""
    assert (await box.python(program)).stdout == "done\n"


async def test_cpu_time_is_held_to_the_share(make: Maker) -> None:
    spinner = await make(vcpus=0.25)
    program = """
import time
end = time.monotonic() + 2
while time.monotonic() < end: pass
"""
    # As the host counts it: a kernel that is held up itself cannot tell.
    before = (await spinner.backend.usage(spinner.handle)).cpu_s
    await spinner.python(program)
    assert (await spinner.backend.usage(spinner.handle)).cpu_s - before < 2 * 0.25 * 1.6


@pytest.mark.parametrize("what", ["inotify", "terminals"])
async def test_counted_kernel_objects_are_the_tenants_own(
    make: Maker, attacks: bytes, outside: Callable[[str], str], what: str
) -> None:
    one = {"inotify": "one_inotify", "terminals": "one_terminal"}[what]
    greedy, other = await make(), await make()
    for box in (greedy, other):
        await box.put("/tmp/attacks", attacks)
    command = Command(argv=["/tmp/attacks", f"exhaust_{what}", "hold"])
    async with await (await greedy.guest()).run(command) as process:
        first = await anext(process.output())
        assert isinstance(first, Output)
        count, state = first.data.split()
        assert state == b"held"
        assert 0 < int(count) <= 4096
        # Of a kernel of its own only its memory and its descriptors are the ceiling.
        assert (await greedy.attack(one)).startswith("refused") or greedy.has_own_kernel
        assert await other.attack(one) == "allowed"
        assert outside(one) == "allowed"
        await process.kill()


async def test_terminals_end_at_the_ceiling(make: Maker, attacks: bytes) -> None:
    box = await make()
    await box.put("/tmp/attacks", attacks)
    ceiling = "4091 refused EMFILE" if box.has_own_kernel else "64 refused ENOSPC"
    assert await box.attack("exhaust_terminals") == ceiling


async def test_queued_signals_end_at_the_ceiling(attacker: Sandbox) -> None:
    if attacker.has_own_kernel:
        pytest.skip("behind gVisor: they are its own memory, and who fills it ends its own sandbox")
    count, verdict = (await attacker.attack("exhaust_signals")).split(" ", 1)
    assert int(count) <= 1024
    assert verdict == "refused EAGAIN"


async def test_no_cgroup_can_be_left(attacker: Sandbox, backend: NamespacesBackend) -> None:
    ran = await attacker.sh("cat /proc/self/cgroup; ls /sys/fs/cgroup; grep cgroup /proc/mounts")
    assert all(line.split(":")[2].startswith("/") for line in ran.stdout.splitlines() if ":" in line)
    assert "mounts" not in ran.stdout
    assert backend.dependencies.settings.cgroup_parent not in ran.stdout
    # From outside: the first process is where it was put.
    places = Path(f"/proc/{attacker.pid}/cgroup").read_text()
    assert f"{backend.dependencies.settings.cgroup_parent}/{attacker.id}/guest" in places


async def test_a_command_that_ends_well_has_no_reason(attacker: Sandbox) -> None:
    ran = await attacker.sh("true")
    assert ran.exit.reason is None
    assert (await attacker.sh("exit 7")).exit.reason is None


async def test_killing_a_command_takes_children_it_gave_away(make: Maker) -> None:
    box = await make()
    guest = await box.guest()
    script = "setsid sh -c 'sleep 77777 & sleep 88888' & echo up; wait; sleep 99999"
    async with await guest.run(Command(argv=["/bin/sh", "-c", script])) as process:
        outputs = process.output()
        await anext(outputs)
        await process.kill()
        async for item in outputs:
            if isinstance(item, Exit):
                assert item.reason is EndReason.KILLED
    # The kernel kills them one after the other.
    async with asyncio.timeout(5):
        while "77777" in (left := await box.sh("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")).stdout:
            pass
    assert not any(word in left.stdout for word in ("77777", "88888", "99999"))
    assert os.path.exists(f"/proc/{box.pid}")


async def test_lines_to_one_sandbox_are_counted_and_given_back(make: Maker) -> None:
    box = await make(pids=512, memory_mb=512)
    guest = await box.guest()
    limit = box.backend.dependencies.settings.streams
    sleeper = Command(argv=["/bin/sleep", "1000"], keep=False)
    async with AsyncExitStack() as lines:
        for _ in range(limit):
            await lines.enter_async_context(await guest.run(sleeper))
        with pytest.raises(NoCapacity) as refusal:
            await guest.ping()
        assert refusal.value.facts["resource"] == "streams"
        # The host itself is not shut out.
        assert (await box.backend.recover(box.handle)).presence is Presence.RUNNING
    await guest.ping()
