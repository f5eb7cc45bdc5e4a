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
        # Any other error (no descriptors left) says nothing about the process: a living one must not be taken
        # for dead, and be ended for it.
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    try:
        is_alive = started_at(pid) == started
    except BaseException:
        os.close(fd)
        raise
    if is_alive:
        return fd
    os.close(fd)
    return None


def started_at(pid: int) -> int | None:
    """When the process with this number began, in clock ticks since boot; None when it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    return None if fields[0].decode() in _ENDED else int(fields[19])
