"""Processes: PID 1 keeps its secrets, and nobody else's process can be seen or touched."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.kernel.values import new_id
from sandboxer.work.lines import Wanted, launch
from tests.support.walls import Maker, Sandbox

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def marked_process() -> Iterator[int]:
    """A process of the host with a name nothing else has."""
    process = subprocess.Popen(["sleep", "987654321"])
    while "987654321" not in Path(f"/proc/{process.pid}/cmdline").read_text():
        assert process.poll() is None
    yield process.pid
    process.kill()
    process.wait()


@pytest.mark.parametrize(
    ("attack", "answer"),
    [
        ("pidfd_getfd", "EPERM"),
        ("ptrace", "EPERM"),
        ("process_vm_readv", "EPERM"),
        ("proc_1_mem", "EACCES"),
        ("proc_1_environ", "EACCES"),
        ("proc_1_fd", "EACCES"),
        ("proc_1_root", "EACCES"),
    ],
)
async def test_the_first_process_gives_nothing_away(attacker: Sandbox, attack: str, answer: str) -> None:
    assert await attacker.attack(attack) == f"refused {answer}"


async def test_the_first_process_cannot_be_killed_from_inside(attacker: Sandbox) -> None:
    await attacker.sh("kill -9 1; kill -TERM 1; kill -STOP 1; kill -SEGV 1")
    assert (await attacker.sh("echo still here")).stdout == "still here\n"


async def test_the_supervisors_program_cannot_be_changed(attacker: Sandbox) -> None:
    assert await attacker.attack("overwrite_supervisor") in (
        "refused EROFS",
        "refused EACCES",
        "refused ETXTBSY",
    )


async def test_host_processes_are_invisible(attacker: Sandbox, marked_process: int) -> None:
    assert "987654321" in Path(f"/proc/{marked_process}/cmdline").read_text()
    ran = await attacker.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert ran.stdout.removeprefix("/dev/.sandboxer/").startswith("supervisor ")
    assert "987654321" not in ran.stdout


async def test_host_processes_cannot_be_signalled(attacker: Sandbox, marked_process: int) -> None:
    program = (
        f"import os\ntry: os.kill({marked_process}, 9); print('sent')\nexcept OSError as e: print(e.errno)"
    )
    ran = await attacker.python(program)
    # Whatever has that number inside is the sandbox's own, or nothing.
    assert ran.stdout in ("3\n", "sent\n")
    assert Path(f"/proc/{marked_process}/cmdline").read_text().startswith("sleep")


async def test_a_neighbours_processes_are_invisible(attacker: Sandbox, neighbour: Sandbox) -> None:
    from_neighbour = await neighbour.sh("sleep 45454545 >/dev/null 2>&1 & echo started")
    assert from_neighbour.stdout == "started\n"
    assert "45454545" in (await neighbour.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout
    assert "45454545" not in (await attacker.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout


async def test_no_two_sandboxes_share_a_host_uid(attacker: Sandbox, neighbour: Sandbox) -> None:
    maps = [Path(f"/proc/{box.pid}/uid_map").read_text().split() for box in (attacker, neighbour)]
    ranges = [range(int(first), int(first) + int(count)) for _, first, count in maps]
    assert all(len(each) == 65536 and each.start > 65535 for each in ranges)
    assert ranges[0].stop <= ranges[1].start or ranges[1].stop <= ranges[0].start
    assert os.stat(f"/proc/{attacker.pid}").st_uid in (0, *ranges[0])


async def test_nothing_of_the_host_is_inherited(attacker: Sandbox) -> None:
    """Looked at from outside, where the first process cannot hide anything."""
    # The folder that only it can write, a file system of its own.
    description = os.stat(f"/proc/{attacker.pid}/root/run/sandboxer").st_dev
    figures = attacker.backend.dependencies.cgroups.births(attacker.id, attacker.order.resources).figures
    for name in os.listdir(f"/proc/{attacker.pid}/fd"):
        held = f"/proc/{attacker.pid}/fd/{name}"
        target = os.readlink(held)
        if target.startswith(("/dev/null", "socket:", "pipe:", "anon_inode:")):
            continue
        seen = os.stat(held)
        if seen.st_dev == description or seen.st_rdev == os.makedev(10, 229):
            continue
        flags = int(Path(f"/proc/{attacker.pid}/fdinfo/{name}").read_text().split()[3], 8)
        assert flags & os.O_ACCMODE == os.O_RDONLY, target
        # What it makes files of that show the sandbox's limits.
        assert target in {*figures.values(), "/proc/cpuinfo"}, target
    assert description not in {os.stat(path).st_dev for path in ("/", "/run", "/tmp", "/dev", "/var/tmp")}
    environment = Path(f"/proc/{attacker.pid}/environ").read_bytes()
    assert environment in (b"", b"PWD=/\0")


async def test_a_command_has_three_descriptors_and_no_more(attacker: Sandbox) -> None:
    ran = await attacker.python("import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd')))")
    # The fourth is the listing itself.
    assert ran.stdout == "[0, 1, 2, 3]\n"


async def test_the_hosts_environment_is_not_inside(attacker: Sandbox) -> None:
    ran = await attacker.sh("cat /proc/self/environ | tr '\\0' '\\n'; env")
    names = {line.split("=")[0] for line in ran.stdout.splitlines()}
    assert names <= {
        "PATH",
        "HOME",
        "PWD",
        "USER",
        "LOGNAME",
        "SHELL",
        "OLDPWD",
        "_",
        "TERM",
        "LANG",
        "SHLVL",
    }


async def test_keyrings_are_out_of_reach(attacker: Sandbox, outside: Callable[[str], str]) -> None:
    assert outside("keyctl") == "allowed"
    # Those of a kernel of its own are nobody else's.
    answer = "allowed" if attacker.has_own_kernel else "refused EPERM"
    assert await attacker.attack("keyctl") == answer
    assert (await attacker.sh("cat /proc/keys /proc/key-users")).stdout == ""


async def test_a_background_process_starts_although_the_usual_folder_is_gone(
    make: Maker, backend: NamespacesBackend
) -> None:
    box = await make()
    await box.sh("rm -rf /workspace")
    guest = await backend.guest(box.handle)
    async with await launch(guest, Wanted(argv=["true"]), {}, tag="", process_id=new_id("prc")) as process:
        assert process.process_id.startswith("prc_")
