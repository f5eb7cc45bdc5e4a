"""The filter is an allow-list: what it does not know is not there, what it refuses answers EPERM, and what
depends on its arguments is judged by them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.walls import Sandbox

pytestmark = pytest.mark.asyncio(loop_scope="session")
EPERM, E2BIG, ENODEV, EINVAL, ENOSYS, ENOPROTOOPT, EPROTONOSUPPORT = 1, 7, 19, 22, 38, 92, 93
ESOCKTNOSUPPORT, EAFNOSUPPORT = 94, 97
# Numbers of x86_64; those from 424 on are the same everywhere.
SYS = {
    "ioctl": 16, "madvise": 28, "socket": 41, "socketpair": 53, "setsockopt": 54, "fcntl": 72,
    "personality": 135, "prctl": 157, "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190,
}  # fmt: skip

ASK = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
answers = []
for number, *arguments in json.loads(sys.argv[1]):
    ctypes.set_errno(0)
    # A name, not a number: the sixth argument and those below are whole words.
    words = [ctypes.c_long(word) for word in (arguments + [-1] * 6)[:6]]
    result = libc.syscall(ctypes.c_long(number), *words)
    answers.append(ctypes.get_errno() if result == -1 else 0)
print(json.dumps(answers))
"""


async def answers(box: Sandbox, calls: list[list[int]]) -> Any:
    ran = await box.run("/usr/bin/python3", "-c", ASK, json.dumps(calls))
    assert ran.code == 0, f"{ran.exit} {ran.stderr}"
    return json.loads(ran.stdout)


# With arguments that are no good anywhere, so that a hole in the filter does nothing.
REFUSED = {
    "mount": 165, "umount2": 166, "pivot_root": 155, "open_tree": 428, "move_mount": 429, "fsopen": 430,
    "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442, "unshare": 272, "setns": 308,
    "sethostname": 170, "setdomainname": 171, "io_uring_setup": 425, "io_uring_enter": 426,
    "io_uring_register": 427, "io_setup": 206, "io_submit": 209, "userfaultfd": 323, "keyctl": 250,
    "add_key": 248, "request_key": 249, "bpf": 321, "perf_event_open": 298, "fanotify_init": 300,
    "fanotify_mark": 301, "open_by_handle_at": 304, "pidfd_getfd": 438, "kcmp": 312, "move_pages": 279,
    "migrate_pages": 256, "mbind": 237, "memfd_secret": 447, "kexec_load": 246,
    "kexec_file_load": 320, "init_module": 175,
    "finit_module": 313, "delete_module": 176, "syslog": 103, "swapon": 167, "swapoff": 168, "acct": 163,
    "quotactl": 179, "quotactl_fd": 443, "settimeofday": 164, "clock_settime": 227, "adjtimex": 159,
    "clock_adjtime": 305, "iopl": 172, "ioperm": 173, "modify_ldt": 154, "ustat": 136, "sysfs": 139,
}  # fmt: skip


async def test_refused_calls_answer_eperm(attacker: Sandbox) -> None:
    given = await answers(attacker, [[number] for number in REFUSED.values()])
    assert dict(zip(REFUSED, given, strict=True)) == dict.fromkeys(REFUSED, EPERM)


async def test_calls_that_nobody_has_looked_at_do_not_exist(attacker: Sandbox) -> None:
    """clone3, whose flags a filter cannot see; what came lately; what will come; what never was."""
    numbers = [435, 440, 450, 451, 453, *range(457, 462), *range(463, 700), 337, 400, 423, 1023, 0x3FFFFFFF]
    given = await answers(attacker, [[number] for number in numbers])
    assert dict(zip(numbers, given, strict=True)) == dict.fromkeys(numbers, ENOSYS)


async def test_memory_that_the_kernel_cannot_see_is_refused(attacker: Sandbox) -> None:
    assert await answers(attacker, [[447, 0]]) == [EPERM]


ARGUED = [
    ("a socket filter", ["setsockopt", -1, 1, 26], EPERM),
    ("an eBPF socket filter", ["setsockopt", -1, 1, 50], EPERM),
    ("a filter for a group of sockets", ["setsockopt", -1, 1, 51], EPERM),
    ("an eBPF filter for a group of sockets", ["setsockopt", -1, 1, 52], EPERM),
    ("a filter hidden in high bits", ["setsockopt", -1, 1 | 1 << 32, 26 | 1 << 40], EPERM),
    ("a key for segments", ["setsockopt", -1, 6, 14], ENOPROTOOPT),
    ("TLS in the kernel", ["setsockopt", -1, 6, 31], ENOPROTOOPT),
    ("a tunnel", ["setsockopt", -1, 17, 100], ENOPROTOOPT),
    ("a group", ["setsockopt", -1, 0, 35], ENODEV),
    ("a group of version 6", ["setsockopt", -1, 41, 20], ENODEV),
    ("hop options", ["setsockopt", -1, 41, 54], ENOPROTOOPT),
    ("flow labels", ["setsockopt", -1, 41, 32], ENOPROTOOPT),
    ("options of another protocol", ["setsockopt", -1, 132, 1], ENOPROTOOPT),
    ("multipath TCP", ["socket", 2, 1, 262], EPROTONOSUPPORT),
    ("IPIP", ["socket", 2, 3, 4], EPROTONOSUPPORT),
    ("SCTP by its type", ["socket", 2, 5, 0], ESOCKTNOSUPPORT),
    ("DCCP by its type, with flags", ["socket", 10, 6 | 0x80000, 0], ESOCKTNOSUPPORT),
    ("modules by their netlink names", ["socket", 16, 3, 16], EPROTONOSUPPORT),
    ("a large attribute", ["setxattr", 0, 0, 0, 1025], E2BIG),
    ("a large attribute of a link", ["lsetxattr", 0, 0, 0, 65536], E2BIG),
    ("a large attribute of an open file", ["fsetxattr", -1, 0, 0, 4096], E2BIG),
    ("a pair of another family", ["socketpair", 30, 1, 0], EAFNOSUPPORT),
    ("a lease", ["fcntl", -1, 1024], EINVAL),
    ("dnotify", ["fcntl", -1, 1026], EINVAL),
    ("merging pages with other tenants'", ["madvise", 0, 0, 12], EINVAL),
    ("a line discipline", ["ioctl", -1, 0x5423], EPERM),
    ("readable means executable", ["personality", 0x0400000], EPERM),
    ("core scheduling", ["prctl", 62, 0, 0, 0, 0], EINVAL),
]


