"""Stops sandboxes (the disk stays) and removes them (nothing stays)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from sandboxer.backends.namespaces.box import Box, Stage
from sandboxer.backends.namespaces.dependencies import BackendDependencies
from sandboxer.backends.reports import CleanupReport
from sandboxer.backends.shared import held, pidfd_of
from sandboxer.kernel.errors import Unavailable
from sandboxer.kernel.fairness import note_work
from sandboxer.kernel.tasks import in_thread

# A killed process ends at once, unless it sleeps in the kernel on a slow disk.
DEATH_TIMEOUT_S = 30.0
# Of a sandbox's processor time, what may not have been counted when it ends: one that lives shorter than the
# time between two looks is seen by none.
MOST_UNREAD_S = 0.5


class Ending:
    def __init__(self, dependencies: BackendDependencies) -> None:
        self._dependencies = dependencies

    async def remove(self, sandbox_id: str) -> CleanupReport:
        """Removes everything with this id, recorded or not, and says what was there. Gone already is
        success.
        """
        dependencies = self._dependencies
        dependencies.deaths.forget(sandbox_id)
        report = self._belongings(sandbox_id)
        is_shared = dependencies.heritages.is_shared(sandbox_id)
        await in_thread(dependencies.threads, self._remove_now, sandbox_id)
        if (box := dependencies.known.pop(sandbox_id, None)) is not None:
            self._release_running(box)
            dependencies.promised = dependencies.promised.with_disk(-box.disk_mb)
        if is_shared:
            # What others hold of it is now nobody's. Counted first: `promised` may change meanwhile.
            kept_mb = await in_thread(dependencies.threads, dependencies.counting.kept_mb)
            dependencies.promised = dependencies.promised.with_kept(kept_mb)
        return report

    def _belongings(self, sandbox_id: str) -> CleanupReport:
        """Returns what is about to be removed, and what stays: a volume is nobody's part."""
        box = self._dependencies.known.get(sandbox_id)
        has_processes = box is not None and self._dependencies.has_processes(box)
        there = {"processes": has_processes, "disk": os.path.isdir(self._dependencies.pool.path / sandbox_id)}
        return CleanupReport(
            removed=tuple(name for name, is_there in there.items() if is_there),
            left=tuple(id_ for id_, _ in box.volumes) if box is not None else (),
        )

    async def stop(self, sandbox_id: str, *, discards_disk: bool = False) -> None:
        """Stops a sandbox: no process is left, its disk is kept, its uid range is free for others.

        `discards_disk`: another takes its place, so nobody waits for what it holds unwritten.
        """
        dependencies = self._dependencies
        dependencies.deaths.forget(sandbox_id)
        box = dependencies.known[sandbox_id]
        stopped = replace(box, stage=Stage.STOPPED, slot=None, pid=0, started=0)
        await in_thread(dependencies.threads, self._stop_now, stopped, box if discards_disk else None)
        dependencies.known[sandbox_id] = stopped
        self._release_running(box)

    def _release_running(self, box: Box) -> None:
        dependencies = self._dependencies
        if dependencies.has_processes(box):
            dependencies.promised = dependencies.promised.with_running(box.resources, -1)
            if box.slot is not None:
                dependencies.ranges.give_back(box.slot)

    def _end_processes(self, sandbox_id: str) -> None:
        cgroups = self._dependencies.cgroups
        cgroups.kill(sandbox_id)
        if not cgroups.wait_empty(sandbox_id, DEATH_TIMEOUT_S):
            raise Unavailable(why=f"processes of {sandbox_id} did not end within {DEATH_TIMEOUT_S:g} s")
        note_work(min(cgroups.unread_s(sandbox_id), MOST_UNREAD_S))
        self._dependencies.launcher.forget(sandbox_id)
        cgroups.remove(sandbox_id)

    def _remove_now(self, sandbox_id: str) -> None:
        roots = self._hold_roots(self._dependencies.known.get(sandbox_id))
        try:
            self._end_processes(sandbox_id)
            self._dependencies.pool.remove_disk(sandbox_id)
            if sandbox_id in self._dependencies.heritages.known:
                self._dependencies.heritages.remove(sandbox_id)
            # Last: as long as anything is left, the record is.
            self._dependencies.boxes.remove(sandbox_id)
        finally:
            for root in roots:
                self._dependencies.unmounts.submit(os.close, root)

    def _hold_roots(self, box: Box | None) -> list[int]:
        """Opens what keeps a running sandbox's overlay mounted while its processes end. An overlay's last
        unmount writes out everything its pool holds unwritten, all tenants' data: a second or more, in which
        the exiting process could not end. Here somebody else closes it, when nobody waits any more.
        """
        dependencies = self._dependencies
        if box is None or not dependencies.has_processes(box):
            return []
        try:
            pidfd = pidfd_of(box.pid, box.started)
        except OSError:
            # It is only quicker with it.
            return []
        if pidfd is None:
            return []
        with held(pidfd):
            if dependencies.cgroups.sees_commands:
                return _roots([box.pid])
            # Of those that are its kernel one has the tree for its root.
            return _roots(dependencies.cgroups.first_processes(box.sandbox_id))

    def _stop_now(self, stopped: Box, held: Box | None) -> None:
        roots = self._hold_roots(held)
        try:
            self._end_processes(stopped.sandbox_id)
            self._dependencies.boxes.socket(stopped.sandbox_id).unlink(missing_ok=True)
            self._dependencies.boxes.write(stopped)
        finally:
            for root in roots:
                self._dependencies.unmounts.submit(os.close, root)


def _roots(pids: Sequence[int]) -> list[int]:
    """Opens the roots of processes, each root once."""
    found: dict[tuple[int, int], int] = {}
    for pid in pids:
        with suppress(OSError):
            fd = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            seen = os.fstat(fd)
            if found.setdefault((seen.st_dev, seen.st_ino), fd) != fd:
                os.close(fd)
    return list(found.values())
