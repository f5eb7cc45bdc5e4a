"""Counts what sandboxes make the kernel hold beyond their memory limit, and kills those that hold too much.
Cheap as long as none does: two small files are read ten times a second. The owner of a lock is looked up only
when there are more locks than one sandbox may have.

Who holds too much of what no limit of a sandbox covers is decided by plain functions, `excessive_…`. File
locks are charged to nobody. Open files and the code of filters come out of one budget of the host each.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from sandboxer.backends.namespaces.box import Box
from sandboxer.backends.namespaces.dependencies import BackendDependencies
from sandboxer.backends.shared import held, opened, text_of
from sandboxer.kernel.tasks import in_thread
from sandboxer.kernel.values import brief_value_class

# What a sandbox takes between two looks is what this costs: see decision 0023 for measurements.
INTERVAL_S = 0.1
# Between looks at the code of filters, of which the kernel keeps no sum; and at most after a look that found
# many locks and nobody who holds too many, which is followed by a rest of so many times what it took.
REST_S = 5.0
REST_FOR_EACH = 20
LOCKS = "/proc/locks"
log = logging.getLogger(__name__)
# Locks on inodes that all tenants share (eventfd, epoll, timerfd are one): nobody needs any.
SHARED_LOCKS = 32
# A budget of the whole host is looked at from this part of it on, and who then holds this part has too much.
WORTH_A_LOOK = 0.5
TOO_MUCH = 1 / 32
# What one filter of the longest kind takes at most.
FILTER_BYTES = 4096 * 8


@brief_value_class
class FileLock:
    # On the host; -1 where the kernel knows none (locks of an open file, not of a process).
    pid: int
    # Major and minor number of the file system, as in mountinfo, but in hexadecimal.
    device: str


@brief_value_class
class Excess:
    """Names a sandbox that holds too much of something, and which of its processes do, if the kernel
    tells.
    """

    sandbox_id: str
    count: int
    pids: tuple[int, ...]


class ObjectWatch:
    def __init__(self, dependencies: BackendDependencies) -> None:
        self._dependencies = dependencies
        # Devices of a sandbox's mounts, by its first process: nobody inside can mount, so they never change.
        self._devices: dict[tuple[str, int], tuple[str, ...]] = {}
        self._shared = _shared_inode()
        self._locks_again_at = 0.0
        self._filters_again_at = 0.0

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                for excess, what in await in_thread(self._dependencies.threads, self.look_now):
                    words = (excess.sandbox_id, excess.count, what, excess.pids or "all commands")
                    log.warning("%s holds %d %s, beyond what one sandbox may: killing %s", *words)
                    await in_thread(self._dependencies.threads, self.end_now, excess)
            except (OSError, ValueError) as error:
                log.warning("kernel objects could not be counted: %r", error)

    def look_now(self) -> list[tuple[Excess, str]]:
        """Blocks."""
        found = [(excess, "file locks") for excess in self.locks_now()]
        found += [(excess, "open files") for excess in self._part_now(*host_files(), _open_files)]
        if time.monotonic() >= self._filters_again_at:
            self._filters_again_at = time.monotonic() + REST_S
            held = self._part_now(*host_filter_bytes(), _filter_bytes)
            found += [(excess, "bytes of system call filters") for excess in held]
        return found

    def _part_now(self, used: int, most: int, held_by: Callable[[int], int]) -> list[Excess]:
        if used < most * WORTH_A_LOOK:
            return []
        held = {
            box.sandbox_id: Counter({pid: held_by(pid) for pid in self._processes(box.sandbox_id)})
            for box in self._running()
        }
        excess = excessive_part(used, most, held)
        return [excess] if excess else []

    def locks_now(self) -> list[Excess]:
        limit = self._dependencies.settings.locks
        if (began := time.monotonic()) < self._locks_again_at:
            return []
        # The kernel walks its whole list again for each page that is read (ten thousand lines take 10 ms,
        # thirty thousand 500): no more than tells who is greedy. The newest come first.
        text = _beginning(LOCKS, limit + limit // 4)
        if (count := text.count("\n")) <= limit and text.count(self._shared) <= SHARED_LOCKS:
            return []
        found = excessive_locks(
            read_locks(text),
            owner_of_device=self._owners_of_devices(),
            owner_of_pid=self._owner_of_pid,
            limit=limit,
            is_cut=count >= limit + limit // 4,
        )
        if not found and text.count(self._shared) > SHARED_LOCKS:
            # Locks of open files name no process: look at what each has open.
            found = list(self._holders_of_shared())
        if not found:
            # Those below the limit may go on to take what they like: no longer than the look is worth.
            rest_s = min(REST_S, (time.monotonic() - began) * REST_FOR_EACH)
            self._locks_again_at = time.monotonic() + rest_s
        return found

    def end_now(self, excess: Excess) -> None:
        """Kills those processes, or, where the kernel does not say which, every command of that sandbox."""
        cgroups = self._dependencies.cgroups
        cgroups.object_kills[excess.sandbox_id] += 1
        for pid in excess.pids:
            with contextlib.suppress(ProcessLookupError), held(os.pidfd_open(pid)) as process:
                # Its number may be another's by now.
                if self._owner_of_pid(pid) == excess.sandbox_id:
                    signal.pidfd_send_signal(process, signal.SIGKILL)
        if not excess.pids:
            for command in cgroups.commands(excess.sandbox_id):
                cgroups.kill_command(excess.sandbox_id, command)

    def _running(self) -> list[Box]:
        boxes = list(self._dependencies.known.values())
        return [box for box in boxes if box.pid and self._dependencies.has_processes(box)]

    def _owners_of_devices(self) -> dict[str, str]:
        owners: dict[str, str] = {}
        fresh: dict[tuple[str, int], tuple[str, ...]] = {}
        for box in self._running():
            key = (box.sandbox_id, box.pid)
            fresh[key] = self._devices.get(key) or _devices_of(box.pid)
            owners.update(dict.fromkeys(fresh[key], box.sandbox_id))
        self._devices = fresh
        return owners

    def _owner_of_pid(self, pid: int) -> str | None:
        places = text_of(f"/proc/{pid}/cgroup")
        found = re.search(re.escape(self._dependencies.settings.cgroup_parent) + r"/([a-z0-9_]+)", places)
        return found[1] if found and found[1] in self._dependencies.known else None

    def _holders_of_shared(self) -> Iterator[Excess]:
        for box in self._running():
            held = Counter({pid: _shared_locks(pid, self._shared) for pid in self._processes(box.sandbox_id)})
            if held.total() > SHARED_LOCKS:
                yield Excess(box.sandbox_id, held.total(), tuple(pid for pid in held if held[pid]))

    def _processes(self, sandbox_id: str) -> list[int]:
        """Returns the processes of its commands, never its first process; where none of them is the host's,
        the one that is their kernel, which opens files for all.
        """
        dependencies = self._dependencies
        if dependencies.cgroups.sees_commands:
            return dependencies.cgroups.processes(sandbox_id)
        box = dependencies.known.get(sandbox_id)
        return [box.pid] if box is not None and box.pid else []


def host_files() -> tuple[int, int]:
    """Returns how many files are open on this host, and how many may be."""
    used, _, most = Path("/proc/sys/fs/file-nr").read_text().split()
    return int(used), int(most)


def host_filter_bytes() -> tuple[int, int]:
    """Returns how much filter code the kernel holds, and how much it allows all users but root."""
    try:
        most = int(Path("/proc/sys/net/core/bpf_jit_limit").read_text())
        lines = Path("/proc/vmallocinfo").read_text().splitlines()
    except OSError:
        return 0, 1
    return sum(int(line.split()[1]) for line in lines if "bpf_prog_pack" in line or "bpf_jit" in line), most


def _filter_bytes(pid: int) -> int:
    """Returns at most how many bytes of filters a sandbox has. Every process has one from us."""
    found = re.search(r"^Seccomp_filters:\s*(\d+)", text_of(f"/proc/{pid}/status"), re.MULTILINE)
    return max(0, int(found[1]) - 1) * FILTER_BYTES if found else 0


def _shared_inode() -> str:
    """Returns the inode that all eventfds, epolls and timers share, as /proc/locks writes it."""
    with held(os.eventfd(0)) as fd:
        seen = os.fstat(fd)
        return f" {os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino} "


def _devices_of(pid: int) -> tuple[str, ...]:
    lines = text_of(f"/proc/{pid}/mountinfo").splitlines()
    numbers = {tuple(map(int, line.split()[2].split(":"))) for line in lines}
    return tuple(f"{major:02x}:{minor:02x}" for major, minor in numbers)


def _open_files(pid: int) -> int:
    try:
        # Counted by kernels since 6.2; older ones say 0.
        return os.stat(f"/proc/{pid}/fd").st_size or len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _shared_locks(pid: int, shared: str) -> int:
    count = 0
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fdinfo"):
            with contextlib.suppress(OSError):
                text = _beginning(f"/proc/{pid}/fdinfo/{name}", 2 * SHARED_LOCKS)
                count += sum(shared in line for line in text.splitlines() if line.startswith("lock:"))
    return count


def _beginning(path: str, lines: int) -> str:
    """Reads the first lines of a file, and perhaps some more."""
    pieces = bytearray()
    read = 0
    with opened(path, os.O_RDONLY | os.O_CLOEXEC) as fd:
        while read < lines and (piece := os.read(fd, 65536)):
            pieces += piece
            read += piece.count(b"\n")
    # The last line may be half of one.
    return pieces[: pieces.rfind(b"\n") + 1].decode()


def read_locks(text: str) -> Iterator[FileLock]:
    """Parses /proc/locks. `1: POSIX ADVISORY WRITE 123 00:2f:77 0 EOF`, with `->` before a waiting one."""
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
    is_cut: bool = False,
) -> list[Excess]:
    """Returns the sandboxes that hold more than `limit` locks, or more than a few on inodes that are not
    their own. A lock belongs to the sandbox whose file system it is on, otherwise to that of the process that
    took it.

    `is_cut`: there are more than these, the newest. Who has half the limit of them has too many, and every
    process that took part is named: what else it holds was not read.
    """
    limit = limit // 2 if is_cut else limit
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
    rest = SHARED_LOCKS if is_cut else limit // 2
    return [_excess(owner, by_pid[owner], limit, rest) for owner in sorted(greedy)]


def _excess(owner: str, by_pid: Counter[int], limit: int, rest: int) -> Excess:
    """Picks the processes with the most, until the others hold no more than `rest`."""
    total = left = by_pid.total()
    pids = []
    for pid, count in by_pid.most_common():
        if pid <= 0:
            continue
        pids.append(pid)
        left -= count
        if left <= rest:
            break
    # Not to be had from those it names: then all of it.
    return Excess(owner, total, tuple(pids) if left <= limit else ())


def excessive_part(used: int, most: int, held: Mapping[str, Counter[int]]) -> Excess | None:
    """Returns the sandbox that holds the most of a budget of the whole host, if that runs out and it
    holds a large part.
    """
    if not held or used < most * WORTH_A_LOOK:
        return None
    owner, by_pid = max(held.items(), key=lambda item: item[1].total())
    if by_pid.total() < most * TOO_MUCH:
        return None
    limit = int(most * TOO_MUCH)
    return _excess(owner, by_pid, limit, limit // 2)
