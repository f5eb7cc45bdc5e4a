"""Keeps what runs behind gVisor: its whole state, as gVisor writes it (`runsc checkpoint`), in a folder named
as the kept disk. Everything here blocks: callers run it in a thread.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Collection

from sandboxer.backends.oci.starter import OciSettings
from sandboxer.kernel.errors import Conflict, Unavailable

# A gigabyte of memory takes some seconds on a slow disk.
SAVE_TIMEOUT_S = 300.0


class MemoryFolder:
    def __init__(self, settings: OciSettings) -> None:
        self._settings = settings
        settings.memory_dir.mkdir(mode=0o700, parents=True, exist_ok=True)

    def save(self, sandbox_id: str, disk_id: str) -> int:
        """Writes the state of a sandbox that stands still, and leaves it standing. Returns its bytes. Raises
        Unavailable, and nothing is left then.
        """
        place = self._settings.memory_dir / disk_id
        try:
            place.mkdir(mode=0o700)
        except FileExistsError:
            raise Conflict(why=f"{disk_id} exists already") from None
        argv = [*self._settings.argv(sandbox_id), "checkpoint", "--leave-running", "--compression=none"]
        try:
            self._run([*argv, "--image-path", str(place), sandbox_id])
            # Who restores it speaks with the same supervisor, which remembers this one.
            shutil.copyfile(self._settings.bundle(sandbox_id) / "secret", place / "secret")
            return sum(file.stat().st_size for file in place.iterdir())
        except BaseException:
            self.drop(disk_id)
            raise

    def drop(self, disk_id: str) -> None:
        """Gone already is success."""
        shutil.rmtree(self._settings.memory_dir / disk_id, ignore_errors=True)

    def sweep(self, kept: Collection[str]) -> None:
        """Removes what a killed server left of kept disks that are no more, or never were."""
        for place in self._settings.memory_dir.iterdir():
            if place.name not in kept:
                self.drop(place.name)

    def _run(self, argv: list[str]) -> None:
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=SAVE_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(why=f"gVisor did not save it within {SAVE_TIMEOUT_S:g} s") from None
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            raise Unavailable(why=f"gVisor could not save it: {said[-400:] or done.returncode}")
