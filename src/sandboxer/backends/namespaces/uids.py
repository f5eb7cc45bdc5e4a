"""Gives each running sandbox 65,536 host uids, so that no two of them share one.

`UidClaims` claims host uids, so that no two platforms on one host use the same.

The kernel counts inotify watches, timers and queues by uid: two sandboxes with one uid starve each other. A
claim is a lock on bytes of one file of the host, the byte's number being the uid, and holds as long as its
server (and the launcher's workers) live. Sandboxes outlive both; then their processes are the claim: a range
in which any process of this host runs is nobody's to take.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import logging
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from sandboxer.kernel.errors import NoCapacity

log = logging.getLogger(__name__)
WIDTH = 65536
# Ranges that are claimed on the host at once: a claim looks at every process.
BLOCK = 64
CLAIMS = Path("/run/sandboxer")
_FILE = "uids"
# `struct flock` of 64-bit Linux.
_LOCK = struct.Struct("hhqqi4x")
_TABLES = (Path("/etc/subuid"), Path("/etc/subgid"))


class UidRanges:
    """Hands out numbered ranges from `base` upwards, lowest free first. On disk every file carries plain ids,
    so a range can be given to anyone as soon as its last process is gone.

    `claims` None: nobody else is on this host. Otherwise only ranges of blocks that are claimed are taken.
    """

    def __init__(self, base: int, count: int, claims: UidClaims | None = None) -> None:
        self._base = base
        self._count = count
        self._claims = claims
        self._free: list[int] = []
        self._acquired: set[int] = set()
        # Ranges in which a process of nobody's was seen at the start: not given away by this server.
        self._avoided: set[int] = set()
        self._blocks: set[int] = set()

    def take(self) -> int:
        """A free range's number."""
        while True:
            while self._free:
                slot = heapq.heappop(self._free)
                if slot not in self._acquired and slot not in self._avoided:
                    self._acquired.add(slot)
                    return slot
            self._open_block()

    def claim(self, slot: int) -> None:
        """One that a sandbox found alive already has."""
        self._acquired.add(slot)
        if (block := slot // BLOCK) in self._blocks:
            return
        if self._claims is None or self._claims.claim_own(*self._uids(block)):
            self._use(block)
        else:
            log.warning("uids %d… of a living sandbox are another platform's too", self.first_uid(slot))

    def avoid(self, uid: int) -> None:
        """A process has this host id: its range is not to be given away, whosever it is."""
        slot = (uid - self._base) // WIDTH
        if 0 <= slot < self._count:
            self._avoided.add(slot)

    def give_back(self, slot: int) -> None:
        if slot in self._acquired:
            self._acquired.discard(slot)
            if slot // BLOCK in self._blocks:
                heapq.heappush(self._free, slot)

    def first_uid(self, slot: int) -> int:
        return self._base + slot * WIDTH

    def owns(self, uid: int) -> bool:
        """Whether this host id is in a block that is ours alone."""
        return (uid - self._base) // (WIDTH * BLOCK) in self._blocks

    @property
    def acquired(self) -> frozenset[int]:
        return frozenset(self._acquired)

    def _open_block(self) -> None:
        """Claim the lowest block that nobody has. Raises NoCapacity."""
        others = 0
        for block in range(-(-self._count // BLOCK)):
            if block in self._blocks:
                continue
            if self._claims is None or self._claims.claim(*self._uids(block)):
                self._use(block)
                return
            others += 1
        why = f"all {self._count} are in use"
        if others:
            why += f", {others * BLOCK} of them by others on this host"
        raise NoCapacity(resource="uid ranges", why=why)

    def _use(self, block: int) -> None:
        self._blocks.add(block)
        for slot in range(block * BLOCK, min((block + 1) * BLOCK, self._count)):
            if slot not in self._acquired:
                heapq.heappush(self._free, slot)

    def _uids(self, block: int) -> tuple[int, int]:
        first = block * BLOCK
        return self.first_uid(first), (min(first + BLOCK, self._count) - first) * WIDTH


class UidClaims:
    def __init__(self, folder: Path = CLAIMS) -> None:
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        # The socket for users of this machine may be in it; the file of claims is root's alone.
        folder.chmod(0o711)
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
    """Says whether any process of this host has a uid among these."""
    return any(first <= uid < first + count for _, uids in uids_of_processes() for uid in uids)


def uids_of_processes() -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yields each pid with its real, effective, saved and file system uid.

    From `status`: the folder's owner is root where a process hides its memory, as every supervisor does.
    """
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError), open(f"/proc/{name}/status", "rb") as file:
            line = next((one for one in file if one.startswith(b"Uid:")), b"")
            yield int(name), tuple(int(word) for word in line.split()[1:5])


def overlaps(first: int, count: int, tables: tuple[Path, ...] = _TABLES) -> list[str]:
    """Returns lines of /etc/subuid and /etc/subgid that give some of these ids to somebody else."""
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
