"""Finds out what this host can and cannot do for this backend, and what to do about it. Changes nothing.

`unheld` names kernel memory that this host cannot hold a sandbox to, and what to do about it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandboxer.backends.contract import Fingerprint, Lack, Wall
from sandboxer.backends.namespaces.pool import Pool, PoolKind
from sandboxer.backends.namespaces.settings import NamespacesSettings
from sandboxer.backends.namespaces.uids import WIDTH, overlaps

# overlayfs over idmapped layers.
OLDEST_KERNEL = (5, 19)
_ALWAYS = frozenset(
    {Wall.FILES, Wall.PROCESSES, Wall.NETWORK, Wall.CAPABILITIES, Wall.SYSCALLS, Wall.UID_RANGE}
)
# What an open file takes of the memory it is charged to.
OPEN_FILE_BYTES = 256
# What the filters of one process may take of the host's budget: 32,768 instructions.
FILTERS_BYTES = 32768 * 8
UNLIMITED = 2**63 - 1
# Netlink sockets that a sandbox may have (guest/supervisor/ask.c); each holds twice what the host allows.
NETLINK_SOCKETS = 128
STOCK_RECEIVE_BYTES = 212_992


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBudgets:
    """Describes where memory is counted, and which budgets the whole host shares."""

    # "v1", "v2", or nothing.
    memory: str
    counts_sockets: bool
    memory_bytes: int
    files: int
    filter_bytes: int
    receive_bytes: int
    huge_pages: int
    has_time_namespaces: bool

    @classmethod
    def measured(cls, memory: str) -> HostBudgets:
        return cls(
            memory=memory,
            counts_sockets=memory == "v2" or _v1_counts_sockets(),
            memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            files=_number("/proc/sys/fs/file-max"),
            filter_bytes=_number("/proc/sys/net/core/bpf_jit_limit"),
            receive_bytes=_number("/proc/sys/net/core/rmem_max"),
            huge_pages=_number("/proc/sys/vm/nr_hugepages") + _number("/proc/sys/vm/nr_overcommit_hugepages"),
            has_time_namespaces=os.path.exists("/proc/self/ns/time"),
        )


def examine(settings: NamespacesSettings, pool: Pool | None = None) -> Fingerprint:
    """Examines this host, with the pool when it is open."""
    fatal = list(_fatal(settings))
    controllers = _controllers()
    lacks = [*fatal, *_limits_lacking(controllers), *_pool_lacks(pool), *_small_lacks()]
    lacks += _shared_ids(settings)
    lacks += unheld(HostBudgets.measured(controllers.get("memory", "")), settings)
    walls = set() if fatal else set(_ALWAYS)
    if not fatal:
        walls |= {wall for wall in (Wall.MEMORY, Wall.CPU, Wall.PIDS) if wall.value in controllers}
        if pool is not None and pool.limits_disks:
            walls.add(Wall.DISK)
    facts = {
        "kernel": os.uname().release,
        "cgroups": ", ".join(f"{name} on {version}" for name, version in sorted(controllers.items()))
        or "none",
        "pool": "not open: the platform opens it when it starts"
        if pool is None
        else f"{pool.kind.value}, {pool.size_mb} MB, {pool.quota} quotas",
        "pid_max": _read("/proc/sys/kernel/pid_max"),
        "uid_ranges": f"{settings.uid_ranges} from {settings.uid_base}",
    }
    return Fingerprint(healthy=not fatal, walls=frozenset(walls), facts=facts, lacks=tuple(lacks))


def _fatal(settings: NamespacesSettings) -> Iterator[Lack]:
    if os.geteuid() != 0:
        yield Lack(
            what="everything",
            why="not running as root; rootless operation does not exist yet",
            remedy="start the server as root (sandboxes never run as root of the host)",
        )
    if _kernel() < OLDEST_KERNEL:
        yield Lack(
            what="uid ranges",
            why=f"kernel {os.uname().release} has no overlay over idmapped mounts",
            remedy="use Linux 5.19 or newer",
        )
    for program in ("launcher", "supervisor"):
        if not (settings.guest_dir / program).is_file():
            yield Lack(
                what="sandboxes",
                why=f"{settings.guest_dir / program} is missing",
                remedy="make -C guest (needs gcc and make)",
            )
    if "overlay" not in _read("/proc/filesystems") and not Path("/sys/module/overlay").exists():
        yield Lack(what="disks", why="the kernel offers no overlayfs", remedy="modprobe overlay")
    for name in ("user", "mnt", "pid", "net", "ipc", "uts"):
        if _read(f"/proc/sys/user/max_{name}_namespaces") == "0":
            yield Lack(
                what=f"{name} namespaces",
                why=f"user.max_{name}_namespaces is 0",
                remedy=f"sysctl user.max_{name}_namespaces=65536",
            )


def _limits_lacking(controllers: dict[str, str]) -> Iterator[Lack]:
    for name in ("memory", "cpu", "pids"):
        if name not in controllers:
            yield Lack(
                what=f"{name} limits",
                why=f"no cgroup hierarchy offers the {name} controller",
                remedy=f"boot with cgroup_enable={name}, or free the controller",
            )
    yield Lack(
        what="io limits",
        why="buffered writes are not held back by cgroup v1, and are not limited on v2 yet",
        remedy="give the pool a disk of its own",
    )


def _pool_lacks(pool: Pool | None) -> Iterator[Lack]:
    if pool is None:
        if shutil.which("mkfs.btrfs") is None:
            yield Lack(what="disk limits", why="mkfs.btrfs is missing", remedy="apt-get install btrfs-progs")
    elif pool.kind is PoolKind.PLAIN:
        yield Lack(
            what="instant snapshots",
            why="plain folders are copied file by file, and what runs stands still meanwhile",
            remedy="apt-get install btrfs-progs, and start with an empty state folder",
        )
        yield Lack(
            what="disk limits",
            why=f"disks are plain folders: {pool.why_plain}",
            remedy="apt-get install btrfs-progs, and start with an empty state folder",
        )
    elif not pool.limits_disks:
        yield Lack(
            what="disk limits", why="the pool takes no quotas", remedy="use a kernel with btrfs quotas"
        )


def _small_lacks() -> Iterator[Lack]:
    pid_max = int(_read("/proc/sys/kernel/pid_max") or "0")
    if pid_max <= 32768:
        yield Lack(
            what="many processes",
            why=f"kernel.pid_max is {pid_max}, shared by all sandboxes",
            remedy="sysctl kernel.pid_max=4194304",
        )
    ptys = int(_read("/proc/sys/kernel/pty/max") or "0")
    if ptys <= 4096:
        yield Lack(
            what="many terminals",
            why=f"kernel.pty.max is {ptys}; fifty greedy sandboxes can take them all",
            remedy="sysctl kernel.pty.max=65536",
        )


def _shared_ids(settings: NamespacesSettings) -> Iterator[Lack]:
    found = overlaps(settings.uid_base, settings.uid_ranges * WIDTH)
    if found:
        yield Lack(
            what="host ids of its own",
            why=f"ids of sandboxes are given to others as well ({'; '.join(found[:3])}); whoever shares one"
            " can use up the kernel's counts (inotify, timers) of the other",
            remedy=f"give those users ids outside {settings.uid_base}"
            f"–{settings.uid_base + settings.uid_ranges * WIDTH - 1}, or set SANDBOXER_UID_BASE",
        )


def _controllers() -> dict[str, str]:
    """Returns where each controller is: "v1" or "v2"."""
    found: dict[str, str] = {}
    for line in _read("/proc/mounts").splitlines():
        _, where, kind, options = line.split()[:4]
        if kind == "cgroup2":
            found.update(dict.fromkeys(_read(f"{where}/cgroup.controllers").split(), "v2"))
        elif kind == "cgroup":
            found.update(dict.fromkeys(options.split(","), "v1"))
    return {name: version for name, version in found.items() if name in ("memory", "cpu", "pids")}


def _kernel() -> tuple[int, int]:
    parts = os.uname().release.split(".")
    return int(parts[0]), int("".join(filter(str.isdigit, parts[1][:3])) or 0)


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def unheld(host: HostBudgets, settings: NamespacesSettings) -> Iterator[Lack]:
    yield Lack(
        what="kernel memory: file locks",
        why="the kernel charges them to nobody; whoever holds more than "
        f"{settings.locks} is killed about a second later",
        remedy="keep strangers behind a kernel of their own where that matters",
    )
    if host.memory and not host.counts_sockets:
        yield Lack(
            what="kernel memory: socket buffers",
            why="cgroup v1 without memory.kmem.tcp does not count them",
            remedy="boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)",
        )
    elif host.memory == "v1":
        yield Lack(
            what="kernel memory: socket buffers",
            why="cgroup v1 counts them beside the memory limit: a sandbox may hold an eighth more than it",
            remedy="boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)",
        )
    if 0 < host.files < host.memory_bytes // OPEN_FILE_BYTES:
        yield Lack(
            what="many open files",
            why=f"fs.file-max is {host.files} for all, and {host.files * OPEN_FILE_BYTES >> 20} MB of memory "
            "can hold them (the greediest sandbox is killed when half are gone)",
            remedy=f"sysctl fs.file-max={UNLIMITED}: open files are charged to memory",
        )
    if 0 < host.filter_bytes < 4096 * FILTERS_BYTES:
        yield Lack(
            what="many system call filters",
            why=f"net.core.bpf_jit_limit is {host.filter_bytes >> 20} MB for all; "
            f"{host.filter_bytes // FILTERS_BYTES} processes inside can take it with filters of their own "
            "(the greediest is killed when half is gone)",
            remedy=f"sysctl net.core.bpf_jit_limit={4096 * FILTERS_BYTES}",
        )
    if host.receive_bytes > STOCK_RECEIVE_BYTES:
        held = 2 * NETLINK_SOCKETS * host.receive_bytes
        yield Lack(
            what="kernel memory: answers of netlink",
            why=f"net.core.rmem_max is {host.receive_bytes}: a sandbox may hold {held >> 20} MB of them, "
            "which the kernel charges to nobody",
            remedy=f"sysctl net.core.rmem_max={STOCK_RECEIVE_BYTES}",
        )
    if host.huge_pages:
        yield Lack(
            what="huge pages",
            why=f"{host.huge_pages} are set aside, which no memory limit counts: one sandbox can take all",
            remedy="sysctl vm.nr_hugepages=0 vm.nr_overcommit_hugepages=0",
        )
    if not host.has_time_namespaces:
        yield Lack(
            what="clocks of their own",
            why="the kernel has no time namespaces: sandboxes see the host's uptime and share a file to lock",
            remedy="use a kernel with CONFIG_TIME_NS",
        )


def _v1_counts_sockets() -> bool:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, options = line.split()[:4]
        if kind == "cgroup" and "memory" in options.split(","):
            return os.path.exists(f"{where}/memory.kmem.tcp.limit_in_bytes")
    return False


def _number(path: str) -> int:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return 0
