"""Telling whether a recorded process is still that process, on this boot."""

from __future__ import annotations

import os
from pathlib import Path

# State letters of a process that has ended but was not reaped.
_ENDED = frozenset("ZXx")


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def pidfd_of(pid: int, started: int) -> int | None:
    """An fd of the very process that was recorded, None when it has ended. A pid is reused, and a zombie
    keeps both pid and start time: neither alone proves life."""
    if pid <= 0:
        return None
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return None
    if _is_alive(pid, started):
        return fd
    os.close(fd)
    return None


def _is_alive(pid: int, started: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return False
    fields = text[text.rindex(b")") + 2 :].split()
    return fields[0].decode() not in _ENDED and int(fields[19]) == started
