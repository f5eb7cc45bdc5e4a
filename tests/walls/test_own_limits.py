"""What programs inside are told of processors, memory and load is their sandbox's own, and moves with it;
nobody inside can change it, hold it up or see another's by it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from sandboxer.backends.guest import Command, Output
from sandboxer.backends.launch import VIEWS
from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.backends.namespaces.fingerprint import showing_lacks
from tests.support.walls import PATH, Maker, Sandbox, becomes_true, images_dir, order_for, traces

pytestmark = pytest.mark.asyncio(loop_scope="session")
# What a sandbox has at most, and the last of the host's.
TWO = min(2, os.cpu_count() or 1)
LAST = (os.cpu_count() or 1) - 1
ALL = """
import ctypes, json, os
def meminfo(name):
    return next(int(line.split()[1]) // 1024 for line in open("/proc/meminfo") if line.startswith(name + ":"))
def lines(path, begin):
    return sum(line.startswith(begin) for line in open(path))
class Info(ctypes.Structure):
    _fields_ = [("uptime", ctypes.c_long), ("loads", ctypes.c_ulong * 3), ("total", ctypes.c_ulong),
                ("free", ctypes.c_ulong), ("rest", ctypes.c_char * 256)]
info = Info()
assert ctypes.CDLL(None, use_errno=True).sysinfo(ctypes.byref(info)) == 0
print(json.dumps({
    "processors": [os.cpu_count(), len(os.sched_getaffinity(0)), os.sysconf("SC_NPROCESSORS_ONLN"),
                   lines("/proc/stat", "cpu") - 1, lines("/proc/cpuinfo", "processor")],
    "memory_mb": [meminfo("MemTotal"), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
                  info.total >> 20],
    "swap_mb": meminfo("SwapTotal"), "free_mb": [meminfo("MemFree"), info.free >> 20],
    "uptime_s": info.uptime, "load": os.getloadavg()[0],
}), flush=True)
"""
WRITTEN_INTO = [
    "echo 1 > {0}", "rm -f {0}", "chmod 666 {0}", "chown nobody {0}", "truncate -s 1 {0}",
    "ln {0} /root/other", "umount {0}", "mount -o remount,rw {0}", "mount --bind /etc/passwd {0}",
    "touch {0}", ". {0}x",
    "python3 -c \"import os; os.setxattr('{0}', 'user.x', b'y')\"",
    "python3 -c \"import mmap; mmap.mmap(open('{0}').fileno(), 0, prot=mmap.PROT_READ)\"",
    "cat /proc/1/fd/12", "readlink /proc/1/fd/10", "cat /proc/1/mem",
]  # fmt: skip


async def told(box: Sandbox, *, user: str = "root") -> dict[str, object]:
    ran = await box.sh(f"exec python3 -c '{ALL}'", user=user)
    assert ran.code == 0, ran.stderr
    return dict(json.loads(ran.stdout))


@pytest_asyncio.fixture(loop_scope="session")
async def box(make: Maker) -> Sandbox:
    return await make(vcpus=1.0, memory_mb=300)


@pytest.mark.parametrize("user", ["root", "nobody"])
async def test_every_way_to_ask_tells_the_sandboxes_own_limits(box: Sandbox, user: str) -> None:
    seen = await told(box, user=user)
    assert seen["processors"] == [1] * 5
    assert seen["memory_mb"] == [300] * 3
    assert seen["swap_mb"] == 0
    assert seen["uptime_s"] < 60  # type: ignore[operator]
    assert seen["load"] <= 1  # type: ignore[operator]
    ran = await box.sh("nproc; free -m | awk '/Mem:/ {print $2}'", user=user)
    assert ran.stdout == "1\n300\n", ran.stderr


@pytest.mark.parametrize(("vcpus", "processors"), [(0.25, 1), (1.0, 1), (TWO - 0.5, TWO)])
async def test_a_part_of_a_processor_counts_as_one(make: Maker, vcpus: float, processors: int) -> None:
    box = await make(vcpus=vcpus)
    assert (await told(box))["processors"] == [processors] * 5


async def test_free_memory_moves_with_use(box: Sandbox) -> None:
    program = (
        "def free(): return next(int(l.split()[1]) >> 10 for l in open('/proc/meminfo') if 'MemAvail' in l)\n"
        "before = free(); held = bytearray(b'x' * 100_000_000); during = free(); del held; after = free()\n"
        "print(before - during, before - after)"
    )
    ran = await box.python(program)
    taken, left = map(int, ran.stdout.split())
    assert 90 <= taken <= 110
    # gVisor gives freed pages back when it has time.
    assert left < 20 or box.has_own_kernel


async def test_a_program_that_runs_sees_a_boost_and_its_end(box: Sandbox, backend: NamespacesBackend) -> None:
    program = f"import sys\nfor line in sys.stdin:\n exec('''{ALL}''')"
    argv = ["/usr/bin/python3", "-c", program]
    async with await (await box.guest()).run(Command(argv=argv, env=PATH, has_stdin=True)) as process:
        output = process.output()

        async def ask() -> dict[str, object]:
            await process.write_stdin(b"\n")
            async for item in output:
                assert isinstance(item, Output), item
                return dict(json.loads(item.data))
            raise AssertionError

        for vcpus, memory_mb in ((1.0, 300), (float(TWO), 512), (1.0, 256)):
            await backend.resize(box.handle, replace(box.order.resources, vcpus=vcpus, memory_mb=memory_mb))
            seen = await ask()
            assert seen["processors"] == [int(vcpus)] * 5
            assert seen["memory_mb"] == [memory_mb] * 3


async def test_time_that_is_used_is_seen_as_load(box: Sandbox) -> None:
    program = (
        "import os, time\n"
        "def used(): return sum(map(int, open('/proc/stat').readline().split()[1:4]))\n"
        "first, end = used(), time.process_time() + 0.5\n"
        "while time.process_time() < end: pass\n"
        "idle = float(open('/proc/uptime').read().split()[1])\n"
        "print(used() - first, idle <= time.clock_gettime(time.CLOCK_BOOTTIME))"
    )
    ran = await box.python(program)
    ticks, is_idle_within = ran.stdout.split()
    assert 30 <= int(ticks) <= 150
    assert is_idle_within == "True"


async def test_the_kernel_still_refuses_what_it_refused(box: Sandbox) -> None:
    program = """
import ctypes, errno, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
room = ctypes.create_string_buffer(4096)
closed = mmap.mmap(-1, 4096, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
def ask(who, size, at):
    return errno.errorcode.get(0 if libc.syscall(NUMBER, who, size, at) > 0 else ctypes.get_errno(), "told")
print(ask(0, 4096, room), ask(0, 7, room), ask(0, 0, room), ask(0, 4096, None), ask(4_000_000, 4096, room),
      ask(0, 4096, ctypes.c_void_p(1 << 46)), libc.sysinfo(None), errno.errorcode[ctypes.get_errno()])
os.sched_setaffinity(0, {LAST})
print(os.sched_getaffinity(0) == {LAST})
""".replace("NUMBER", "204" if os.uname().machine == "x86_64" else "123").replace("LAST", str(LAST))
    ran = await box.python(program)
    assert ran.stdout == "told EINVAL EINVAL EFAULT ESRCH EFAULT -1 EFAULT\nTrue\n", ran.stderr


@pytest.mark.parametrize("attack", WRITTEN_INTO)
@pytest.mark.parametrize("name", ["meminfo", "stat"])
async def test_root_inside_cannot_change_it(attacker: Sandbox, attack: str, name: str) -> None:
    path = f"/proc/{name}"
    ran = await attacker.sh(attack.format(path))
    # gVisor lets their modes be changed, which say nothing.
    assert ran.code != 0 or (attacker.has_own_kernel and attack.startswith(("chmod", "chown")))
    assert (await told(attacker))["memory_mb"] == [256] * 3


async def test_a_program_with_namespaces_of_its_own_cannot_change_it(
    make: Maker, backend: NamespacesBackend
) -> None:
    order = replace(order_for(), nests=True)
    box = Sandbox(backend, await backend.provision(order), order)
    try:
        ran = await box.sh(
            "unshare -Urm sh -c 'umount /proc/meminfo; mount -o remount,rw,bind /proc/meminfo;"
            " echo 1 > /proc/meminfo; grep MemTotal /proc/meminfo; nproc'"
        )
        assert ran.stdout.split() == ["MemTotal:", str(256 << 10), "kB", "1"], ran.stderr
    finally:
        await backend.teardown(order.sandbox_id)


READ_FOR_EVER = "while :; do cat /proc/meminfo /proc/stat; nproc; done >/dev/null"


async def test_two_hundred_readers_do_not_keep_the_supervisor_from_its_work(
    make: Maker, backend: NamespacesBackend
) -> None:
    # Behind gVisor each of them takes megabytes.
    box = await make(pids=700, memory_mb=1536)
    flood = (
        "import os, signal\n"
        "for _ in range(200):\n"
        "    if not os.fork():\n"
        "        while True:\n"
        "            open('/proc/meminfo').read(); open('/proc/stat').read(1); os.sched_getaffinity(0)\n"
        "print('reading', flush=True)\n"
        "signal.pause()"
    )
    argv = ["/usr/bin/python3", "-c", flood]
    async with await (await box.guest()).run(Command(argv=argv, env=PATH)) as process:
        assert isinstance(await anext(aiter(process.output())), Output)
        for number in range(5):
            assert (await box.sh(f"echo {number}", timeout_s=20)).stdout == f"{number}\n"
        await backend.freeze(box.handle)
        await backend.thaw(box.handle)
        assert (await box.sh("echo again", timeout_s=20)).stdout == "again\n"
    began = time.monotonic()
    await backend.teardown(box.id)
    assert time.monotonic() - began < 5
    assert await becomes_true(lambda: not traces(backend, box.id))


async def test_readers_that_are_killed_or_stopped_amid_a_question_harm_nobody(box: Sandbox) -> None:
    program = """
import os, random, signal, time
def ask():
    while True:
        open("/proc/cpuinfo").read(); os.sched_getaffinity(0); os.sysconf("SC_PHYS_PAGES")
for number in range(150):
    if not (child := os.fork()): ask()
    time.sleep(random.random() / 500)
    os.kill(child, signal.SIGSTOP if number % 3 else signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
signal.signal(signal.SIGALRM, lambda *_: None)
signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
for _ in range(2000):
    assert len(os.sched_getaffinity(0)) == 1 and open("/proc/meminfo").readline().split()[1] == "307200"
signal.setitimer(signal.ITIMER_REAL, 0)
"""
    ran = await box.python(program, timeout_s=60)
    assert ran.code == 0, ran.stderr
    assert (await told(box))["processors"] == [1] * 5


def waits_and_holds(supervisor: int) -> list[bool]:
    """Of each process that the supervisor began and that waits for an answer about a file: whether it holds
    the device by which the files are answered, so that they would outlive the supervisor.
    """
    found = []
    for child in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
        try:
            if Path(f"/proc/{child}/wchan").read_text() == "request_wait_answer":
                devices = [
                    os.stat(f"/proc/{child}/fd/{fd}").st_rdev for fd in os.listdir(f"/proc/{child}/fd")
                ]
                found.append(os.makedev(10, 229) in devices)
        except FileNotFoundError:
            continue
    return found


async def test_a_program_that_is_begun_does_not_keep_the_files_alive(box: Sandbox) -> None:
    # It looks for its user before it is another program, by a link that leads to such a file.
    await box.sh("ln -sf /proc/meminfo /etc/passwd; ln -sf /proc/meminfo /etc/group")
    seen: list[bool] = []
    for _ in range(200):
        begun = [asyncio.create_task(box.run("/bin/true")) for _ in range(4)]
        while not all(task.done() for task in begun) and len(seen) < 20:
            os.kill(box.pid, signal.SIGSTOP)
            try:
                seen += waits_and_holds(box.pid)
            finally:
                os.kill(box.pid, signal.SIGCONT)
            await asyncio.sleep(0)
        await asyncio.gather(*begun)
        if len(seen) >= 20:
            break
    assert seen
    assert not any(seen)


async def test_what_is_read_in_pieces_is_of_one_text(box: Sandbox) -> None:
    program = (
        "import os\n"
        "for name in ('cpuinfo', 'stat'):\n"
        "    fd = os.open('/proc/' + name, os.O_RDONLY)\n"
        "    whole = os.pread(fd, 1 << 20, 0)\n"
        "    pieces = b''.join(os.pread(fd, 7, at) for at in range(0, len(whole) + 20, 7))\n"
        "    assert len(pieces.splitlines()) == len(whole.splitlines()), name\n"
        "    assert os.pread(fd, 10, 1 << 40) == b'' and os.fstat(fd).st_size == 0"
    )
    ran = await box.python(program)
    assert ran.code == 0, ran.stderr


async def test_no_sandbox_sees_by_it_what_another_does(box: Sandbox, neighbour: Sandbox) -> None:
    before = await told(neighbour)
    held = await box.python(
        "held = bytearray(b'x' * 100_000_000); import fcntl\n"
        "fcntl.flock(open('/proc/meminfo'), fcntl.LOCK_EX); print(len(held))"
    )
    assert held.stdout == "100000000\n", held.stderr
    after = await told(neighbour)
    assert abs(before["free_mb"][0] - after["free_mb"][0]) < 20  # type: ignore[index]


async def test_the_hosts_own_processes_are_never_made_to_wait_for_it(box: Sandbox) -> None:
    for _, name in VIEWS:
        with pytest.raises(PermissionError):
            Path(f"/proc/{box.pid}/root/proc/{name}").read_bytes()
        assert Path(f"/proc/{name}").read_bytes()


async def test_a_resumed_sandbox_has_it_too(box: Sandbox, backend: NamespacesBackend) -> None:
    await backend.stop(box.handle)
    again = Sandbox(backend, await backend.resume(box.handle, box.order), box.order)
    seen = await told(again)
    assert (seen["processors"], seen["memory_mb"]) == ([1] * 5, [300] * 3)


async def test_a_host_that_cannot_show_it_says_so(tmp_path: Path) -> None:
    unable = tmp_path / "launcher"
    unable.write_text("#!/bin/sh\necho 'launcher: shown: No such device' >&2\nexit 1\n")
    unable.chmod(0o755)
    lack = showing_lacks(unable)[0]
    assert lack.what == "limits that programs see"
    assert "No such device" in lack.why


GO = """package main
import ("fmt"; "runtime")
func main() { fmt.Println(runtime.NumCPU(), runtime.GOMAXPROCS(0)) }
"""
JAVA = """
import java.lang.management.ManagementFactory;
import com.sun.management.OperatingSystemMXBean;
public class Main {
    public static void main(String[] words) {
        var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        var processors = Runtime.getRuntime().availableProcessors();
        System.out.println(processors + " " + (system.getTotalMemorySize() >> 20));
    }
}
"""
NODE = (
    "const os = require('os'); console.log(os.cpus().length,"
    " (os.availableParallelism || (() => os.cpus().length))(), os.totalmem() / 1048576)"
)


@pytest.mark.slow
async def test_a_program_of_go_counts_the_sandboxes_processors(box: Sandbox, tmp_path: Path) -> None:
    if (go := shutil.which("go")) is None:
        pytest.skip("no Go on this host")
    (tmp_path / "main.go").write_text(GO)
    env = {**os.environ, "CGO_ENABLED": "0", "GOCACHE": str(tmp_path / "cache"), "GO111MODULE": "off"}
    await asyncio.to_thread(
        subprocess.run, [go, "build", "-o", "program", "main.go"], cwd=tmp_path, env=env, check=True
    )
    await box.put("/tmp/program", (tmp_path / "program").read_bytes())
    assert (await box.run("/tmp/program")).stdout == "1 1\n"


@pytest.mark.slow
async def test_java_node_and_go_print_the_sandboxes_limits(backend: NamespacesBackend) -> None:
    if not (images_dir() / "languages").exists():
        pytest.skip(f"no image languages in {images_dir()}: make test-tiers TIERS=all, or image-languages")
    order = replace(order_for(vcpus=1.0, memory_mb=700, disk_mb=400, pids=256), image="languages")
    box = Sandbox(backend, await backend.provision(order), order)
    try:
        for name, text in (("Main.java", JAVA), ("main.js", NODE), ("main.go", GO)):
            await box.put(f"/root/{name}", text.encode())
        said = [
            (await box.sh(f"cd /root && {line}", timeout_s=120)).stdout
            for line in ("java Main.java", "node main.js", "go run main.go")
        ]
        assert said == ["1 700\n", "1 1 700\n", "1 1\n"]
    finally:
        await backend.teardown(order.sandbox_id)
