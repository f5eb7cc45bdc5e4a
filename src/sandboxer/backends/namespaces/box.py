"""Keeps one sandbox's record on disk, `run/<id>/box.json`.

Written before the first thing of a sandbox is made and after each change: whatever the server was doing when
it was killed, the next one finds every sandbox that owns anything, and what it had.

The next one tells by it whether a recorded process is still that process, on this boot.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import fields
from enum import StrEnum
from pathlib import Path

from sandboxer.backends.contract import Lack, Order, Resources
from sandboxer.backends.guest import INSIDE
from sandboxer.backends.namespaces.settings import WALLS_VERSION, NamespacesSettings
from sandboxer.backends.shared import opened
from sandboxer.kernel.errors import Broken
from sandboxer.kernel.values import is_sandbox_id, value_class

RECORD = "box.json"
RECORD_BYTES = 2048
SOCKET = "guest.sock"
# Named one by one up to here.
NAMED = 10


class Stage(StrEnum):
    # Owns whatever had been made when the server was last heard of; never answered to anyone.
    MAKING = "making"
    # A stopped one being started again: its disk must survive a failure.
    RESUMING = "resuming"
    RUNNING = "running"
    STOPPED = "stopped"


@value_class
class Box:
    sandbox_id: str
    stage: Stage
    # The very tree below its disk: the order's image, as it was when the disk was made.
    image: str
    hostname: str
    trust: str
    vcpus: float
    memory_mb: int
    disk_mb: int
    pids: int
    # Number of its uid range; None when it has none (stopped).
    slot: int | None
    pid: int = 0
    # Of that process, in clock ticks since boot: tells it from another one with its number.
    started: int = 0
    boot_id: str = ""
    # WALLS_VERSION of when it was started; a record without one is of before they were counted.
    walls: int = 1
    # (id, whether read-only) of what its processes have attached.
    volumes: tuple[tuple[str, bool], ...] = ()
    # Made before anyone asked, and nobody's yet: worth nothing once its server is gone.
    is_spare: bool = False

    @property
    def resources(self) -> Resources:
        return Resources(vcpus=self.vcpus, memory_mb=self.memory_mb, disk_mb=self.disk_mb, pids=self.pids)

    @property
    def holds_processes(self) -> bool:
        return self.stage is not Stage.STOPPED


_FIELDS = tuple(field.name for field in fields(Box))


def new_box(order: Order, slot: int, boot_id: str, *, image: str) -> Box:
    return Box(
        sandbox_id=order.sandbox_id,
        stage=Stage.MAKING,
        image=image,
        hostname=order.hostname,
        trust=order.trust.value,
        vcpus=order.resources.vcpus,
        memory_mb=order.resources.memory_mb,
        disk_mb=order.resources.disk_mb,
        pids=order.resources.pids,
        slot=slot,
        boot_id=boot_id,
        walls=WALLS_VERSION,
        volumes=tuple((one.volume_id, one.is_read_only) for one in order.volumes),
        is_spare=order.is_spare,
    )


class BoxFolder:
    """Manages `run/`: one folder per sandbox, closed to everyone but root."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Sockets are dialled through this: a deep state folder would not fit into an address.
        self._fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._fd)

    def folder(self, sandbox_id: str) -> Path:
        return self._path / sandbox_id

    def socket(self, sandbox_id: str) -> Path:
        return self._path / sandbox_id / SOCKET

    def dial_path(self, sandbox_id: str) -> str:
        return f"/proc/self/fd/{self._fd}/{sandbox_id}/{SOCKET}"

    def write(self, box: Box) -> None:
        """Writes a record in one write of a fixed size: if the server is killed, all of it is there or
        nothing. Not for the event loop: it waits while the host's journal is written, as every snapshot
        makes it be.
        """
        folder = str(self._path / box.sandbox_id)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        data = json.dumps({name: getattr(box, name) for name in _FIELDS}).encode().ljust(RECORD_BYTES)
        if len(data) > RECORD_BYTES:
            raise Broken(why=f"the record of {box.sandbox_id} has {len(data)} bytes")
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        with opened(f"{folder}/{RECORD}", flags, mode=0o600) as fd:
            if os.write(fd, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def read(self, sandbox_id: str) -> Box | None:
        """Reads a record; None when there is none, or when the server was killed before it was complete."""
        return read_box(self._path / sandbox_id)

    def remove(self, sandbox_id: str) -> None:
        folder = self._path / sandbox_id
        for name in (SOCKET, RECORD):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(folder / name)
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            pass
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)

    def remove_blank(self, sandbox_id: str) -> None:
        """Removes a folder as a killed server leaves it before it has written a record, or after it has
        removed one. A damaged record stays.
        """
        record = self.folder(sandbox_id) / RECORD
        with contextlib.suppress(FileNotFoundError):
            if record.stat().st_size:
                return
            record.unlink()
        with contextlib.suppress(OSError):
            # What else is in it is not ours to judge.
            os.rmdir(self.folder(sandbox_id))

    def ids(self) -> Iterator[str]:
        for entry in os.scandir(self._path):
            if is_sandbox_id(entry.name):
                yield entry.name