@pytest.mark.parametrize(("call", "answer"), [case[1:] for case in ARGUED], ids=[case[0] for case in ARGUED])
async def test_arguments_are_judged(attacker: Sandbox, call: list[Any], answer: int) -> None:
    assert await answers(attacker, [[SYS[call[0]], *call[1:]]]) == [answer]


async def test_ordinary_arguments_pass(attacker: Sandbox) -> None:
    program = """
import ctypes, fcntl, mmap, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
for family in (socket.AF_INET, socket.AF_INET6):
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with socket.socket(family, socket.SOCK_DGRAM, socket.IPPROTO_UDP) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
with socket.socket(socket.AF_INET6) as one:
    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
socket.socketpair()
assert libc.personality(0xffffffff) == 0 and libc.personality(0x40000) == 0 and libc.personality(0) == 0x40000
page = mmap.mmap(-1, 4096)
page.madvise(mmap.MADV_DONTNEED)
with open("/root/locked", "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    fcntl.flock(file, fcntl.LOCK_EX)
assert libc.prctl(15, b"named", 0, 0, 0) == 0
entry = lambda kind, who=0xffffffff: struct.pack("<HHI", kind, 7, who)
users = b"".join(entry(2, 1000 + n) for n in range(100))
access = struct.pack("<I", 2) + entry(1) + users + entry(4) + entry(16) + entry(32)
for folder in ("/root", "/dev/shm"):
    open(f"{folder}/listed", "w").close()
    os.setxattr(f"{folder}/listed", "system.posix_acl_access", access)
    os.setxattr(f"{folder}/listed", "user.note", b"x" * 1024)
print("fine")
"""
    ran = await attacker.python(program)
    assert ran.stdout == "fine\n", ran.stderr


PROGRAMS = {
    "packages": "dpkg -l >/dev/null && dpkg --verify base-files && apt-get check",
    "a package": (
        "mkdir -p /tmp/p/DEBIAN /tmp/p/opt && echo x >/tmp/p/opt/walled && cd /tmp && "
        "printf 'Package: walled\\nVersion: 1\\nArchitecture: all\\nMaintainer: a\\nDescription: x\\n' "
        ">p/DEBIAN/control && dpkg-deb -b p p.deb && dpkg -i p.deb && apt-get remove -y walled"
    ),
    "users": "useradd -m walled && su walled -c id && userdel -r walled",
    "archives": "tar czf /tmp/e.tgz /etc && mkdir -p /tmp/e && tar xzf /tmp/e.tgz -C /tmp/e --same-owner",
    "perl": "perl -e 'use Fcntl q(:flock); open F, q(>/tmp/l); flock(F, LOCK_EX) or die; fork; exit 0'",
    "asyncio": (
        "python3 -c 'import asyncio\n"
        "async def main():\n"
        '    await (await asyncio.create_subprocess_exec("true")).wait()\n'
        '    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)\n'
        "    reader, _ = await asyncio.open_connection(*server.sockets[0].getsockname())\n"
        "    await reader.read()\n"
        "asyncio.run(main())'"
    ),
    "processes": (
        "python3 -c 'import multiprocessing as m\nwith m.Pool(2) as p: assert p.map(abs, [-1]) == [1]\n"
        "q = m.Queue(); q.put(1); q.get()'"
    ),
    "databases": 'python3 -c \'import sqlite3; sqlite3.connect("/tmp/x.db").execute("create table t (a)")\'',
    "debuggers": (
        "python3 -c 'import ctypes, os, signal\nlibc = ctypes.CDLL(None)\npid = os.fork()\n"
        "if not pid:\n    libc.ptrace(0, 0, 0, 0); os.kill(os.getpid(), signal.SIGSTOP); os._exit(7)\n"
        "os.waitpid(pid, 0); assert libc.ptrace(7, pid, 0, 0) == 0\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7'"
    ),
    "its own filter": (
        "python3 -c 'import ctypes, struct\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        'code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7fff0000))\n'
        'prog = struct.pack("HxxxxxxP", 1, ctypes.addressof(code))\n'
        "assert libc.prctl(22, 2, prog, 0, 0) == 0, ctypes.get_errno()'"
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
async def test_programs_of_the_base_image_still_run(attacker: Sandbox, name: str) -> None:
    ran = await attacker.sh(PROGRAMS[name], timeout_s=60)
    assert ran.code == 0, ran.stdout[-500:] + ran.stderr[-500:]
