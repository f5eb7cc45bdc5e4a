"""A real supervisor, PID 1 of its own namespaces, with the capabilities it has in a sandbox."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandboxer.backends.guest import Command, Exit, Output, Stream
from sandboxer.backends.supervisor.client import SupervisorGuest
from sandboxer.kernel.errors import StdinNotTaken

GUEST = Path(__file__).parents[2] / "guest"
CAPABILITIES = """
    CHOWN DAC_OVERRIDE FOWNER FSETID SETUID SETGID SETPCAP KILL
    NET_BIND_SERVICE SETFCAP SYS_CHROOT AUDIT_WRITE
"""


@dataclass(frozen=True)
class Ran:
    stdout: bytes
    stderr: bytes
    exit: Exit


@dataclass(frozen=True)
class Box:
    """`root` on the host is /mnt inside; /tmp inside is another file system, /srv one of 1 MiB."""

    guest: SupervisorGuest
    socket_path: str
    root: Path
    pid: int

    async def run(self, *argv: str, stdin: bytes | None = None, **options: object) -> Ran:
        command = Command(argv=argv, has_stdin=stdin is not None, **options)  # type: ignore[arg-type]
        async with await self.guest.run(command) as process:
            if stdin is None:
                return await collect(process.output())
            async with asyncio.TaskGroup() as group:
                collecting = group.create_task(collect(process.output()))
                # Whoever asks how much was taken asks in its own words.
                with suppress(StdinNotTaken):
                    await process.write_stdin(stdin)
                await process.close_stdin()
            return collecting.result()

    async def shell(self, script: str, **options: object) -> Ran:
        return await self.run("sh", "-c", script, **options)  # type: ignore[arg-type]

    def memory_kb(self, field: str) -> int:
        for line in Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1])
        raise AssertionError(field)


async def collect(output: AsyncIterator[Output | Exit]) -> Ran:
    streams = {Stream.STDOUT: bytearray(), Stream.STDERR: bytearray()}
    async for item in output:
        if isinstance(item, Exit):
            return Ran(bytes(streams[Stream.STDOUT]), bytes(streams[Stream.STDERR]), item)
        streams[item.stream] += item.data
    raise AssertionError("no exit")


async def no_workers(box: Box) -> None:
    """Returns once every forked worker of the supervisor has ended."""

    async def is_true() -> bool:
        return (await box.run("pgrep", "supervisor-io")).exit.code == 1

    await eventually(is_true)


async def eventually(condition: Callable[[], Awaitable[bool]], within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while not await condition():
        assert time.monotonic() < deadline, "did not come true in time"
        await asyncio.sleep(0.01)


@pytest.fixture(scope="session")
def supervisor() -> Path:
    subprocess.run(["make", "-s", "-C", GUEST, "build/supervisor"], check=True)
    return GUEST / "build" / "supervisor"


def _is_supervisor(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "supervisor\n"
    except (FileNotFoundError, ProcessLookupError):
        return False  # bubblewrap's own helpers come and go


def _find_supervisor(launcher: int) -> int:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
            if _is_supervisor(child):
                return int(child)
        time.sleep(0.002)
    raise AssertionError("the supervisor did not start")


# The last commit whose supervisor speaks version 1 of the protocol.
VERSION_1 = "035c236ac8e4"


@pytest.fixture(scope="session")
def old_supervisor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The supervisor of before version 2: sandboxes that are older than the server still have it."""
    into = tmp_path_factory.mktemp("version-1")
    found = subprocess.run(
        ["git", "-C", GUEST, "archive", VERSION_1, "Makefile", "supervisor"], capture_output=True
    )
    if found.returncode:
        pytest.skip(f"commit {VERSION_1} is not here (a shallow clone?): no supervisor of version 1 to test")
    subprocess.run(["tar", "x", "-C", into], input=found.stdout, check=True)
    subprocess.run(["make", "-s", "-C", into, "build/supervisor"], check=True)
    return into / "build" / "supervisor"


@pytest.fixture
def box(supervisor: Path) -> Iterator[Box]:
    with open_box(supervisor) as opened:
        yield opened


@pytest.fixture
def old_box(old_supervisor: Path) -> Iterator[Box]:
    with open_box(old_supervisor) as opened:
        yield opened


@contextmanager
def open_box(supervisor: Path) -> Iterator[Box]:
    if os.geteuid() != 0 or not shutil.which("bwrap"):
        pytest.skip("needs root and bubblewrap to make a pid namespace")
    # Not tmp_path: the path of a unix socket is short.
    home = Path(tempfile.mkdtemp(prefix="guest-"))
    root = home / "box"
    root.mkdir()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(home / "socket"))
    listener.listen(128)
    fd = listener.fileno()
    argv = ["bwrap", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--die-with-parent", "--as-pid-1"]
    argv += [
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--tmpfs",
        "/tmp",
        "--bind",
        root,
        "/mnt",
    ]
    argv += [
        "--size",
        str(1 << 20),
        "--tmpfs",
        "/srv",
        "--ro-bind",
        supervisor,
        "/tmp/supervisor",
        "--cap-drop",
        "ALL",
        "--clearenv",
    ]
    for name in CAPABILITIES.split():
        argv += ["--cap-add", f"CAP_{name}"]
    process = subprocess.Popen([*argv, "/tmp/supervisor", str(fd)], pass_fds=[fd], stderr=sys.stderr)
    try:
        pid = _find_supervisor(process.pid)
        yield Box(SupervisorGuest(str(home / "socket")), str(home / "socket"), root, pid)
        assert process.poll() is None, "the supervisor died"
    finally:
        process.kill()
        process.wait()
        listener.close()
        shutil.rmtree(home)


@pytest.fixture
async def cgroup() -> AsyncIterator[Path]:
    """An empty cgroup v2."""
    roots = [Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")]
    root = next((root for root in roots if (root / "cgroup.procs").exists()), None)
    if root is None:
        pytest.skip("no cgroup v2 is mounted on this host")
    group = root / f"guest-test-{os.getpid()}"
    group.mkdir()
    yield group
    (group / "cgroup.kill").write_text("1")

    async def is_removed() -> bool:
        try:
            group.rmdir()
        except OSError:
            return False
        return True

    await eventually(is_removed)
