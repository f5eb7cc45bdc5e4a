"""The clocks of a host whose server is another process: they go on truly, and a test sets them by a file."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path

from sandboxer.kernel.clock import HostTime, Reading


@dataclass(frozen=True)
class Readings:
    # By how much the wall clock is ahead of the truth.
    wall_ahead_s: float = 0
    boot_id: str = "first"
    # The host's own CLOCK_BOOTTIME at which this one counted from nothing.
    booted_at_us: int = 0


class ScriptedClocks(HostTime):
    """As the server reads them. A reboot ends the server, so only the wall clock is read anew each time."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self._booted_at_us = read_clocks(file).booted_at_us

    def read(self) -> Reading:
        reported, truth = read_clocks(self._file), super().read()
        wall = truth.wall + timedelta(seconds=reported.wall_ahead_s)
        return Reading(wall=wall, boot_us=self.boot_us(), boot_id=reported.boot_id)

    def boot_us(self) -> int:
        return super().boot_us() - self._booted_at_us


def read_clocks(file: Path) -> Readings:
    return Readings(**json.loads(file.read_text())) if file.exists() else Readings()


def set_wall(file: Path, ahead_s: float) -> None:
    _write(file, replace(read_clocks(file), wall_ahead_s=ahead_s))


def start_host_again(file: Path, *, takes_s: float) -> None:
    """Another boot id, a boot clock that begins again, and a wall clock that says how long it took."""
    before = read_clocks(file)
    _write(
        file,
        Readings(
            wall_ahead_s=before.wall_ahead_s + takes_s,
            boot_id=before.boot_id + "+",
            booted_at_us=time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000,
        ),
    )


def _write(file: Path, reported: Readings) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(reported)))
    os.rename(fresh, file)
