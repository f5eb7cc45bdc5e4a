"""The shipped fake on a host that outlives its server: what it holds is in a file, as disks and processes
would be on a machine. Between two servers a test may look at it, and take something away."""

from __future__ import annotations

import os
import pickle
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

from sandboxer.backends.contract import Order, Presence
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.backends.scripted.box import Box
from sandboxer.backends.scripted.disk import Disk, ScriptedVolumes

# Everything that changes what the host holds.
CHANGES = (
    *(
        "provision",
        "teardown_with_report",
        "stop",
        "resume",
        "freeze",
        "thaw",
        "take",
        "restore",
        "drop",
        "resize",
    ),
    *("make_volume", "resize_volume", "take_volume", "restore_volume", "drop_volume", "set_mark"),
    *("give_away", "copy_kept", "fill_kept"),
)


@dataclass
class Held:
    """What is on the host while no server runs."""

    mark: str | None = None
    # A disk, and what became of the processes on it.
    boxes: dict[str, tuple[Order, Disk, Presence, str | None]] = field(default_factory=dict)
    kept: dict[str, Disk] = field(default_factory=dict)
    volumes: ScriptedVolumes = field(default_factory=ScriptedVolumes)

    def lose(self, sandbox_id: str) -> None:
        """A sandbox with its disk, and nobody is told."""
        del self.boxes[sandbox_id]
        self.volumes.detach(sandbox_id)

    def reboot(self) -> None:
        """Disks stay, processes do not."""
        for sandbox_id, (order, disk, _, _) in self.boxes.items():
            self.boxes[sandbox_id] = (order, disk, Presence.STOPPED, "host_rebooted")
            self.volumes.detach(sandbox_id)


def read_host(file: Path) -> Held:
    if not file.exists():
        return Held()
    held: Held = pickle.loads(file.read_bytes())
    return held


def write_host(file: Path, held: Held) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_bytes(pickle.dumps(held))
    os.rename(fresh, file)


class LastingHost(Scripted):
    """`at_step` is told before and after everything that changes the host; it may not return."""

    def __init__(self, file: Path, *, name: str, at_step: Callable[[], None]) -> None:
        super().__init__(name=name)
        self._file = file
        self._at_step = at_step
        held = read_host(file)
        self._mark, self.kept_disks, self._volumes = held.mark, held.kept, held.volumes
        for sandbox_id, (order, disk, presence, reason) in held.boxes.items():
            box = Box(order, self._clock, self._answers, disk, presence, reason)
            if presence is Presence.FROZEN:
                box.thawed.clear()
            self.boxes[sandbox_id] = box

    def write_down(self) -> None:
        boxes = {id_: (box.order, box.disk, box.presence, box.reason) for id_, box in self.boxes.items()}
        write_host(self._file, Held(self._mark, boxes, self.kept_disks, self._volumes))


def _lasting(name: str) -> Callable[..., Awaitable[Any]]:
    plain: Callable[..., Awaitable[Any]] = getattr(Scripted, name)

    @wraps(plain)
    async def change(self: LastingHost, *args: Any, **more: Any) -> Any:
        self._at_step()
        answer = await plain(self, *args, **more)
        self.write_down()
        self._at_step()
        return answer

    return change


for _name in CHANGES:
    setattr(LastingHost, _name, _lasting(_name))
