"""What a sandbox makes the kernel hold beyond its own pages is counted, capped or ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from bench.abuse import LOCKS, SOCKETS
from sandboxer.backends.guest import Command, EndReason, Exit, Output
from sandboxer.backends.namespaces import NamespacesBackend, kernel_objects
from sandboxer.backends.namespaces.kernel_objects import ObjectWatch
from sandboxer.kernel.errors import BackendLost
from tests.support.walls import PATH, Maker, Sandbox, becomes_true

pytestmark = pytest.mark.asyncio(loop_scope="session")
PROGRAM = (Path(__file__).parent / "kernel_memory.py").read_text()


def command(what: str, count: int) -> Command:
    argv = ["/usr/bin/python3", "-c", PROGRAM, what, str(count)]
    return Command(argv=argv, env=PATH, has_stdin=True, keep=False)


async def ends(box: Sandbox, what: str, count: int) -> Exit:
    """How the attack ends that would hold on for ever."""
    async with asyncio.timeout(30), await (await box.guest()).run(command(what, count)) as process:
        async for item in process.output():
            if isinstance(item, Exit):
                return item
    raise AssertionError("it ended without an exit")


@asynccontextmanager
async def held(box: Sandbox, what: str, count: int) -> AsyncIterator[int]:
    """How far the attack comes. It holds on meanwhile, and lets go."""
    async with asyncio.timeout(60), await (await box.guest()).run(command(what, count)) as process:
        async for item in process.output():
            if isinstance(item, Output) and item.data.startswith(b"reached"):
                yield int(item.data.split()[1])
                return
            assert not isinstance(item, Exit), f"{what} ended: {item}"
            raise AssertionError(item.data.decode())
    raise AssertionError("no output")


async def reaches(box: Sandbox, what: str, count: int) -> int:
    async with held(box, what, count) as reached:
        return reached


def of_the_host() -> dict[str, int]:
    """How many objects the host's kernel holds for everybody on it, and how much memory for all of them."""
    sockets = Path("/proc/net/sockstat").read_text().split("used ")[1].split()[0]
    slab = next(
        line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("SUnreclaim")
    )
    return {
        "locks": len(Path("/proc/locks").read_text().splitlines()),
        "files": int(Path("/proc/sys/fs/file-nr").read_text().split()[0]),
        "sockets": int(sockets),
        "slab_mb": int(slab.split()[1]) >> 10,
    }


def grown_since(before: dict[str, int]) -> dict[str, int]:
    """What has grown by more than others on this machine explain."""
    most = {"locks": 500, "files": 500, "sockets": 100, "slab_mb": 16}
    grown = {name: value - before[name] for name, value in of_the_host().items()}
    return {name: value for name, value in grown.items() if value > most[name]}


async def holds_nothing_of_the_host(box: Sandbox, neighbour: Sandbox, what: str, count: int) -> None:
    """Behind a kernel of its own: what it takes is its own memory, as far as that goes, and nothing grows on
    the host.
    """
    before = of_the_host()
    async with held(box, what, count):
        assert grown_since(before) == {}
        counted = await box.backend.usage(box.handle)
        assert counted.memory_bytes <= counted.memory_limit_bytes
        assert (await neighbour.sh("echo alive")).stdout == "alive\n"


@pytest.mark.parametrize("what", ["locks", "ofd"])
async def test_who_holds_too_many_file_locks_is_killed(make: Maker, neighbour: Sandbox, what: str) -> None:
    """They are charged to nobody: a sandbox of 64 MB held 279 MB of them after six seconds."""
    greedy = await make(memory_mb=64)
    if greedy.has_own_kernel:
        await holds_nothing_of_the_host(greedy, neighbour, what, 40_000)
        return
    ended = await ends(greedy, what, 40_000)
    assert (ended.signal, ended.reason) == (9, EndReason.KERNEL_OBJECTS_EXHAUSTED)
    assert (await greedy.sh("echo alive")).stdout == "alive\n"
    assert (await neighbour.sh("echo alive")).stdout == "alive\n"


