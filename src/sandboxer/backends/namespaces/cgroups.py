"""Limits, freezes, kills and counts processes, on cgroup v2, v1 and hybrids of both.

Each sandbox has one folder per hierarchy. In the v2 hierarchy (freeze and kill work there whether or not it
holds controllers) it has parts:

    <parent>/<sandbox id>/guest              the supervisor, never frozen
    <parent>/<sandbox id>/work/<command>     one per command, so that a command's whole tree can be killed

Limits sit on the sandbox's folder of whichever hierarchy has the controller.

`Hierarchies` says which hierarchies this host has, and where each controller lives.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from sandboxer.backends.contract import Resources
from sandboxer.backends.launch import Births, Counters
from sandboxer.backends.shared import opened
from sandboxer.kernel.errors import Broken
from sandboxer.kernel.values import brief_value_class, is_sandbox_id

MB = 1024 * 1024
CPU_PERIOD_US = 100_000
# What one process weighs by default, in the words of v2 and of v1, and the most that may be written there.
V2_WEIGHT, V2_HEAVIEST = 100, 10_000
V1_SHARES, V1_HEAVIEST = 1024, 262_144
# Of v1: all that TCP and UDP sockets of a sandbox may hold.
SOCKET_LIMIT = "memory.kmem.tcp.limit_in_bytes"
# Of both: everything in it runs when nothing else beside it wants to.
IDLE = "cpu.idle"
# The supervisor and its workers are counted with the tenant's processes.
SPARE_PIDS = 16
# The files that say what a sandbox may use and uses: its programs are shown these numbers, not the host's.
FIGURES = {
    "memory": {
        "v2": {"memory_limit": "memory.max", "memory_used": "memory.current", "memory_stat": "memory.stat"},
        "v1": {
            "memory_limit": "memory.limit_in_bytes",
            "memory_used": "memory.usage_in_bytes",
            "memory_stat": "memory.stat",
        },
    },
    "cpu": {"v2": {"cpu_limit": "cpu.max"}, "v1": {"cpu_limit": "cpu.cfs_quota_us"}},
}
CONTROLLERS = ("memory", "cpu", "pids")


@brief_value_class
class Counted:
    cpu_s: float
    memory_bytes: int
    processes: int


@brief_value_class
class Hierarchies:
    """Says where the hierarchies are mounted on this host."""

    unified: Path
    # Controllers that live in the unified hierarchy.
    v2: frozenset[str]
    # Controllers that live in hierarchies of their own.
    v1: dict[str, Path]

    def has(self, controller: str) -> bool:
        return controller in self.v2 or controller in self.v1


class Cgroups:
    def __init__(
        self,
        hierarchies: Hierarchies,
        parent: str,
        *,
        host_tasks: Callable[[int], int] | None = None,
    ) -> None:
        """`host_tasks`: see `Means`."""
        self.hierarchies = hierarchies
        # Whether its processes are the host's.
        self.sees_commands = host_tasks is None
        self._host_tasks = host_tasks or (lambda pids: pids + SPARE_PIDS)
        self.object_kills: Counter[str] = Counter()
        self._read: dict[str, float] = {}
        self._unified = str(hierarchies.unified / parent)
        self._limits = {
            name: (str((hierarchies.unified if name in hierarchies.v2 else hierarchies.v1[name]) / parent))
            for name in CONTROLLERS
            if hierarchies.has(name)
        }

    def prepare(self) -> None:
        """Makes the parents of all sandboxes, with v2 controllers handed down to them."""
        for root in {self._unified, *self._limits.values()}:
            os.makedirs(root, exist_ok=True)
        self._hand_down_controllers()
        self._weigh_parents()
        self._count_sockets()

    def _count_sockets(self) -> None:
        """Counts sockets on v1, above all sandboxes and without a limit: the kernel patches its own code
        when the first cgroup begins to count them and when the last one ends. That must not happen with
        every sandbox.
        """
        limit = f"{self._limits.get('memory')}/{SOCKET_LIMIT}"
        if "memory" in self.hierarchies.v1 and os.path.exists(limit):
            _write(limit, "-1")

    def _weigh_parents(self) -> None:
        """Gives all sandboxes together the weight of one process for each core. Otherwise they would have
        that of one.
        """
        if "cpu" not in self._limits:
            return
        file, value = self._weight(os.cpu_count() or 1)
        top = self.hierarchies.unified if "cpu" in self.hierarchies.v2 else self.hierarchies.v1["cpu"]
        folder = Path(self._limits["cpu"])
        while folder != top:
            _write(str(folder / file), value)
            folder = folder.parent

    def _weight(self, vcpus: float) -> tuple[str, str]:
        """Returns the CPU weight of a sandbox, so that under load each gets time by its vCPUs."""
        if "cpu" in self.hierarchies.v2:
            return "cpu.weight", str(min(V2_HEAVIEST, max(1, int(vcpus * V2_WEIGHT))))
        return "cpu.shares", str(min(V1_HEAVIEST, max(2, int(vcpus * V1_SHARES))))

    def _hand_down_controllers(self) -> None:
        if not (wanted := " ".join(f"+{name}" for name in sorted(self.hierarchies.v2))):
            return
        folder = self.hierarchies.unified
        for part in ("", *Path(self._unified).relative_to(folder).parts):
            folder = folder / part
            _write(str(folder / "cgroup.subtree_control"), wanted)

    def remove_parents(self) -> None:
        """Removes the parents where nothing is left below them; the next start makes them again."""
        for root in {self._unified, *self._limits.values()}:
            _rmdir(root, patient=False)

    def births(self, sandbox_id: str, resources: Resources) -> Births:
        top = f"{self._unified}/{sandbox_id}"
        # The parents too: an administrator's broom may have taken them while they were empty.
        acts: list[tuple[str, str | None]] = [
            (root, None) for root in {self._unified, *self._limits.values()}
        ]
        acts += [(top, None), (f"{top}/guest", None), (f"{top}/work", None)]
        joins: list[str] = []
        for name, root in self._limits.items():
            folder = f"{root}/{sandbox_id}"
            if name not in self.hierarchies.v2:
                acts.append((folder, None))
                joins.append(f"{folder}/tasks")
            acts += [(f"{folder}/{file}", value) for file, value in self._values(name, resources)]
        return Births(acts, joins, f"{top}/guest", self._figures(sandbox_id))

    def _figures(self, sandbox_id: str) -> dict[str, str]:
        found = {"cpu_used": f"{self._unified}/{sandbox_id}/cpu.stat"}
        for name, files in FIGURES.items():
            if name in self._limits:
                by_version = files["v2" if name in self.hierarchies.v2 else "v1"]
                folder = f"{self._limits[name]}/{sandbox_id}"
                found |= {figure: f"{folder}/{file}" for figure, file in by_version.items()}
        return found

    def _values(self, controller: str, resources: Resources) -> Iterator[tuple[str, str]]:
        is_v2 = controller in self.hierarchies.v2
        memory = resources.memory_mb * MB
        quota_us = max(1000, int(resources.vcpus * CPU_PERIOD_US))
        match controller, is_v2:
            case "memory", True:
                yield from (("memory.max", str(memory)), ("memory.swap.max", "0"))
            case "memory", False:
                yield "memory.limit_in_bytes", str(memory)
                if os.path.exists(f"{self._limits['memory']}/memory.memsw.limit_in_bytes"):
                    yield "memory.memsw.limit_in_bytes", str(memory)
                # v1 does not count the buffers of sockets as memory. Only once this is set are they counted.
                if os.path.exists(f"{self._limits['memory']}/{SOCKET_LIMIT}"):
                    yield SOCKET_LIMIT, str(socket_bytes(memory))
            case "cpu", True:
                yield from (("cpu.max", f"{quota_us} {CPU_PERIOD_US}"), self._weight(resources.vcpus))
            case "cpu", False:
                yield from (("cpu.cfs_period_us", str(CPU_PERIOD_US)), ("cpu.cfs_quota_us", str(quota_us)))
                yield self._weight(resources.vcpus)
            case _:
                yield "pids.max", str(self._host_tasks(resources.pids))

    # -- the whole sandbox

    def resize(self, sandbox_id: str, resources: Resources) -> None:
        """Gives a running sandbox other limits. Raises OSError (EBUSY) when it uses more memory than it
        would have.
        """
        anon = _pairs(f"{self._limits.get('memory')}/{sandbox_id}/memory.stat").get("anon", 0)
        if "memory" in self.hierarchies.v2 and anon > resources.memory_mb * MB:
            # v2 would take the limit and kill.
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        if self.is_last(sandbox_id):
            # A weight cannot be set meanwhile; who decides that it comes last says so again.
            self.set_last(sandbox_id, False, resources.vcpus)
        for name, root in self._limits.items():
            values = list(self._values(name, resources))
            try:
                for file, value in values:
                    _write(f"{root}/{sandbox_id}/{file}", value)
            except OSError:
                # Memory alone may not be more than memory and swap: upwards the other goes first.
                for file, value in reversed(values):
                    _write(f"{root}/{sandbox_id}/{file}", value)

    def set_last(self, sandbox_id: str, is_last: bool, vcpus: float) -> None:
        """Whether it runs only when no other sandbox wants the processor. Raises OSError when it is gone.

        A light weight would not do: however light, what runs keeps the processor for a slice of the
        scheduler's before who wakes up gets it. What is idle is interrupted at once.
        """
        folder = f"{self._limits['cpu']}/{sandbox_id}"
        if has_idle := os.path.exists(f"{folder}/{IDLE}"):
            _write(f"{folder}/{IDLE}", str(int(is_last)))
        if not (has_idle and is_last):
            # Whatever was idle has forgotten its weight; before 5.15 the weight is all there is.
            file, value = self._weight(0 if is_last else vcpus)
            _write(f"{folder}/{file}", value)

    def is_last(self, sandbox_id: str) -> bool:
        try:
            return _read(f"{self._limits.get('cpu')}/{sandbox_id}/{IDLE}").strip() == "1"
        except OSError:
            return False

    def kill(self, sandbox_id: str) -> None:
        """Kills everything in a sandbox, frozen or not. Gone already is success."""
        with contextlib.suppress(FileNotFoundError):
            _write(f"{self._unified}/{sandbox_id}/cgroup.kill", "1")

    def wait_empty(self, sandbox_id: str, timeout_s: float) -> bool:
        return self._wait_event(f"{self._unified}/{sandbox_id}/cgroup.events", "populated 0", timeout_s)

    def remove(self, sandbox_id: str) -> None:
        """Removes the folders of an empty sandbox. The kernel frees a folder a moment after its last
        task, so it tries again.
        """
        top = f"{self._unified}/{sandbox_id}"
        self.object_kills.pop(sandbox_id, None)
        for command in _folders(f"{top}/work"):
            _rmdir(f"{top}/work/{command}")
        folders = [f"{top}/work", f"{top}/guest", top]
        folders += [
            f"{root}/{sandbox_id}" for name, root in self._limits.items() if name not in self.hierarchies.v2
        ]
        for folder in folders:
            _rmdir(folder)

    def ids(self) -> set[str]:
        found: set[str] = set()
        for root in {self._unified, *self._limits.values()}:
            found.update(name for name in _folders(root) if is_sandbox_id(name))
        return found

    def in_parents(self) -> set[int]:
        """Returns pids in the folders above all sandboxes, where none belongs."""
        found: set[int] = set()
        for root in {self._unified, *self._limits.values()}:
            with contextlib.suppress(OSError), open(f"{root}/cgroup.procs", encoding="ascii") as file:
                found.update(int(line) for line in file)
        return found

    def is_in_a_sandbox(self, pid: int) -> bool:
        """Says whether a process is in the v2 folder of any sandbox; one that has ended counts as in one."""
        try:
            with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
                place = next((line[3:].strip() for line in file if line.startswith("0::")), "/")
        except (FileNotFoundError, ProcessLookupError):
            return True
        parts = Path(place).parts
        return any(is_sandbox_id(part) for part in parts)

    # -- freezing

    def set_frozen(self, sandbox_id: str, frozen: bool, timeout_s: float) -> bool:
        """Freezes or thaws a sandbox. Returns True once every process of its commands has stopped, or
        goes on.
        """
        work = f"{self._unified}/{sandbox_id}/work"
        _write(f"{work}/cgroup.freeze", "1" if frozen else "0")
        return self._wait_event(f"{work}/cgroup.events", f"frozen {int(frozen)}", timeout_s)

    def is_frozen(self, sandbox_id: str) -> bool:
        try:
            return _read(f"{self._unified}/{sandbox_id}/work/cgroup.freeze").strip() == "1"
        except FileNotFoundError:
            return False

    # -- commands

    def make_command(self, sandbox_id: str, command: str) -> int:
        """Makes a cgroup for one command; returns an fd by which its first process joins."""
        folder = f"{self._unified}/{sandbox_id}/work/{command}"
        os.mkdir(folder)
        try:
            return os.open(f"{folder}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        except BaseException:
            os.rmdir(folder)
            raise

    def kill_command(self, sandbox_id: str, command: str) -> None:
        folder = f"{self._unified}/{sandbox_id}/work/{command}"
        if _rmdir(folder, patient=False):
            # Nothing runs in it. Takes no descriptor: a command that failed for want of one ends here.
            return
        try:
            _write(f"{folder}/cgroup.kill", "1")
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV):
                raise

    def processes(self, sandbox_id: str) -> list[int]:
        """Returns the processes of all its commands, by their numbers on the host."""
        work = f"{self._unified}/{sandbox_id}/work"
        found: list[int] = []
        for command in self.commands(sandbox_id):
            with contextlib.suppress(OSError):
                found += map(int, Path(f"{work}/{command}/cgroup.procs").read_text().split())
        return found

    def first_processes(self, sandbox_id: str) -> list[int]:
        """Returns those that are none of a command's: its supervisor, or what is its kernel."""
        with contextlib.suppress(OSError):
            procs = Path(f"{self._unified}/{sandbox_id}/guest/cgroup.procs").read_text()
            return [int(pid) for pid in procs.split()]
        return []

    def commands(self, sandbox_id: str) -> list[str]:
        return _folders(f"{self._unified}/{sandbox_id}/work")

    def remove_command(self, sandbox_id: str, command: str) -> bool:
        """Removes the cgroup of a command. Returns False while something still runs in it."""
        return _rmdir(f"{self._unified}/{sandbox_id}/work/{command}", patient=False)

    # -- counting

    def counters(self, sandbox_id: str) -> Counters:
        return Counters(
            oom_kills=self._event("memory", sandbox_id, "memory.events", "memory.oom_control", "oom_kill"),
            pids_refused=self._event("pids", sandbox_id, "pids.events", "pids.events", "max"),
            object_kills=self.object_kills[sandbox_id],
        )

    def processor_s(self, sandbox_id: str | None = None) -> float:
        """Of one sandbox, or of all."""
        folder = self._unified if sandbox_id is None else f"{self._unified}/{sandbox_id}"
        return _pairs(f"{folder}/cpu.stat").get("usage_usec", 0) / 1e6

    def read_s(self, sandbox_id: str) -> float:
        """Reads the processor time of a sandbox for who counts it all the time."""
        self._read[sandbox_id] = seconds = self.processor_s(sandbox_id)
        return seconds

    def unread_s(self, sandbox_id: str) -> float:
        """Returns what it has had since it was last read, and forgets that."""
        return max(0.0, self.processor_s(sandbox_id) - self._read.pop(sandbox_id, 0.0))

    def counted(self, sandbox_id: str) -> Counted:
        memory = self._number("memory", sandbox_id, "memory.current", "memory.usage_in_bytes")
        processes = self._number("pids", sandbox_id, "pids.current", "pids.current")
        cpu_s = self.processor_s(sandbox_id)
        return Counted(cpu_s=cpu_s, memory_bytes=memory, processes=processes)

    def _event(self, controller: str, sandbox_id: str, v2: str, v1: str, key: str) -> int:
        root = self._limits.get(controller)
        name = v2 if controller in self.hierarchies.v2 else v1
        return _pairs(f"{root}/{sandbox_id}/{name}").get(key, 0) if root else 0

    def _number(self, controller: str, sandbox_id: str, v2: str, v1: str) -> int:
        root = self._limits.get(controller)
        name = v2 if controller in self.hierarchies.v2 else v1
        try:
            return int(_read(f"{root}/{sandbox_id}/{name}")) if root else 0
        except (FileNotFoundError, OSError):
            return 0

    def _wait_event(self, path: str, wanted: str, timeout_s: float) -> bool:
        """Waits until the kernel signals a change of this file."""
        end = time.monotonic() + timeout_s
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            poller = select.poll()
            poller.register(fd, select.POLLPRI)
            while wanted not in os.pread(fd, 4096, 0).decode():
                if (left := end - time.monotonic()) <= 0:
                    return False
                poller.poll(min(left, 1.0) * 1000)
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
        finally:
            os.close(fd)
        return True


