"""Copies of a kept disk made ahead of a batch, all in the same moment.

Each snapshot waits for a commit of the whole pool, and every commit makes the host write its journal, for
which everybody waits who makes a file. Those that begin at the same moment share one: a hundred take a few
commits instead of a hundred. Everything here blocks.
"""

from __future__ import annotations

import os
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from sandboxer.backends.namespaces.kept.copies import Copies
from sandboxer.backends.namespaces.pool import SPARE, Pool
from sandboxer.kernel.errors import NoCapacity

# For a hundred copies one thread took 100 commits, 32 took 6, a hundred took 4 and more time.
_AT_ONCE = 32


class Spares:
    def __init__(self, pool: Pool, copies: Copies) -> None:
        self._pool = pool
        self._copies = copies
        self._ready: dict[str, list[str]] = {}
        self._changing = threading.Lock()

    def names(self, disk_id: str, count: int) -> list[str]:
        """Of folders, chosen beforehand: whoever leaves while they are made still knows what to discard."""
        return [f"{SPARE}{disk_id}-{secrets.token_hex(8)}" for _ in range(count)]

    def make(self, disk_id: str, names: list[str]) -> None:
        """As many as the pool has room for: who finds none copies alone."""
        with ThreadPoolExecutor(min(len(names), _AT_ONCE), thread_name_prefix="spares") as threads:
            made = [name for name in threads.map(lambda name: self._make_one(disk_id, name), names) if name]
        with self._changing:
            self._ready.setdefault(disk_id, []).extend(made)

    def has(self, disk_id: str) -> bool:
        return bool(self._ready.get(disk_id))

    def take(self, disk_id: str, disk: Path) -> bool:
        """Whether a spare copy of this kept disk is now at `disk`."""
        with self._changing:
            ready = self._ready.get(disk_id)
            name = ready.pop() if ready else None
        if name is None:
            return False
        try:
            os.rename(self._pool.path / name / "disk", disk)
        finally:
            # Nobody else knows of it any more: its empty folder, or all of it if it could not be moved.
            self._pool.remove_copy(name)
        return True

    def discard(self, disk_id: str, names: list[str]) -> None:
        """Remove those of them that nobody took."""
        with self._changing:
            ready = self._ready.pop(disk_id, [])
            left = set(names) & set(ready)
            if others := [name for name in ready if name not in left]:
                self._ready[disk_id] = others
        for name in left:
            self._pool.remove_copy(name)

    def _make_one(self, disk_id: str, name: str) -> str | None:
        with suppress(OSError, NoCapacity):
            self._copies.copy_to(disk_id, name)
            return name
        self._pool.remove_copy(name)
        return None
