"""Claims of host uids, so that no two platforms on one host use the same.

The kernel counts inotify watches, timers and queues by uid: two sandboxes with one uid starve each other. A
claim is a lock on bytes of one file of the host, the byte's number being the uid, and holds as long as its
server (and the launcher's workers) live. Sandboxes outlive both; then their processes are the claim: a range
in which any process of this host runs is nobody's to take.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

CLAIMS = Path("/run/sandboxer")
_FILE = "uids"
# `struct flock` of 64-bit Linux.
_LOCK = struct.Struct("hhqqi4x")
_TABLES = (Path("/etc/subuid"), Path("/etc/subgid"))


class UidClaims:
    def __init__(self, folder: Path = CLAIMS) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Never removed: whoever made it anew would lock another file.
        self.fd = os.open(folder / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def close(self) -> None:
        os.close(self.fd)

    def claim(self, first: int, count: int) -> bool:
        """False: another platform has some of them, or something runs there."""
        if not self.claim_own(first, count):
            return False
        if is_anyone_in(first, count):
            self._set(fcntl.F_UNLCK, first, count)
            return False
        return True

    def claim_own(self, first: int, count: int) -> bool:
        """As `claim`, of uids that our own sandboxes have already."""
        try:
            self._set(fcntl.F_WRLCK, first, count)
        except BlockingIOError:
            return False
        return True

    def _set(self, kind: int, first: int, count: int) -> None:
        # Of the open file and not of the process: two platforms in one process are two.
        fcntl.fcntl(self.fd, fcntl.F_OFD_SETLK, _LOCK.pack(kind, os.SEEK_SET, first, count, 0))


def is_anyone_in(first: int, count: int) -> bool:
    """Whether any process of this host has a uid among these."""
    return any(first <= uid < first + count for _, uids in uids_of_processes() for uid in uids)


def uids_of_processes() -> Iterator[tuple[int, tuple[int, ...]]]:
    """Pid, and its real, effective, saved and file system uid.

    From `status`: the folder's owner is root where a process hides its memory, as every supervisor does.
    """
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError), open(f"/proc/{name}/status", "rb") as file:
            line = next((one for one in file if one.startswith(b"Uid:")), b"")
            yield int(name), tuple(int(word) for word in line.split()[1:5])


def overlaps(first: int, count: int, tables: tuple[Path, ...] = _TABLES) -> list[str]:
    """Lines of /etc/subuid and /etc/subgid that hand some of these ids to somebody else."""
    found = []
    for table in tables:
        try:
            lines = table.read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            words = line.split(":")
            if len(words) != 3 or not (words[1].isdigit() and words[2].isdigit()):
                continue
            start, length = int(words[1]), int(words[2])
            if start < first + count and first < start + length:
                found.append(f"{table}: {line}")
    return found