@pytest.mark.parametrize("what", ["anonymous", "anonymous_ofd"])
async def test_who_locks_what_all_tenants_share_is_killed(make: Maker, what: str) -> None:
    """All eventfds of the host are one inode: with many locks on it every close of one is slow."""
    greedy = await make()
    ended = await ends(greedy, what, 2000)
    if greedy.has_own_kernel:
        # Which locks nothing that is no file.
        assert (ended.code, ended.signal) == (1, None)
        return
    assert ended.signal == 9


@pytest.mark.slow
@pytest.mark.parametrize("program", [LOCKS, SOCKETS], ids=["locks", "sockets"])
async def test_acts_of_the_abuse_suite_end_or_stay_inside(
    make: Maker, neighbour: Sandbox, program: str
) -> None:
    """Those of bench/abuse.py that aim at the kernel, as long as they go on."""
    box, before = await make(memory_mb=128), of_the_host()
    act = asyncio.create_task(box.python(program, timeout_s=15))
    while not act.done():
        began = time.monotonic()
        assert (await neighbour.sh("echo alive")).stdout == "alive\n"
        assert time.monotonic() - began < 5
        assert not box.has_own_kernel or grown_since(before) == {}
    if box.has_own_kernel:
        with contextlib.suppress(BackendLost, TimeoutError):
            await act
        return
    ended = (await act).exit
    assert ended.reason in (EndReason.KERNEL_OBJECTS_EXHAUSTED, EndReason.OOM_KILLED) or ended.code == 1


async def test_an_ordinary_number_of_locks_is_nobodys_business(
    make: Maker, backend: NamespacesBackend
) -> None:
    box = await make()
    async with asyncio.timeout(30), await (await box.guest()).run(command("locks", 4000)) as process:
        outputs = process.output()
        first = await anext(outputs)
        assert isinstance(first, Output)
        assert first.data == b"reached 4000\n"
        assert box.id not in {excess.sandbox_id for excess in ObjectWatch(backend.dependencies).locks_now()}
        await process.write_stdin(b"\n")
        assert [item.code async for item in outputs if isinstance(item, Exit)] == [0]


async def test_a_command_beside_the_greedy_one_goes_on(make: Maker) -> None:
    box = await make()
    calm = Command(argv=["/bin/cat"], env=PATH, has_stdin=True, keep=False)
    async with asyncio.timeout(30), await (await box.guest()).run(calm) as process:
        if box.has_own_kernel:
            assert await reaches(box, "locks", 40_000) == 40_000
        else:
            assert (await ends(box, "locks", 40_000)).signal == 9
        await process.write_stdin(b"still here\n")
        answer = await anext(process.output())
        assert isinstance(answer, Output)
        assert answer.data == b"still here\n"
        await process.kill()