def read_box(folder: Path) -> Box | None:
    """Reads one record, without a server. Fields of a newer server are ignored: after a downgrade its
    sandboxes must be found, not removed. A word added to `Box` needs a default, for the same after an
    upgrade.
    """
    try:
        raw = json.loads((folder / RECORD).read_bytes())
        known = {name: raw[name] for name in _FIELDS if name in raw}
        volumes = tuple((id_, only) for id_, only in raw.get("volumes", ()))
        return Box(**{**known, "stage": Stage(raw["stage"]), "volumes": volumes})
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class DeathWatch:
    def __init__(self) -> None:
        self._fds: dict[str, int] = {}
        self._ended: asyncio.Queue[str] = asyncio.Queue()

    def watch(self, sandbox_id: str, pidfd: int) -> None:
        """Watches a process for its end, and closes the fd afterwards."""
        self.forget(sandbox_id)
        self._fds[sandbox_id] = pidfd
        asyncio.get_running_loop().add_reader(pidfd, self._hear, sandbox_id, pidfd)

    def forget(self, sandbox_id: str) -> None:
        """Stops watching a sandbox before it is ended on purpose, so that its end is not reported."""
        if (fd := self._fds.pop(sandbox_id, None)) is not None:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)

    def watches(self, sandbox_id: str) -> bool:
        return sandbox_id in self._fds

    async def ended(self) -> AsyncIterator[str]:
        while True:
            yield await self._ended.get()

    def close(self) -> None:
        for sandbox_id in list(self._fds):
            self.forget(sandbox_id)

    def _hear(self, sandbox_id: str, pidfd: int) -> None:
        if self._fds.get(sandbox_id) == pidfd:
            self.forget(sandbox_id)
            self._ended.put_nowait(sandbox_id)


def running_boxes(settings: NamespacesSettings) -> list[Box]:
    """Returns the sandboxes that run, by their records on disk. Changes nothing; an unreadable folder has
    none.
    """
    try:
        ids = sorted(name for name in os.listdir(settings.run_dir) if is_sandbox_id(name))
        found = [read_box(settings.run_dir / sandbox_id) for sandbox_id in ids]
    except OSError:
        return []
    boot = boot_id()
    return [box for box in found if box is not None and box.stage is Stage.RUNNING and box.boot_id == boot]


def is_behind(box: Box) -> bool:
    """Says whether a sandbox that runs was started behind older walls."""
    return box.walls < WALLS_VERSION


def lacks_description(box: Box) -> bool:
    """Says whether a supervisor from before sandboxes were told of themselves runs in it: nothing can be laid
    into it, and no socket of the platform. One whose processes cannot be looked at does not lack it.
    """
    try:
        mounted = Path(f"/proc/{box.pid}/mountinfo").read_text()
    except OSError:
        return False
    return all(line.split(" ")[4] != INSIDE for line in mounted.splitlines())


def lacks_of_older(boxes: Iterable[Box]) -> Iterator[Lack]:
    """Names the sandboxes that an older version started, by what they lack for it."""
    running = list(boxes)
    if behind := [box for box in running if is_behind(box)]:
        yield Lack(
            what="the newest walls",
            why=f"started before the last upgrade of the walls: {_named(behind)}",
            remedy="stop and resume each (or destroy it): it then starts behind the newest walls",
        )
    if untold := [box for box in running if lacks_description(box)]:
        yield Lack(
            what="the description inside",
            why=f"an older version started them, without {INSIDE} and its socket: {_named(untold)}",
            remedy="sandboxer stop ID; sandboxer resume ID  (each of them; or sandboxer recreate ID)",
        )


def _named(boxes: Sequence[Box]) -> str:
    more = f" and {len(boxes) - NAMED} more" if len(boxes) > NAMED else ""
    return ", ".join(box.sandbox_id for box in boxes[:NAMED]) + more
