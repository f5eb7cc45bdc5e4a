"""Finds out what this host can and cannot do for this backend, and what to do about it. Changes nothing.

`unheld` names kernel memory that this host cannot hold a sandbox to, and what to do about it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from sandboxer.backends.contract import Fingerprint, Lack, Wall
from sandboxer.backends.namespaces.pool import Pool, PoolKind
from sandboxer.backends.namespaces.settings import NamespacesSettings
from sandboxer.backends.namespaces.uids import WIDTH, overlaps
from sandboxer.backends.shared import text_of
from sandboxer.kernel.values import value_class

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


@value_class
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
    fatal = _fatal(settings)
    controllers = _controllers()
    lacks = [*fatal, *_limits_lacking(controllers), *_pool_lacks(pool), *_small_lacks()]
    lacks += _shared_ids(settings)
    lacks += [] if fatal else steering_lacks(settings.guest_dir / "launcher")
    lacks += [] if fatal else showing_lacks(settings.guest_dir / "launcher")
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


def _those(*found: tuple[object, str, str, str]) -> list[Lack]:
    """Returns what is lacking. Each row says whether it is, then what, why, and the remedy."""
    return [Lack(what=what, why=why, remedy=remedy) for is_lacking, what, why, remedy in found if is_lacking]


def _fatal(settings: NamespacesSettings) -> list[Lack]:
    release, root = os.uname().release, "start the server as root (sandboxes never run as root of the host)"
    has_overlay = "overlay" in _read("/proc/filesystems") or Path("/sys/module/overlay").exists()
    programs = [settings.guest_dir / name for name in ("launcher", "supervisor")]
    compile_them = "make -C guest (needs gcc and make)"
    limits = [f"max_{name}_namespaces" for name in ("user", "mnt", "pid", "net", "ipc", "uts")]
    return _those(
        (os.geteuid() != 0, "everything", "not running as root; rootless operation does not exist yet", root),
        (
            _kernel() < OLDEST_KERNEL,
            "uid ranges",
            f"kernel {release} has no overlay over idmapped mounts",
            "use Linux 5.19 or newer",
        ),
        *((not one.is_file(), "sandboxes", f"{one} is missing", compile_them) for one in programs),
        (not has_overlay, "disks", "the kernel offers no overlayfs", "modprobe overlay"),
        *(
            (
                _read(f"/proc/sys/user/{limit}") == "0",
                limit.removeprefix("max_").replace("_", " "),
                f"user.{limit} is 0",
                f"sysctl user.{limit}=65536",
            )
            for limit in limits
        ),
    )


def _limits_lacking(controllers: dict[str, str]) -> list[Lack]:
    return _those(
        *(
            (
                name not in controllers,
                f"{name} limits",
                f"no cgroup hierarchy offers the {name} controller",
                f"boot with cgroup_enable={name}, or free the controller",
            )
            for name in ("memory", "cpu", "pids")
        ),
        (
            True,
            "io limits",
            "buffered writes are not held back by cgroup v1, and are not limited on v2 yet",
            "give the pool a disk of its own",
        ),
    )


def _pool_lacks(pool: Pool | None) -> list[Lack]:
    is_plain = pool is not None and pool.kind is PoolKind.PLAIN
    anew = "apt-get install btrfs-progs, and start with an empty state folder"
    return _those(
        (
            pool is None and shutil.which("mkfs.btrfs") is None,
            "disk limits",
            "mkfs.btrfs is missing",
            "apt-get install btrfs-progs",
        ),
        (
            is_plain,
            "instant snapshots",
            "plain folders are copied file by file, and what runs stands still meanwhile",
            anew,
        ),
        (is_plain, "disk limits", f"disks are plain folders: {pool.why_plain if pool else ''}", anew),
        (
            pool is not None and not is_plain and not pool.limits_disks,
            "disk limits",
            "the pool takes no quotas",
            "use a kernel with btrfs quotas",
        ),
    )


def _small_lacks() -> list[Lack]:
    pid_max, ptys = _number("/proc/sys/kernel/pid_max"), _number("/proc/sys/kernel/pty/max")
    return _those(
        (
            pid_max <= 32768,
            "many processes",
            f"kernel.pid_max is {pid_max}, shared by all sandboxes",
            "sysctl kernel.pid_max=4194304",
        ),
        (
            ptys <= 4096,
            "many terminals",
            f"kernel.pty.max is {ptys}; fifty greedy sandboxes can take them all",
            "sysctl kernel.pty.max=65536",
        ),
    )


def steering_lacks(launcher: Path) -> list[Lack]:
    why = _why_not(launcher, "steers")
    return _those(
        (
            why,
            "programs that ignore proxy variables",
            f"the kernel cannot lead their connections to the egress proxy ({why})",
            "use Linux 5.9 or newer with CONFIG_BPF_SYSCALL, not locked down",
        )
    )


def showing_lacks(launcher: Path) -> list[Lack]:
    why = _why_not(launcher, "shows")
    return _those(
        (
            why,
            "limits that programs see",
            f"/proc shows sandboxes the host's memory, processors and load: no FUSE for them ({why})",
            "modprobe fuse; in a container, let it use the device 10:229 (--device /dev/fuse)",
        )
    )


@cache
def _why_not(launcher: Path, act: str) -> str:
    """Tries it in a namespace of its own, once: the kernel stays the same. Empty: it can."""
    tried = subprocess.run([launcher, act], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else tried.stderr.strip().rpartition(": ")[2] or "unknown"


def _shared_ids(settings: NamespacesSettings) -> Iterator[Lack]:
    if found := overlaps(settings.uid_base, settings.uid_ranges * WIDTH):
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
    return text_of(path).strip()


def unheld(host: HostBudgets, settings: NamespacesSettings) -> list[Lack]:
    apart = "cgroup v1 counts them beside the memory limit: a sandbox may hold an eighth more than it"
    held_mb = 2 * NETLINK_SOCKETS * host.receive_bytes >> 20
    filters_mb, greedy = host.filter_bytes >> 20, host.filter_bytes // FILTERS_BYTES
    files_mb = host.files * OPEN_FILE_BYTES >> 20
    return _those(
        (
            True,
            "kernel memory: file locks",
            "the kernel charges them to nobody; whoever holds more than "
            f"{settings.locks} is killed about a second later",
            "keep strangers behind a kernel of their own where that matters",
        ),
        (
            host.memory == "v1" or (host.memory and not host.counts_sockets),
            "kernel memory: socket buffers",
            apart if host.counts_sockets else "cgroup v1 without memory.kmem.tcp does not count them",
            "boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)",
        ),
        (
            0 < host.files < host.memory_bytes // OPEN_FILE_BYTES,
            "many open files",
            f"fs.file-max is {host.files} for all, and {files_mb} MB of memory "
            "can hold them (the greediest sandbox is killed when half are gone)",
            f"sysctl fs.file-max={UNLIMITED}: open files are charged to memory",
        ),
        (
            0 < host.filter_bytes < 4096 * FILTERS_BYTES,
            "many system call filters",
            f"net.core.bpf_jit_limit is {filters_mb} MB for all; {greedy} processes inside can take it with "
            "filters of their own (the greediest is killed when half is gone)",
            f"sysctl net.core.bpf_jit_limit={4096 * FILTERS_BYTES}",
        ),
        (
            host.receive_bytes > STOCK_RECEIVE_BYTES,
            "kernel memory: answers of netlink",
            f"net.core.rmem_max is {host.receive_bytes}: a sandbox may hold {held_mb} MB of them, "
            "which the kernel charges to nobody",
            f"sysctl net.core.rmem_max={STOCK_RECEIVE_BYTES}",
        ),
        (
            host.huge_pages,
            "huge pages",
            f"{host.huge_pages} are set aside, which no memory limit counts: one sandbox can take all",
            "sysctl vm.nr_hugepages=0 vm.nr_overcommit_hugepages=0",
        ),
        (
            not host.has_time_namespaces,
            "clocks of their own",
            "the kernel has no time namespaces: sandboxes see the host's uptime and share a file to lock",
            "use a kernel with CONFIG_TIME_NS",
        ),
    )


def _v1_counts_sockets() -> bool:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, options = line.split()[:4]
        if kind == "cgroup" and "memory" in options.split(","):
            return os.path.exists(f"{where}/memory.kmem.tcp.limit_in_bytes")
    return False


def _number(path: str) -> int:
    try:
        return int(text_of(path))
    except ValueError:
        return 0