async def test_who_drains_the_hosts_open_files_is_killed(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    greedy, calm = await make(), await make()
    budget = partial(monkeypatch.setattr, kernel_objects, "host_files", lambda: (15_000, 20_000))
    if greedy.has_own_kernel:
        # Only files on its disk are open on the host too, by its kernel: it ends whole.
        async with held(greedy, "disk_files", 5000):
            budget()
            assert await becomes_true(lambda: not os.path.exists(f"/proc/{greedy.pid}"))
    else:
        budget()
        assert (await ends(greedy, "files", 5000)).signal == 9
    assert await reaches(calm, "files", 500) == 500


async def test_who_drains_the_hosts_code_of_filters_is_killed(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every sandbox's own filter is taken from the same budget: without it nobody could be started."""
    greedy, calm = await make(), await make()
    monkeypatch.setattr(kernel_objects, "host_filter_bytes", lambda: (1_500_000, 2_000_000))
    assert (await ends(greedy, "filters", 7)).signal == 9
    assert await reaches(calm, "filters", 1) == 1


@pytest.mark.parametrize("what", ["tcp", "udp"])
async def test_buffers_of_sockets_are_held_to_a_part_of_the_memory(
    make: Maker, neighbour: Sandbox, what: str
) -> None:
    """cgroup v1 does not count them: a sandbox of 96 MB held 300."""
    box = await make(memory_mb=96)
    if box.has_own_kernel and what == "udp":
        pytest.skip("behind gVisor: its kernel does not tell what a socket holds")
    if box.has_own_kernel:
        await holds_nothing_of_the_host(box, neighbour, what, 24)
        return
    assert await reaches(box, what, 200) <= 48


async def test_streams_flow_within_the_limit_of_buffers(make: Maker) -> None:
    box = await make(memory_mb=64)
    program = """
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
def send():
    with socket.create_connection(server.getsockname()) as line:
        line.sendall(b"x" * (64 << 20))
threads = [threading.Thread(target=send)]
for one in threads: one.start()
line, _ = server.accept()
total = 0
while data := line.recv(1 << 16): total += len(data)
print(total >> 20)
"""
    ran = await box.python(program.replace("64 << 20", "24 << 20"), timeout_s=60)
    assert ran.stdout == "24\n", ran.stderr


async def test_shared_memory_has_no_end_of_files(make: Maker) -> None:
    """Of each the kernel keeps a little that is charged to nobody: it held 378 MB beside 7 MB charged."""
    box = await make(memory_mb=64)
    if box.has_own_kernel:
        pytest.skip("behind gVisor: what a file takes is its own memory, which is charged")
    ran = await box.sh("df --output=itotal /dev/shm | tail -1")
    assert 1024 <= int(ran.stdout) <= 16384


@pytest.mark.parametrize(("what", "most"), [("netlink", 128), ("corked", 1024), ("corked6", 1024)])
async def test_sockets_whose_buffers_nobody_is_charged_for_are_few(
    make: Maker, neighbour: Sandbox, what: str, most: int
) -> None:
    """3,000 netlink sockets held 3 GB of answers beside 5 MB charged; 8,000 datagrams held back 549 MB."""
    box = await make()
    if box.has_own_kernel:
        await holds_nothing_of_the_host(box, neighbour, what, 2000)
        return
    assert 0 < await reaches(box, what, 2000) <= most


async def test_many_at_once_get_no_more_of_them_than_there_are_threads(make: Maker) -> None:
    box = await make()
    program = """
import multiprocessing, socket, sys
def grab(number):
    got = []
    try:
        while True: got.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))
    except OSError as error:
        assert error.errno == 105, error
    gate.wait(60)
    return len(got)
gate = multiprocessing.Barrier(24)
with multiprocessing.Pool(24) as pool:
    print(sum(pool.map(grab, range(24), chunksize=1)))
"""
    ran = await box.python(program, timeout_s=90)
    assert 0 < int(ran.stdout or 0) <= 128 + 24, ran


async def test_who_is_killed_while_asking_for_a_socket_holds_nobody_up(make: Maker) -> None:
    box = await make()
    program = """
import os, signal, socket
def ask(told):
    for number in range(10**9):
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
        if number == 20: os.write(told, b"x")
hears, told = os.pipe()
for _ in range(5):
    asking = [os.fork() or ask(told) for _ in range(8)]
    assert len(b"".join(os.read(hears, 1) for _ in asking)) == 8
    for pid in asking: os.kill(pid, signal.SIGKILL)
    for pid in asking: os.waitpid(pid, 0)
    print(socket.if_nameindex())
"""
    ran = await box.python(program, timeout_s=90)
    assert ran.stdout == "[(1, 'lo')]\n" * 5, ran


async def test_what_ordinary_programs_ask_of_such_sockets_goes_on(make: Maker) -> None:
    box = await make()
    if box.has_own_kernel:
        pytest.skip("behind gVisor: its kernel holds no datagrams back")
    program = """
import ctypes, socket
first, second = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
first.bind(("127.0.0.1", 0))
second.connect(first.getsockname())
second.send(b"held", socket.MSG_MORE)
second.send(b" back")
assert first.recv(99) == b"held back"
assert socket.getaddrinfo("localhost", 80)
assert socket.if_nameindex() == [(1, "lo")]
addresses = ctypes.c_void_p()
assert ctypes.CDLL(None).getifaddrs(ctypes.byref(addresses)) == 0 and addresses.value
print("fine")
"""
    for user in ("root", "nobody"):
        await box.put("/tmp/ordinary.py", program.encode())
        ran = await box.sh("python3 /tmp/ordinary.py", user=user)
        assert ran.stdout == "fine\n", ran
