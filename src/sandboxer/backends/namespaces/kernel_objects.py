"""Kernel objects that no limit of a sandbox covers: who holds too much of them. Counted by `object_watch`.

File locks are charged to nobody. Open files and the code of filters come out of one budget of the host each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

# Locks on inodes that all tenants share (eventfd, epoll, timerfd are one): nobody needs any.
SHARED_LOCKS = 32
# A budget of the whole host is looked at from this part of it on, and who then holds this part has too much.
WORTH_A_LOOK = 0.5
TOO_MUCH = 1 / 32
# What one filter of the longest kind takes at most.
FILTER_BYTES = 4096 * 8


@dataclass(frozen=True, slots=True)
class FileLock:
    # On the host; -1 where the kernel knows none (locks of an open file, not of a process).
    pid: int
    # Major and minor number of the file system, as in mountinfo, but in hexadecimal.
    device: str


@dataclass(frozen=True, slots=True)
class Excess:
    """A sandbox that holds too much of something, and which of its processes do, if the kernel tells."""

    sandbox_id: str
    count: int
    pids: tuple[int, ...]


def read_locks(text: str) -> Iterator[FileLock]:
    """Of /proc/locks. `1: POSIX ADVISORY WRITE 123 00:2f:77 0 EOF`, with `->` before a waiting one."""
    for line in text.splitlines():
        words = [word for word in line.split() if word != "->"]
        if len(words) >= 6:
            device, _, _ = words[5].rpartition(":")
            yield FileLock(int(words[4]), device)


def excessive_locks(
    locks: Iterable[FileLock],
    *,
    owner_of_device: Mapping[str, str],
    owner_of_pid: Callable[[int], str | None],
    limit: int,
) -> list[Excess]:
    """Who holds more than `limit`, or more than a few on inodes that are not a sandbox's own. By the file
    system a lock is on, which is a sandbox's own; else by the process that took it."""
    own: Counter[str] = Counter()
    foreign: Counter[str] = Counter()
    by_pid: dict[str, Counter[int]] = {}
    known: dict[int, str | None] = {}
    for lock in locks:
        owner = owner_of_device.get(lock.device)
        count = own
        if owner is None:
            if lock.pid not in known:
                known[lock.pid] = owner_of_pid(lock.pid) if lock.pid > 0 else None
            owner, count = known[lock.pid], foreign
        if owner is not None:
            count[owner] += 1
            by_pid.setdefault(owner, Counter())[lock.pid] += 1
    greedy = [
        owner for owner in by_pid if own[owner] + foreign[owner] > limit or foreign[owner] > SHARED_LOCKS
    ]
    return [_excess(owner, by_pid[owner], limit) for owner in sorted(greedy)]


def _excess(owner: str, by_pid: Counter[int], limit: int) -> Excess:
    """Its processes with the most, until the rest is no longer too much."""
    total = left = by_pid.total()
    pids = []
    for pid, count in by_pid.most_common():
        if pid <= 0:
            continue
        pids.append(pid)
        left -= count
        if left <= limit // 2:
            break
    # Not to be had from those it names: then all of it.
    return Excess(owner, total, tuple(pids) if left <= limit else ())


def excessive_part(used: int, most: int, held: Mapping[str, Counter[int]]) -> Excess | None:
    """The sandbox with the most of a budget of the whole host, if that runs out and it holds a good part."""
    if not held or used < most * WORTH_A_LOOK:
        return None
    owner, by_pid = max(held.items(), key=lambda item: item[1].total())
    if by_pid.total() < most * TOO_MUCH:
        return None
    return _excess(owner, by_pid, int(most * TOO_MUCH))
