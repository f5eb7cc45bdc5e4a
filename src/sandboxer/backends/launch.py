"""What starts a sandbox on this host is told, and answers: an order in which everything is decided. The
launcher of `ext.namespaces` reads it, and so does the stager that prepares for an OCI runtime.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Awaitable, Callable
from typing import Protocol

from sandboxer.backends.contract import Fingerprint
from sandboxer.backends.guest import Guest
from sandboxer.kernel.errors import Broken, InvalidRequest, ProvisionFailed, SandboxerError
from sandboxer.kernel.values import brief_value_class, value_class

# dpkg, apt, tar, useradd and su work with these. Numbers as in linux/capability.h.
CAPABILITIES = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "FSETID": 4,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "NET_BIND_SERVICE": 10,
    "SYS_CHROOT": 18,
    "AUDIT_WRITE": 29,
    "SETFCAP": 31,
}
CAPABILITY_SET = sum(1 << number for number in CAPABILITIES.values())
# What is shown of the sandbox itself instead (guest/supervisor/view.c), after the figure that each needs.
# Where a host cannot show them they are the host's own: nproc, free and top need them.
VIEWS = (
    ("memory_limit", "meminfo"),
    ("cpu_limit", "stat"),
    ("cpu_limit", "cpuinfo"),
    ("cpu_limit", "loadavg"),
    ("cpu_limit", "uptime"),
)
# What it meets where a volume shall be seen, if that is not a folder: nobody's fault here.
_IN_THE_WAY = {str(number) for number in (errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EXDEV)}

# (what, path, value) in order; see `struct act` of the launcher.
DiskBirths = list[tuple[str, str, str | None]]


@brief_value_class
class Births:
    """Lists what the launcher makes and joins for one sandbox."""

    # (folder, None) to make, (file, value) to write, in this order.
    acts: list[tuple[str, str | None]]
    joins: list[str]
    born_in: str
    # Where its limits and its use are read, by the name that the launcher has for each.
    figures: dict[str, str]


@value_class
class LaunchOrder:
    """Holds an order in which everything is decided; the launcher only acts."""

    tag: str
    image: str
    disk: str
    socket: str
    hostname: str
    cgroups: Births
    # Nothing for a disk that exists.
    disks: DiskBirths
    first_uid: int
    uid_count: int
    shm_bytes: int
    ptys: int
    sigpending: int
    open_files: int
    masks: tuple[str, ...]
    # What it reads as the kernel's: the host's own would tell who shares a host.
    boot_id: str
    # (disk, path inside without its first slash, read-only).
    volumes: tuple[tuple[str, str, bool], ...] = ()
    # (path inside without its first slash, read-only).
    folders: tuple[tuple[str, bool], ...] = ()
    # The filter with namespaces inside.
    nests: bool = False
    # The inside port that connections to addresses far away are led to; None: there are none.
    way_out: int | None = None
    # The layer below the image; None: nothing is brought.
    tools: str | None = None
    # What `cgroups` limits it to, for who shows it inside. Not among the words of the order.
    memory_mb: int = 0
    vcpus: float = 0.0
    pids: int = 0
    # The kept disk that a new sandbox begins as a copy of. Not a word of the order either.
    origin: str | None = None

    def encode(self) -> bytes:
        fields = [
            f"tag={self.tag}",
            f"image={self.image}",
            f"disk={self.disk}",
            f"socket={self.socket}",
            f"hostname={self.hostname}",
            f"cgroup={self.cgroups.born_in}",
            f"base={self.first_uid}",
            f"count={self.uid_count}",
            f"capabilities={CAPABILITY_SET}",
            f"shm_bytes={self.shm_bytes}",
            f"ptys={self.ptys}",
            f"sigpending={self.sigpending}",
            f"open_files={self.open_files}",
            f"boot_id={self.boot_id}",
        ]
        for path, value in self.cgroups.acts:
            fields += (
                [f"cgroup.folder={path}"]
                if value is None
                else [f"cgroup.write={path}", f"cgroup.value={value}"]
            )
        for act, path, value in self.disks:
            fields += (
                [f"disk.{act}={path}"] if value is None else [f"disk.{act}={path}", f"disk.value={value}"]
            )
        fields += [f"join={path}" for path in self.cgroups.joins]
        fields += [f"mask={name}" for name in self.masks]
        figures = self.cgroups.figures
        fields += [f"figure.{name}={path}" for name, path in figures.items()]
        fields += [f"view={name}" for figure, name in VIEWS if figure in figures]
        fields += ["nests=1"] if self.nests else []
        fields += [] if self.tools is None else [f"tools={self.tools}"]
        fields += [] if self.way_out is None else [f"way_out={self.way_out}"]
        for path, is_read_only in self.folders:
            fields += [f"folder={path}", *(["folder.read_only=1"] if is_read_only else [])]
        for disk, path, is_read_only in self.volumes:
            fields += [f"volume={disk}", f"volume.path={path}"]
            fields += ["volume.read_only=1"] if is_read_only else []
        if any("\0" in text for text in fields):
            raise Broken(why="a NUL in a launch order")
        return ("\0".join(fields) + "\0").encode()


@value_class
class Launched:
    pid: int
    started: int
    timings_ms: dict[str, float]


def answer_fields(data: bytes) -> dict[str, str]:
    words = data.decode(errors="replace").rstrip("\0").split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)


def failure_of(answer: dict[str, str]) -> SandboxerError:
    step, text, number = answer.get("failed", "?"), answer.get("text", ""), answer.get("errno", "")
    if step == "volumes" and number in _IN_THE_WAY:
        return InvalidRequest(
            field="volumes", why=f"in the sandbox's tree a link or a file is in the way of /{text}"
        )
    if step == "folders" and number in _IN_THE_WAY:
        return InvalidRequest(field="workspace", why=f"a link or a file is in the way of /{text}")
    return ProvisionFailed(
        step=step, why=f"{text} (errno {number})", errno=int(number) if number.isdigit() else None
    )


# Where a supervisor is dialled: the path of its socket, or what connects to it. That returns a socket which
# does not block and is ready for the greeting; it raises OSError or one of our errors.
Door = str | Callable[[], Awaitable[socket.socket]]


class Starter(Protocol):
    """Starts the first process of a sandbox."""

    async def start(self) -> None: ...

    async def launch(self, order: LaunchOrder) -> Launched:
        """Starts a sandbox. Raises ProvisionFailed naming the step; then nothing of it runs."""

    async def ping(self, *, within_s: float) -> None:
        """Checks that it takes orders. Raises Unavailable."""

    async def replace(self) -> None:
        """Ends what hangs, and starts again."""

    async def close(self) -> None: ...

    def forget(self, sandbox_id: str) -> None:
        """Removes what starting a sandbox left, once nothing of it runs, before its cgroups. Blocks."""


@brief_value_class
class Counters:
    """Counts events that tell why a command ended."""

    oom_kills: int
    pids_refused: int
    # Not the kernel's count: how often the watch of kernel objects killed something in it.
    object_kills: int = 0


class Limits(Protocol):
    """What the host counts of one sandbox."""

    def counters(self) -> Counters: ...

    def is_disk_full(self) -> bool: ...


LimitsOf = Callable[[str], Limits]


class Reach(Protocol):
    """Reaches what runs in a sandbox, and pauses it. What pauses blocks."""

    # Whether the supervisor of a frozen sandbox can be asked.
    answers_frozen: bool

    def door(self, sandbox_id: str) -> Door: ...

    def guest(self, sandbox_id: str) -> Guest: ...

    def set_frozen(self, sandbox_id: str, frozen: bool, timeout_s: float) -> bool:
        """Freezes or thaws. Returns whether it is done in time; raises FileNotFoundError if nothing runs."""

    def is_frozen(self, sandbox_id: str) -> bool: ...


def _as_it_is(found: Fingerprint) -> Fingerprint:
    return found


@brief_value_class
class Means:
    """How a backend starts sandboxes and reaches them, where everything else is done alike."""

    # Of the backend.
    name: str
    starter: Starter
    # Made of what says what a sandbox's limits were. None: by the path of the supervisor's socket, and by its
    # cgroup.
    reach: Callable[[LimitsOf], Reach] | None = None
    # How many tasks of the host (processes and threads) one with so many processes may have, where none of
    # these is one of the host's. None: they are.
    host_tasks: Callable[[int], int] | None = None
    # What this host can do by these means, of what is found on it.
    adjust: Callable[[Fingerprint], Fingerprint] = _as_it_is
