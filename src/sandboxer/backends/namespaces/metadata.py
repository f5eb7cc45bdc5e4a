"""Keeps the last of the pool for metadata.

A limit keeps nobody from removing files, and who removes some of a disk of which there are copies has its
metadata written once more: by many copies any number of times. A file system whose metadata finds no place
turns read-only for everybody, and no server starts on it. So a pool that has little left for metadata is
given to nobody more, and when half of that is gone too, those whose disks grew most meanwhile are ended. Not
all are stopped instead: one tenant would keep everybody from making files.
"""

from __future__ import annotations

import logging

from sandboxer.backends.namespaces.dependencies import BackendDependencies

log = logging.getLogger(__name__)
# What the sandbox's record and event then say.
REASON = "pool_metadata"
# Growth that is worth ending somebody for.
GREW_BYTES = 1024 * 1024


def greediest(before: dict[str, int], now: dict[str, int]) -> list[str]:
    """Returns those whose disks grew most: at least half as much as that of the first of them."""
    grown = {name: held - before.get(name, held) for name, held in now.items()}
    most = max(grown.values(), default=0)
    return sorted(name for name, by in grown.items() if by >= max(GREW_BYTES, most // 2))


class MetadataGuard:
    def __init__(self, dependencies: BackendDependencies) -> None:
        self._dependencies = dependencies
        # What sandboxes held when the pool became tight.
        self._before: dict[str, int] | None = None

    def look(self, *, is_tight: bool, is_out: bool) -> None:
        """Ends who takes the last of it. Blocks; costs nothing while the pool is not tight."""
        if not is_tight:
            self._before = None
            return
        now = self._held_now()
        if self._before is None:
            self._before = now
        for sandbox_id in greediest(self._before, now) if is_out else ():
            log.error("%s takes the last of the storage pool that metadata needs: it is ended", sandbox_id)
            self._dependencies.ended_for[sandbox_id] = REASON
            self._dependencies.cgroups.kill(sandbox_id)
            del self._before[sandbox_id]

    def _held_now(self) -> dict[str, int]:
        """Returns what the kernel counts for each sandbox that runs, and for the volumes it writes to."""
        dependencies = self._dependencies
        return {
            box.sandbox_id: sum(
                dependencies.pool.usage(disk).used_bytes
                for disk in (box.sandbox_id, *(id_ for id_, is_read_only in box.volumes if not is_read_only))
            )
            for box in list(dependencies.known.values())
            if dependencies.has_processes(box)
        }
