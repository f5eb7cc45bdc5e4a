"""Says what every sandbox is allowed, and what is hidden from it; `guest/launcher/walls.c` enforces it."""

from __future__ import annotations

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

# Counted up with every change that makes a sandbox safer than those that run already. A sandbox keeps the
# walls it was started behind; `doctor` lists those behind older ones.
#   1 (or not recorded): the first walls
#   2: /dev, clocks and boot id of its own; the filter is an allow-list; counters of the host are covered
#   3: kernel memory that is charged to nobody: no mbind, small attributes, an end of files in /dev/shm,
#      few sockets whose buffers are not counted
WALLS_VERSION = 3

# Entries of /proc that reach into the host. Their permissions refuse us already (nobody inside is the host's
# root); covering them is the second wall.
_REACHING = ("kcore", "keys", "key-users", "sysrq-trigger", "timer_list", "kallsyms", "kmsg", "config.gz")
# What the host is made of, which nothing inside can use.
_OF_THE_MACHINE = (
    "acpi", "asound", "bus", "cmdline", "consoles", "driver", "dynamic_debug", "fb", "fs", "iomem",
    "ioports", "irq", "mdstat", "modules", "mtrr", "partitions", "scsi", "swaps", "tty",
)  # fmt: skip
# Counters of the whole host. They move with every tenant: two sandboxes that read the same learn that they
# share a host, and what the other does. `stat`, `meminfo` and `loadavg` stay: nproc, free and top need them.
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
