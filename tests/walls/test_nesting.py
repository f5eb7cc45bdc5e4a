"""A sandbox that nests lets a builder of images be root over namespaces of its own, and over nothing else: no
new file system, no network, no way around what the launcher mounted."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from sandboxer.backends.namespaces import NamespacesBackend
from tests.support.walls import Sandbox, order_for

pytestmark = pytest.mark.asyncio(loop_scope="session")
EPERM, EBUSY, EINVAL = 1, 16, 22

# Root in a user and a mount namespace of its own, with every user of the sandbox in it, as a builder has it.
NESTED = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def errno_of(result):
    return ctypes.get_errno() if result == -1 else 0
def mount(source, target, kind, flags, data=None):
    return errno_of(libc.mount(source, target, kind, ctypes.c_ulong(flags), data))
NEWNS, NEWUSER, NEWNET, NEWCGROUP, NEWPID = 0x20000, 0x10000000, 0x40000000, 0x2000000, 0x20000000
BIND, REMOUNT, RDONLY, REC, PRIVATE, MOVE = 4096, 32, 1, 16384, 1 << 18, 8192
def enter():
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child:
        os.read(ready[0], 1)
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{child}/{name}", "w") as file:
                file.write("0 0 65536")
        os.write(go[1], b"k")
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    assert libc.unshare(NEWUSER | NEWNS) == 0, os.strerror(ctypes.get_errno())
    os.write(ready[1], b"k")
    os.read(go[0], 1)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def builder(backend: NamespacesBackend) -> AsyncIterator[Sandbox]:
    order = replace(order_for(), nests=True)
    yield Sandbox(backend, await backend.provision(order), order)
    await backend.teardown(order.sandbox_id)


async def found(box: Sandbox, script: str) -> Any:
    ran = await box.run("/usr/bin/python3", "-c", NESTED + script)
    assert ran.code == 0, ran.stderr
    return json.loads(ran.stdout)


async def test_others_make_no_namespaces(attacker: Sandbox) -> None:
    script = "print(json.dumps([errno_of(libc.unshare(flag)) for flag in (NEWUSER, NEWNS, NEWPID)]))"
    assert await found(attacker, script) == [EPERM] * 3


async def test_a_builder_sees_its_own_files_elsewhere(builder: Sandbox) -> None:
    script = """
enter()
os.makedirs("/tmp/seen", exist_ok=True)
print(json.dumps([mount(b"/etc", b"/tmp/seen", None, BIND), os.path.exists("/tmp/seen/passwd"), os.getuid()]))
"""
    assert await found(builder, script) == [0, True, 0]
    assert (await builder.sh("ls /tmp/seen")).stdout == "", "its mounts are its own"


async def test_no_file_system_is_new(builder: Sandbox) -> None:
    """Not even one that any user namespace may mount: parsers of file systems stay out of reach."""
    script = """
enter()
kinds = "proc sysfs tmpfs overlay devpts mqueue cgroup2 fuse ext4 btrfs".split()
print(json.dumps([mount(b"none", b"/mnt", kind.encode(), 0) for kind in kinds]))
"""
    assert set(await found(builder, script)) == {EPERM}


async def test_a_mark_of_old_programs_hides_no_new_file_system(builder: Sandbox) -> None:
    """The kernel drops 0xC0ED from the upper half of the flags, where its bits look like propagation."""
    script = """
enter()
MARK = 0xC0ED0000
kinds = "proc tmpfs ramfs overlay devpts mqueue".split()
new = [mount(b"none", b"/mnt", kind.encode(), MARK | flags) for kind in kinds for flags in (0, RDONLY, MOVE)]
# Old programs write it beside what is allowed.
os.makedirs("/tmp/marked", exist_ok=True)
print(json.dumps([new, mount(b"/etc", b"/tmp/marked", None, MARK | BIND)]))
"""
    new, bound = await found(builder, script)
    assert set(new) == {EPERM}
    assert bound == 0


async def test_no_other_doors_to_mounts_and_namespaces(builder: Sandbox) -> None:
    script = """
enter()
doors = {"pivot_root": 155, "setns": 308, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fspick": 433,
         "fsmount": 432, "mount_setattr": 442, "bpf": 321, "io_uring_setup": 425, "keyctl": 250,
         "open_by_handle_at": 304, "userfaultfd": 323, "perf_event_open": 298}
answers = {name: errno_of(libc.syscall(number, 0, 0, 0, 0, 0)) for name, number in doors.items()}
answers["a network"] = errno_of(libc.unshare(NEWNET))
answers["a network by clone"] = errno_of(libc.syscall(56, NEWNET | 17, 0, 0, 0, 0))
answers["cgroups"] = errno_of(libc.unshare(NEWCGROUP))
answers["a moved mount"] = mount(b"/dev", b"/mnt", None, MOVE)
print(json.dumps(answers))
"""
    answers = await found(builder, script)
    assert answers == dict.fromkeys(answers, EPERM)


async def test_what_the_launcher_covered_stays_covered(builder: Sandbox) -> None:
    script = """
enter()
covers = ["/proc/keys", "/proc/kallsyms", "/proc/sys", "/proc/bus", "/dev", "/proc"]
lifted = [errno_of(libc.umount2(path.encode(), flag)) for path in covers for flag in (0, 2)]
writable = [mount(None, path, None, BIND | REMOUNT) for path in (b"/proc/sys", b"/dev")]
# A bind that leaves the covers behind would show what they hide.
bare = mount(b"/proc", b"/mnt", None, BIND)
print(json.dumps([lifted, writable, bare]))
"""
    lifted, writable, bare = await found(builder, script)
    assert set(lifted) <= {EINVAL, EBUSY, EPERM}
    assert writable == [EPERM, EPERM]
    assert bare == EINVAL


async def test_root_in_it_reaches_nothing_of_the_host(builder: Sandbox) -> None:
    script = """
enter()
def try_to(act):
    try:
        return str(act())
    except OSError as error:
        return error.errno
print(json.dumps([
    try_to(lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(254, 0))),
    try_to(lambda: open("/proc/sys/kernel/core_pattern", "w")),
    try_to(lambda: open("/proc/sysrq-trigger", "w").write("b")),
    try_to(lambda: os.listdir("/proc/1/root")),
    os.path.exists("/sys/kernel"), os.listdir("/sys/class/net") if os.path.isdir("/sys/class") else [],
]))
"""
    answers = await found(builder, script)
    assert answers[0] == EPERM
    assert all(isinstance(answer, int) for answer in answers[:4]), answers
    assert answers[4:] == [False, []]


async def test_a_bomb_of_mounts_stays_in_its_sandbox(builder: Sandbox, neighbour: Sandbox) -> None:
    """Each round doubles what is mounted, up to the kernel's limit for one namespace. Others go on."""
    script = """
enter()
os.makedirs("/tmp/deep/er", exist_ok=True)
assert mount(b"/tmp/deep", b"/tmp/deep", None, BIND) == 0
rounds = 0
while rounds < 40 and not mount(b"/tmp/deep", b"/tmp/deep/er", None, BIND | REC):
    rounds += 1
print(json.dumps(rounds))
"""
    ran = await builder.run("/usr/bin/python3", "-c", NESTED + script)
    assert ran.code != 0 or int(ran.stdout) < 40, "killed, or refused"
    assert (await neighbour.sh("echo fine")).stdout == "fine\n"
    assert (await builder.sh("echo fine")).stdout == "fine\n"
