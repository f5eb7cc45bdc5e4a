"""Ending sandboxes: stopping (the disk stays) and removing (nothing stays)."""

from __future__ import annotations

from dataclasses import replace

from sandboxer.backends.namespaces.box import Box, Stage
from sandboxer.backends.namespaces.ground import Ground
from sandboxer.backends.namespaces.settled import in_thread
from sandboxer.kernel.errors import Unavailable

# A killed process ends at once, unless it sleeps in the kernel on a slow disk.
DEATH_TIMEOUT_S = 30.0


class Ending:
    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    async def remove(self, sandbox_id: str) -> None:
        """Everything with this id, recorded or not. Gone already is success."""
        ground = self._ground
        ground.deaths.forget(sandbox_id)
        await in_thread(ground.threads, self._remove_now, sandbox_id)
        box = ground.known.pop(sandbox_id, None)
        if box is not None:
            self._release_running(box)
            ground.promised = ground.promised.with_disk(box.resources, -1)

    async def stop(self, sandbox_id: str) -> None:
        """No process left, its disk kept, its uid range free for others."""
        ground = self._ground
        ground.deaths.forget(sandbox_id)
        box = ground.known[sandbox_id]
        stopped = replace(box, stage=Stage.STOPPED, slot=None, pid=0, started=0)
        await in_thread(ground.threads, self._stop_now, stopped)
        ground.known[sandbox_id] = stopped
        self._release_running(box)

    def _release_running(self, box: Box) -> None:
        ground = self._ground
        if ground.has_processes(box):
            ground.promised = ground.promised.with_running(box.resources, -1)
            if box.slot is not None:
                ground.ranges.give_back(box.slot)

    def _end_processes(self, sandbox_id: str) -> None:
        cgroups = self._ground.cgroups
        cgroups.kill(sandbox_id)
        if not cgroups.wait_empty(sandbox_id, DEATH_TIMEOUT_S):
            raise Unavailable(why=f"processes of {sandbox_id} did not end within {DEATH_TIMEOUT_S:g} s")
        cgroups.remove(sandbox_id)

    def _remove_now(self, sandbox_id: str) -> None:
        self._end_processes(sandbox_id)
        self._ground.pool.remove_disk(sandbox_id)
        # Last: as long as anything is left, the record is.
        self._ground.boxes.remove(sandbox_id)

    def _stop_now(self, stopped: Box) -> None:
        self._end_processes(stopped.sandbox_id)
        self._ground.boxes.socket(stopped.sandbox_id).unlink(missing_ok=True)
        self._ground.boxes.write(stopped)