def socket_bytes(memory: int) -> int:
    """Returns the limit of socket buffers on v1, which cannot count them as memory: an eighth of the
    memory limit, at least 4 MB.
    """
    return max(4 * MB, memory // 8)


def _read(path: str) -> str:
    with opened(path, os.O_RDONLY | os.O_CLOEXEC) as fd:
        return os.read(fd, 8192).decode()


def _write(path: str, text: str) -> None:
    with opened(path, os.O_WRONLY | os.O_CLOEXEC) as fd:
        os.write(fd, text.encode())


def _pairs(path: str) -> dict[str, int]:
    try:
        return {key: int(value) for key, value in (line.split()[:2] for line in _read(path).splitlines())}
    except (FileNotFoundError, OSError):
        return {}


def _folders(path: str) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _rmdir(path: str, *, patient: bool = True) -> bool:
    end = time.monotonic() + 5.0
    while True:
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ENOTEMPTY) or not patient:
                return False
            if time.monotonic() > end:
                raise
            time.sleep(0.001)
        else:
            return True


def find_hierarchies(fallback: Path, mounts: str | None = None) -> Hierarchies:
    """Finds what is mounted, and mounts a cgroup2 of our own at `fallback` when nobody did."""
    text = mounts if mounts is not None else Path("/proc/mounts").read_text()
    unified: Path | None = None
    v1: dict[str, Path] = {}
    for line in text.splitlines():
        _, where, kind, options = line.split()[:4]
        if kind == "cgroup2" and unified is None:
            unified = Path(where)
        elif kind == "cgroup":
            v1.update({name: Path(where) for name in options.split(",") if name in CONTROLLERS})
    if unified is None:
        fallback.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["mount", "-t", "cgroup2", "none", str(fallback)], capture_output=True, check=False
        )
        if done.returncode:
            raise Broken(why=f"no cgroup2: {done.stderr.decode(errors='replace').strip()}")
        unified = fallback
    available = frozenset((unified / "cgroup.controllers").read_text().split())
    return Hierarchies(unified, available & frozenset(CONTROLLERS), v1)


def favour_moves(unified: Path) -> bool:
    """Remounts with `favordynmods`: a command joining its cgroup otherwise waits for an RCU period, 6 to
    18 ms each time. Other options are kept as they are. Returns False when this kernel cannot.
    """
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, options = line.split()[:4]
        if kind == "cgroup2" and where == str(unified):
            if "favordynmods" in options.split(","):
                return True
            wanted = f"remount,{options},favordynmods"
            argv = ["mount", "-o", wanted, str(unified)]
            return subprocess.run(argv, capture_output=True, check=False).returncode == 0
    return False
