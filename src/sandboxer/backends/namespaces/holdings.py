"""Manages what this backend has beside its sandboxes: the mark of the pool's owner, spare sandboxes, and
processes outside of every sandbox; and has some sandboxes come last on the processor. Who that is, is
decided above (`sandboxes/loops/precedence.py`): here sandboxes have no accounts. `parts_of` tries whether
sandboxes can be made at this moment: what was opened once may have failed since. Everything here blocks:
callers run it in a thread.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from sandboxer.backends.namespaces.box import Box
from sandboxer.backends.namespaces.dependencies import BackendDependencies
from sandboxer.backends.namespaces.pool import Pool
from sandboxer.backends.namespaces.uids import uids_of_processes
from sandboxer.backends.shared import held, opened, pidfd_of, started_at, write_there
from sandboxer.kernel.errors import Unavailable, host_exhausted
from sandboxer.kernel.tasks import beside

# In the pool's own folder; no id looks like it.
MARK = ".installation"
_MOST_BYTES = 4096
# What a sandbox's record, socket and folders take, and some.
_LEAST_FREE_BYTES = 256 * 1024
_LEAST_INODES = 16
# How long a launcher may be silent for a probe: a hundred launches at once on two cores keep an honest one
# from answering for seconds.
LAUNCHER_ANSWERS_WITHIN_S = 2.0


class Holdings:
    def __init__(self, dependencies: BackendDependencies) -> None:
        self._dependencies = dependencies

    def mark(self) -> str | None:
        try:
            with open(self._dependencies.pool.path / MARK, encoding="utf-8", errors="replace") as file:
                return file.read(_MOST_BYTES)
        except FileNotFoundError:
            return None

    def set_mark(self, text: str) -> None:
        place = self._dependencies.pool.path / MARK
        draft = place.with_name(MARK + ".new")
        with opened(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode=0o600) as fd:
            os.write(fd, text.encode())
            os.fsync(fd)
        os.rename(draft, place)

    def disks(self) -> list[str]:
        dependencies = self._dependencies
        return [*dependencies.pool.ids(), *dependencies.copies.ids(), *dependencies.pool.volume_ids()]

    def give_away(self, sandbox_id: str) -> None:
        if (box := self._dependencies.known.get(sandbox_id)) is not None and box.is_spare:
            given = self._dependencies.known[sandbox_id] = replace(box, is_spare=False)
            self._dependencies.boxes.write(given)

    def check_host(self) -> None:
        """Raises Unavailable if the next write of a create would certainly fail."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            for place in (self._dependencies.settings.run_dir, self._dependencies.pool.path):
                check_writable(os.statvfs(place))
        except OSError as error:
            raise host_exhausted(error) or Unavailable(why=f"a disk of the host: {error.strerror}") from error

    def strays(self) -> Mapping[str, str]:
        """Returns processes in the folder of all sandboxes instead of one's own, or with a uid of ours
        and in none of them.
        """
        dependencies = self._dependencies
        parents = dependencies.cgroups.in_parents()
        found = dict.fromkeys(parents, "it is in the cgroup above all sandboxes")
        for pid, uids in uids_of_processes():
            is_ours = pid not in found and any(map(dependencies.ranges.owns, uids))
            if is_ours and not dependencies.cgroups.is_in_a_sandbox(pid):
                found[pid] = "it has a uid of sandboxes, and is in none"
        strays = {}
        for pid, why in found.items():
            if (started := started_at(pid)) is not None:
                strays[f"pid-{pid}-{started}"] = f"a process ({_name(pid)}): {why}"
        return strays

    def end_stray(self, stray_id: str) -> None:
        _, pid, started = stray_id.split("-")
        if (fd := pidfd_of(int(pid), int(started))) is not None:
            with held(fd), suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)


def check_writable(seen: os.statvfs_result) -> None:
    """Raises OSError as the next write there would."""
    if seen.f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    # Inodes: 0 in all where a file system does not count them.
    if seen.f_bfree * seen.f_frsize < _LEAST_FREE_BYTES or (
        seen.f_files > 0 and seen.f_ffree < _LEAST_INODES
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return "".join(letter for letter in file.read(64).strip() if letter.isprintable())
    except OSError:
        return "?"


class Precedence:
    def __init__(self, dependencies: BackendDependencies) -> None:
        self._dependencies = dependencies
        # None: a server that was killed may have left some.
        self._last: frozenset[str] | None = None

    def of_all(self) -> float:
        return self._dependencies.cgroups.processor_s()

    def of_each(self) -> dict[str, float]:
        cgroups = self._dependencies.cgroups
        return {box.sandbox_id: cgroups.read_s(box.sandbox_id) for box in self._running()}

    def give_way(self, sandbox_ids: Collection[str]) -> None:
        cgroups = self._dependencies.cgroups
        if not cgroups.hierarchies.has("cpu"):
            return
        wanted = frozenset(sandbox_ids)
        for box in self._running():
            # Those that come last are told so each time: other limits for one end it.
            is_left = cgroups.is_last(box.sandbox_id) if self._last is None else box.sandbox_id in self._last
            if is_left or box.sandbox_id in wanted:
                with suppress(OSError):
                    cgroups.set_last(box.sandbox_id, box.sandbox_id in wanted, box.vcpus)
        self._last = wanted

    def _running(self) -> Iterator[Box]:
        for box in list(self._dependencies.known.values()):
            if self._dependencies.has_processes(box):
                yield box


def parts_of(dependencies: BackendDependencies) -> Mapping[str, Callable[[], Awaitable[None]]]:
    return {
        "pool": lambda: beside(lambda: try_pool(dependencies.pool)),
        "launcher": lambda: dependencies.launcher.ping(within_s=LAUNCHER_ANSWERS_WITHIN_S),
    }


def try_pool(pool: Pool) -> None:
    """Writes to the pool. Raises Unavailable saying what is wrong with it. Blocks."""
    try:
        is_ours = pool.is_in_place()
    except OSError as error:
        raise Unavailable(why=f"the storage pool does not answer: {error.strerror}") from error
    if not is_ours:
        raise Unavailable(why=f"the storage pool is not mounted at {pool.path}")
    write_there(pool.path)
