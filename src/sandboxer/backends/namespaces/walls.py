"""What every sandbox is allowed, and what is hidden from it; `guest/launcher/walls.c` puts it up."""

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

# Entries of /proc that tell of the host or reach into it. Their permissions refuse us already (nobody inside
# is the host's root); covering them is the second wall. Those a kernel lacks are left out.
MASKED_PROC = ("kcore", "keys", "key-users", "sysrq-trigger", "timer_list", "kallsyms", "kmsg", "cmdline")

MB = 1024 * 1024
SMALLEST_SHM = 64 * MB


def shm_bytes(memory_mb: int) -> int:
    """The size of /dev/shm: part of the sandbox's memory, never all of it."""
    return max(SMALLEST_SHM, memory_mb * MB // 4)
