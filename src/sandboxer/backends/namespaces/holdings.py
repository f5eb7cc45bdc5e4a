"""Manages what this backend has beside its sandboxes: the mark of the pool's owner, spare sandboxes, and
processes outside of every sandbox. Everything here blocks: callers run it in a thread.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from sandboxer.backends.namespaces.box import pidfd_of, started_at
from sandboxer.backends.namespaces.dependencies import BackendDependencies
from sandboxer.backends.namespaces.uids import uids_of_processes
from sandboxer.kernel.errors import Unavailable, host_exhausted

# In the pool's own folder; no id looks like it.
MARK = ".installation"
_MOST_BYTES = 4096
# What a sandbox's record, socket and folders take, and some.
_LEAST_FREE_BYTES = 256 * 1024
_LEAST_INODES = 16


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
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, text.encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(draft, place)

    def disks(self) -> list[str]:
        dependencies = self._dependencies
        return [*dependencies.pool.ids(), *dependencies.copies.ids(), *dependencies.pool.volume_ids()]

    def give_away(self, sandbox_id: str) -> None:
        box = self._dependencies.known.get(sandbox_id)
        if box is not None and box.is_spare:
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
            started = started_at(pid)
            if started is not None:
                strays[f"pid-{pid}-{started}"] = f"a process ({_name(pid)}): {why}"
        return strays

    def end_stray(self, stray_id: str) -> None:
        _, pid, started = stray_id.split("-")
        fd = pidfd_of(int(pid), int(started))
        if fd is None:
            return
        try:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)


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
