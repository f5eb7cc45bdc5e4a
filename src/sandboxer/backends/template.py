"""`ext.template` makes each sandbox over a base image by an overlay, in namespaces of its own, with the
supervisor as its first process. `sandboxer backend new` copies this file as a beginning.

It keeps the contract but for what `DEVIATIONS` says. Root inside is root, and nothing is limited, as
`fingerprint` says. All that it knows of a sandbox is in a folder with its id, so that it is found and removed
after a crash: `disk` (what was written), `socket` (of its supervisor), `box.json` (its first process).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from sandboxer.backends.contract import (
    Fingerprint,
    Handle,
    Lack,
    Observation,
    Order,
    Presence,
    Usage,
    Wall,
)
from sandboxer.backends.guest import Guest
from sandboxer.backends.registry import HostSettings
from sandboxer.backends.shared import held, pidfd_of, started_at, text_of
from sandboxer.backends.supervisor.client import SupervisorGuest
from sandboxer.kernel.errors import BackendLost, InvalidRequest, NotAvailable, NotFound, ProvisionFailed
from sandboxer.kernel.values import is_sandbox_id

NAME = "ext.template"
# Checks of the contract that it does not pass, and why (`sandboxer backend check`).
DEVIATIONS = {
    "kill_ends_children_that_left_their_parent_and_session": "commands have no cgroup of their own: whoever"
    " leaves the session of a command outlives it until the sandbox ends",
}
# Why nobody should rely on it yet: routing takes it only where it is named. None once it ran against what it
# drives.
EXPERIMENTAL: str | None = "it is new, and has not run against what it drives"
# What apt, tar, su and servers need; nothing else can be had inside, not even by root.
CAPABILITIES = """
chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service sys_chroot audit_write setfcap
"""
# Runs in the new namespaces once it is recorded, so that a server which is killed before leaves nothing. Its
# mounts are nobody else's, and end with the last process.
START = """
set -e
read recorded
mount -t overlay overlay -o "lowerdir=$IMAGE,upperdir=$DISK/upper,workdir=$DISK/work" "$DISK/root"
cd "$DISK/root"
mount -t proc proc proc
mount -t tmpfs tmpfs dev
mkdir dev/pts dev/shm
mount -t devpts devpts dev/pts -o newinstance,ptmxmode=0666
for one in null zero full random urandom tty; do touch dev/$one; mount --bind /dev/$one dev/$one; done
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs tmpfs run
mkdir run/sandboxer
ip link set lo up
hostname "$ID"
pivot_root . .
umount -l .
exec setpriv --bounding-set "-all$KEPT" --inh-caps=-all -- \
    /proc/self/fd/$SUPERVISOR $LISTENER -1 0 /run/sandboxer < /dev/null
