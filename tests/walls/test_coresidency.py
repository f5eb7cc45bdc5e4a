"""What a sandbox can read does not tell which others share its host."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.kernel.errors import ProvisionFailed
from tests.support.walls import Maker, Sandbox

pytestmark = pytest.mark.asyncio(loop_scope="session")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\n")

COUNTERS = [
    "buddyinfo", "cgroups", "diskstats", "interrupts", "locks", "partitions", "schedstat", "softirqs",
    "swaps", "vmallocinfo", "vmstat", "zoneinfo", "iomem", "modules", "sys/fs/file-nr", "sys/fs/inode-nr",
    "sys/fs/inode-state", "sys/fs/dentry-state", "sys/fs/aio-nr", "sys/kernel/pty/nr",
]  # fmt: skip


@pytest.mark.parametrize("name", COUNTERS)
async def test_counters_of_the_host_are_covered(attacker: Sandbox, name: str) -> None:
    if not os.path.exists(f"/proc/{name}"):
        pytest.skip(f"this kernel has no /proc/{name}")
    assert (await attacker.sh(f"cat /proc/{name}")).stdout == ""


@pytest.mark.parametrize("name", ["pressure", "irq", "bus", "fs", "tty"])
async def test_folders_of_the_host_are_empty(attacker: Sandbox, name: str) -> None:
    if not os.path.isdir(f"/proc/{name}"):
        pytest.skip(f"this kernel has no /proc/{name}")
    assert (await attacker.sh(f"ls -A /proc/{name}")).stdout == ""
    assert (await attacker.sh(f"touch /proc/{name}/x")).code != 0


async def test_each_start_has_a_boot_id_of_its_own(
    make: Maker, attacker: Sandbox, backend: NamespacesBackend
) -> None:
    path = "/proc/sys/kernel/random/boot_id"
    box = await make()
    mine, other = [(await one.sh(f"cat {path}")).stdout for one in (box, attacker)]
    host = Path(path).read_text()
    assert UUID.fullmatch(mine)
    assert UUID.fullmatch(other)
    assert len({mine, other, host}) == 3
    assert (await box.sh(f"echo x > {path}")).code != 0
    await backend.stop(box.handle)
    again = Sandbox(backend, await backend.resume(box.handle, box.order), box.order)
    assert (await again.sh(f"cat {path}")).stdout not in (mine, other, host)


async def test_uptime_counts_from_the_sandboxes_own_start(make: Maker) -> None:
    if not os.path.exists("/proc/self/ns/time"):
        pytest.skip("this kernel has no time namespaces")
    box = await make()
    program = """
import time
print(open("/proc/uptime").read().split()[0], time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME))
began = time.monotonic()
time.sleep(0.05)
assert 0.05 <= time.monotonic() - began < 5
"""
    ran = await box.python(program)
    assert ran.code == 0, ran.stderr
    assert all(0 <= float(word) < 60 for word in ran.stdout.split())


async def test_tools_that_count_cpus_memory_and_processes_still_work(attacker: Sandbox) -> None:
    ran = await attacker.sh("nproc && grep -c MemTotal /proc/meminfo && cut -d' ' -f1 /proc/loadavg")
    assert ran.code == 0, ran.stderr
    program = "import os; print(os.cpu_count() == len(os.sched_getaffinity(0)), os.getloadavg()[0] >= 0)"
    assert (await attacker.python(program)).stdout == "True True\n"
    for tool in ("free", "ps", "uptime"):
        if (await attacker.sh(f"command -v {tool}")).code == 0:
            ran = await attacker.sh(tool)
            assert ran.code == 0, ran.stderr


async def test_proc_is_never_mounted_over_what_a_link_leads_to(
    make: Maker, backend: NamespacesBackend
) -> None:
    box = await make()
    await backend.stop(box.handle)
    upper = backend.dependencies.pool.disk(box.id) / "upper"
    shutil.rmtree(upper / "proc", ignore_errors=True)
    (upper / "proc").symlink_to("etc")
    with pytest.raises(ProvisionFailed) as failure:
        await backend.resume(box.handle, box.order)
    assert failure.value.facts["step"] == "proc"
    (upper / "proc").unlink()
    again = Sandbox(backend, await backend.resume(box.handle, box.order), box.order)
    assert (await again.sh("cat /proc/self/comm")).stdout == "cat\n"
