"""Holds what an operator may decide about this backend, and what every sandbox is allowed and does not see.

Everything else is measured or derived. `guest/launcher/walls.c` enforces the walls.
"""

from __future__ import annotations

import hashlib
from dataclasses import field
from pathlib import Path

from sandboxer.backends.namespaces.uids import CLAIMS
from sandboxer.kernel.values import value_class

# Counted up with every change that makes a sandbox safer than those that run already. A sandbox keeps the
# walls it was started behind; `doctor` lists those behind older ones.
#   1 (or not recorded): the first walls
#   2: /dev, clocks and boot id of its own; the filter is an allow-list; counters of the host are covered
#   3: kernel memory that is charged to nobody: no mbind, small attributes, an end of files in /dev/shm,
#      few sockets whose buffers are not counted
#   4: memory, processors and load as they read them are its own, not the host's
WALLS_VERSION = 4

# Entries of /proc that reach into the host. Their permissions refuse us already (nobody inside is the host's
# root); covering them is the second wall.
_REACHING = ("kcore", "keys", "key-users", "sysrq-trigger", "timer_list", "kallsyms", "kmsg", "config.gz")
# What the host is made of, which nothing inside can use.
_OF_THE_MACHINE = (
    "acpi", "asound", "bus", "cmdline", "consoles", "driver", "dynamic_debug", "fb", "fs", "iomem",
    "ioports", "irq", "mdstat", "modules", "mtrr", "partitions", "scsi", "swaps", "tty",
)  # fmt: skip
# Counters of the whole host. They move with every tenant: two sandboxes that read the same learn that they
# share a host, and what the other does.
_COUNTING = (
    "buddyinfo", "cgroups", "diskstats", "interrupts", "kpagecgroup", "kpagecount", "kpageflags",
    "latency_stats", "locks", "pagetypeinfo", "pressure", "sched_debug", "schedstat", "slabinfo", "softirqs",
    "vmallocinfo", "vmstat", "zoneinfo", "sys/fs/aio-nr", "sys/fs/dentry-state", "sys/fs/file-nr",
    "sys/fs/inode-nr", "sys/fs/inode-state", "sys/kernel/pty/nr",
)  # fmt: skip
# Those that a kernel lacks are left out.
MASKED_PROC = (*_REACHING, *_OF_THE_MACHINE, *_COUNTING)

MB = 1024 * 1024
SMALLEST_SHM = 64 * MB


def shm_bytes(memory_mb: int) -> int:
    """The size of /dev/shm: part of the sandbox's memory, never all of it."""
    return max(SMALLEST_SHM, memory_mb * MB // 4)


@value_class
class Overcommit:
    """Says how many times over the host's memory, cpus, pids and disk may be promised. A disk that is used up
    all the same fails whoever writes; long before that nothing new is promised.
    """

    memory: float = 4.0
    cpu: float = 128.0
    pids: float = 8.0
    disk: float = 4.0


@value_class
class NamespacesSettings:
    state_dir: Path
    images_dir: Path
    # Where `launcher` and `supervisor` are.
    guest_dir: Path
    # The most that the loop file may grow to; None: what the disk has, less a reserve.
    pool_size_mb: int | None = None
    # Kept free in the pool for its own metadata.
    pool_headroom_mb: int = 256
    uid_base: int = 100_000_000
    uid_ranges: int = 8192
    # Of the host: platforms find each other's uids here.
    claims_dir: Path = CLAIMS
    overcommit: Overcommit = field(default_factory=Overcommit)
    # First folder below every cgroup hierarchy.
    cgroup_name: str = "sandboxer"
    boot_timeout_s: float = 10.0
    ptys: int = 64
    sigpending: int = 1024
    open_files: int = 1_048_576
    # File locks that one sandbox may hold: some 200 bytes of the kernel's memory each, charged to nobody.
    locks: int = 8192
    # Lines to one supervisor that may be open at once.
    streams: int = 128

    @property
    def run_dir(self) -> Path:
        return self.state_dir / "run"

    @property
    def pool_dir(self) -> Path:
        return self.state_dir / "pool"

    @property
    def kept_dir(self) -> Path:
        return self.state_dir / "kept"

    @property
    def scratch_dir(self) -> Path:
        return self.state_dir / "scratch"

    @property
    def tools_dir(self) -> Path:
        return self.state_dir / "tools"

    @property
    def pool_file(self) -> Path:
        return self.state_dir / "pool.btrfs"

    @property
    def cgroup_parent(self) -> str:
        """Returns a name for this state folder alone: another server on this host must not take our
        sandboxes for strays.
        """
        digest = hashlib.sha256(str(self.state_dir.resolve()).encode()).hexdigest()
        return f"{self.cgroup_name}/{digest[:12]}"