"""
NAMESPACES = ("--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class TemplateBackend:
    def __init__(self, settings: HostSettings) -> None:
        self._folder = settings.state_dir / NAME
        self._images = settings.images_dir
        self._supervisor = settings.guest_dir / "supervisor"
        self._ended: asyncio.Queue[str] = asyncio.Queue()
        # What tells of the end of each sandbox, and those of them that this process started.
        self._watched: dict[str, int] = {}
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Sockets are dialled through this: a deep folder would not fit into an address.
        self._fd = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        for sandbox_id in os.listdir(self._folder):
            self._watch(sandbox_id)

    @property
    def name(self) -> str:
        return NAME

    async def fingerprint(self) -> Fingerprint:
        lacks = [Lack(what="limits", why="nothing is limited yet", remedy="for programs that you trust")]
        if missing := [one for one in ("unshare", "setpriv", "ip") if shutil.which(one) is None]:
            lacks.append(Lack(what=", ".join(missing), why="not installed", remedy="apt install them"))
        return Fingerprint(
            healthy=not missing and os.geteuid() == 0 and self._supervisor.is_file(),
            walls=frozenset({Wall.FILES, Wall.PROCESSES, Wall.NETWORK, Wall.CAPABILITIES}),
            facts={"isolation_level": "container"},
            lacks=lacks,
        )

    async def provision(self, order: Order) -> Handle:
        image = self._images / order.image / "rootfs"
        if "/" in order.image or not image.is_dir():
            raise InvalidRequest(field="image", why=f"there is no image {order.image}")
        if order.origin is not None or order.volumes or order.folders:
            raise InvalidRequest(field="order", why=f"{NAME} has no snapshots, volumes and folders")
        try:
            self._of(order.sandbox_id).mkdir()
        except FileExistsError:
            raise ProvisionFailed(step="claim", why=f"{order.sandbox_id} exists already") from None
        try:
            self._start(order, image.resolve())
            await self._guest(order.sandbox_id).ping()
        except BaseException as error:
            said = text_of(str(self._of(order.sandbox_id) / "log")).strip()
            await self.teardown(order.sandbox_id)
            if isinstance(error, BackendLost | OSError):
                raise ProvisionFailed(step="start", why=said or str(error)) from error
            raise
        return Handle(sandbox_id=order.sandbox_id, backend=NAME, version=1)

    async def recover(self, handle: Handle) -> Observation:
        if self._first(handle.sandbox_id) is not None:
            return Observation(presence=Presence.RUNNING)
        return Observation(presence=Presence.GONE, reason="exited")

    async def inventory(self) -> Sequence[str]:
        return os.listdir(self._folder)

    async def guest(self, handle: Handle) -> Guest:
        if self._first(handle.sandbox_id) is None:
            raise BackendLost(why="the sandbox is not running")
        return self._guest(handle.sandbox_id)

    async def usage(self, handle: Handle) -> Usage:
        if (first := self._first(handle.sandbox_id)) is None:
            raise BackendLost(why="the sandbox is not running")
        limits = json.loads(text_of(str(self._of(handle.sandbox_id) / "box.json")))
        used = await asyncio.to_thread(measured, first, self._of(handle.sandbox_id) / "disk" / "upper")
        cpu_s, memory, disk, processes = used
        return Usage(
            cpu_s=cpu_s,
            memory_bytes=min(memory, limits["memory"]),
            memory_limit_bytes=limits["memory"],
            disk_bytes=min(disk, limits["disk"]),
            disk_limit_bytes=limits["disk"],
            processes=min(processes, limits["pids"]),
            processes_limit=limits["pids"],
        )

    async def teardown(self, sandbox_id: str) -> None:
        if not is_sandbox_id(sandbox_id):
            raise NotFound(what="sandbox", id=sandbox_id)
        self._forget(sandbox_id)
        while (starter := self._starter(sandbox_id)) is not None:
            # The first process ends all others; before there is one, its starter has nothing that could stay.
            if (first := child_of(starter)) is not None:
                with suppress(ProcessLookupError):
                    os.kill(first, signal.SIGKILL)
            await asyncio.sleep(0.001)
        self._reap(sandbox_id)
        await asyncio.to_thread(remove_folder, self._of(sandbox_id))

    async def deaths(self) -> AsyncIterator[str]:
        while True:
            yield await self._ended.get()

    async def close(self) -> None:
        for sandbox_id in tuple(self._watched):
            self._forget(sandbox_id)
        os.close(self._fd)

    def _of(self, sandbox_id: str) -> Path:
        return self._folder / sandbox_id

    def _socket(self, sandbox_id: str) -> str:
        return f"/proc/self/fd/{self._fd}/{sandbox_id}/socket"

    def _guest(self, sandbox_id: str) -> SupervisorGuest:
        return SupervisorGuest(self._socket(sandbox_id))

    def _start(self, order: Order, image: Path) -> None:
        """Starts the first process. It takes a few milliseconds, and what follows waits for its answer."""
        folder, disk = self._of(order.sandbox_id), self._of(order.sandbox_id) / "disk"
        for name in ("upper", "work", "root"):
            (disk / name).mkdir(parents=True)
        program = os.open(self._supervisor, os.O_RDONLY)
        with held(program), socket.socket(socket.AF_UNIX) as listener, open(folder / "log", "wb") as log:
            listener.bind(self._socket(order.sandbox_id))
            listener.listen(256)
            words = {"IMAGE": str(image), "DISK": str(disk), "ID": order.hostname or order.sandbox_id[-12:]}
            words |= {"SUPERVISOR": str(program), "LISTENER": str(listener.fileno()), "PATH": PATH}
            started = self._children[order.sandbox_id] = subprocess.Popen(
                ["unshare", *NAMESPACES, "--", "sh", "-c", START],
                env=words | {"KEPT": "".join(f",+{name}" for name in CAPABILITIES.split())},
                pass_fds=(program, listener.fileno()),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        limits = {"memory": order.resources.memory_mb << 20, "disk": order.resources.disk_mb << 20}
        limits |= {"pids": order.resources.pids, "pid": started.pid, "started": started_at(started.pid) or 0}
        (folder / "box.new").write_text(json.dumps(limits))
        (folder / "box.new").rename(folder / "box.json")
        self._watch(order.sandbox_id)
        assert started.stdin is not None
        with started.stdin as told, suppress(BrokenPipeError):
            told.write(b"\n")

    def _starter(self, sandbox_id: str) -> int | None:
        """Returns the process that started everything and ends with it; None when it has."""
        if not (text := text_of(str(self._of(sandbox_id) / "box.json"))):
            return None
        box = json.loads(text)
        return box["pid"] if started_at(box["pid"]) == box["started"] else None

    def _first(self, sandbox_id: str) -> int | None:
        starter = self._starter(sandbox_id)
        return None if starter is None else child_of(starter)

    def _watch(self, sandbox_id: str) -> None:
        if (pid := self._starter(sandbox_id)) is None:
            return
        if (pidfd := pidfd_of(pid, started_at(pid) or 0)) is not None:
            self._watched[sandbox_id] = pidfd
            asyncio.get_running_loop().add_reader(pidfd, self._tell, sandbox_id)

    def _tell(self, sandbox_id: str) -> None:
        self._forget(sandbox_id)
        self._reap(sandbox_id)
        self._ended.put_nowait(sandbox_id)

    def _reap(self, sandbox_id: str) -> None:
        if (child := self._children.pop(sandbox_id, None)) is not None:
            if child.stdin is not None:
                # One that was never recorded waits for that.
                child.stdin.close()
            child.wait()

    def _forget(self, sandbox_id: str) -> None:
        if (pidfd := self._watched.pop(sandbox_id, None)) is not None:
            asyncio.get_running_loop().remove_reader(pidfd)
            os.close(pidfd)


def remove_folder(folder: Path) -> None:
    """Removes a folder that others may be removing too."""
    while folder.exists():
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)


def child_of(pid: int) -> int | None:
    children = text_of(f"/proc/{pid}/task/{pid}/children").split()
    return int(children[0]) if children else None


def measured(first: int, upper: Path) -> tuple[float, int, int, int]:
    """Returns the processor seconds, the bytes of memory and of disk, and the processes of a sandbox."""
    inside = _namespace_of(first)
    members = [pid for pid in os.listdir("/proc") if pid.isdigit() and _namespace_of(pid) == inside]
    ticks = memory = 0
    for pid in members:
        times = text_of(f"/proc/{pid}/stat").rpartition(") ")[2].split()[11:15]
        ticks += sum(map(int, times))
        memory += int((text_of(f"/proc/{pid}/statm").split() or ["0", "0"])[1])
    disk = 0
    for folder, _, files in os.walk(upper):
        for name in files:
            with suppress(OSError):
                disk += os.lstat(os.path.join(folder, name)).st_blocks * 512
    page, second = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
    return ticks / second, memory * page, disk, max(1, len(members))


def _namespace_of(pid: int | str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return f"none of {pid}"


@asynccontextmanager
async def open_backend(settings: HostSettings) -> AsyncIterator[TemplateBackend]:
    """Opens the backend of a platform, or of `sandboxer backend check`, in its state folder."""
    if os.geteuid() != 0:
        raise NotAvailable(what=NAME, why="it makes namespaces, which only root may")
    backend = TemplateBackend(settings)
    try:
        yield backend
    finally:
        await backend.close()
