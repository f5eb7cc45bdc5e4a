"""Defines what a backend must do. Every one implements `Backend`; what is optional is its own protocol.

A backend never sees the store: it receives an `Order`, returns a `Handle` that someone else keeps, and must
be able to find (`recover`, `inventory`) and remove (`teardown`) a sandbox from its id and handle alone, after
a crash of the server at any instruction. All resources it makes are named after the sandbox id.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from sandboxer.backends.guest import FirstFile, FolderMount, Guest
from sandboxer.kernel.values import value_class


class Trust(StrEnum):
    ZERO = "zero"
    SEMI = "semi"


class Wall(StrEnum):
    """A kind of isolation that a profile can demand and that a host may lack."""

    FILES = "files"
    PROCESSES = "processes"
    NETWORK = "network"
    CAPABILITIES = "capabilities"
    SYSCALLS = "syscalls"
    UID_RANGE = "uid_range"
    MEMORY = "memory"
    CPU = "cpu"
    PIDS = "pids"
    DISK = "disk"
    IO = "io"


@value_class
class Resources:
    vcpus: float
    memory_mb: int
    disk_mb: int
    pids: int


@value_class
class VolumeMount:
    """A volume (see `Volumes`) as a sandbox sees it."""

    volume_id: str
    # Absolute, without links on the way; made where nothing is.
    path: str
    is_read_only: bool = False


@value_class
class Order:
    """Holds all a backend needs to make one sandbox. Per-command things (env, cwd) are not part of it."""

    sandbox_id: str
    image: str
    resources: Resources
    trust: Trust
    # Empty: the backend makes one from the id, so that no two sandboxes have the same.
    hostname: str = ""
    # Id of the kept disk (see `Snapshots`) that its own begins as a copy of; None: the image alone. What must
    # differ between any two sandboxes is made anew in the copy. `image` is the backend's to know then.
    origin: str | None = None
    # There from its first process on, until it is stopped or gone.
    volumes: tuple[VolumeMount, ...] = ()
    folders: tuple[FolderMount, ...] = ()
    # Made before anyone asked for it (see `Spares`).
    is_spare: bool = False
    # Programs in it may make user and mount namespaces of their own, as builders of images do.
    nests: bool = False
    # Of those that its fingerprint tells of (facts `gpus`, `gpu`).
    gpus: int = 0
    # What its disk has from the first (see `shared.BeginsWithFiles`), unless it begins as a copy.
    files: tuple[FirstFile, ...] = ()


@value_class
class Handle:
    """Holds what the server keeps to find a sandbox again. `data` is the backend's own, JSON values only."""

    sandbox_id: str
    backend: str
    version: int
    data: Mapping[str, object] = field(default_factory=dict)


class Presence(StrEnum):
    RUNNING = "running"
    FROZEN = "frozen"
    # The disk is there, no process is.
    STOPPED = "stopped"
    GONE = "gone"


@value_class
class Observation:
    presence: Presence
    # Why it is not running, when it should be: "host_rebooted", "exited", "oom_killed", "pool_metadata", …
    reason: str | None = None
    # The last moment it was known alive, when the backend knows better than "now".
    last_seen_alive: datetime | None = None


@value_class
class Usage:
    cpu_s: float
    memory_bytes: int
    memory_limit_bytes: int
    disk_bytes: int
    disk_limit_bytes: int
    processes: int
    processes_limit: int


@value_class
class Lack:
    """Names something this host cannot do, why, and what to do about it."""

    what: str
    why: str
    remedy: str


@value_class
class Fingerprint:
    """Describes what this host can do now (capabilities say what the backend could ever do)."""

    healthy: bool
    walls: frozenset[Wall]
    facts: Mapping[str, str]
    lacks: Sequence[Lack] = ()


@value_class
class Capacity:
    """Describes what a host may promise in all (with overcommit), what is promised, and its storage pool."""

    total: Resources
    promised: Resources
    storage_kind: str
    storage_size_mb: int
    storage_used_mb: int
    # What it may grow to now.
    storage_most_mb: int


class Backend(Protocol):
    @property
    def name(self) -> str:
        """Returns the id that profiles use, `ext.<something>`."""

    async def fingerprint(self) -> Fingerprint: ...

    async def provision(self, order: Order) -> Handle:
        """Makes a sandbox and returns once its supervisor answers. On any failure or cancellation nothing is
        left.

        Raises NoCapacity before anything is made when the host's budgets do not allow the order,
        ProvisionFailed when a step failed.
        """

    async def recover(self, handle: Handle) -> Observation:
        """Says what became of a sandbox. Never raises for one that is gone."""

    async def inventory(self) -> Sequence[str]:
        """Returns the ids of all sandboxes that own anything on this host, half-made ones included."""

    async def guest(self, handle: Handle) -> Guest:
        """Returns a connection to the supervisor inside. Cheap; may be called for every request. Raises
        BackendLost.
        """

    async def usage(self, handle: Handle) -> Usage: ...

    async def teardown(self, sandbox_id: str) -> None:
        """Removes everything of a sandbox. Gone already is success; safe to repeat after a crash."""

    def deaths(self) -> AsyncIterator[str]:
        """Yields the ids of sandboxes that ended without being asked to. One consumer at a time."""

    async def close(self) -> None:
        """Releases this process's resources. Sandboxes keep running."""


@runtime_checkable
class Stops(Protocol):
    async def stop(self, handle: Handle) -> None:
        """Ends all processes and keeps the disk. Stopped already is success."""

    async def resume(self, handle: Handle, order: Order) -> Handle:
        """Starts a sandbox again on its disk; returns once the supervisor answers."""


@runtime_checkable
class Freezes(Protocol):
    async def freeze(self, handle: Handle) -> None:
        """Pauses every process but the supervisor: files can still be read. Frozen already is success."""

    async def thaw(self, handle: Handle) -> None: ...


@runtime_checkable
class Resizes(Protocol):
    async def resize(self, handle: Handle, resources: Resources) -> None:
        """Gives a running sandbox other limits, at once; its disk keeps its size.

        Raises NoCapacity before anything changes when the host's budgets do not allow it, Conflict when it
        uses more than it would have; all limits stay as they were then.
        """


class Content(StrEnum):
    """What a kept disk was kept with."""

    FILES = "files"
    FILES_AND_MEMORY = "files_and_memory"


@value_class
class KeptDisk:
    disk_id: str
    content: Content
    # At most what it holds; `sizes` knows exactly.
    at_most_bytes: int


@value_class
class KeptSizes:
    # What it holds, shared with others or not.
    referenced_bytes: int
    # What would come free at least if it alone were dropped.
    exclusive_bytes: int


@runtime_checkable
class Snapshots(Protocol):
    """Keeps disks read-only under an id of the caller's choice (`snp_…`, `img_…`: see `is_kept_id`).

    A kept disk belongs to no sandbox: it outlives the one it was copied from, and sandboxes made from it
    (`Order.origin`) outlive it.
    """

    async def take(self, handle: Handle, disk_id: str) -> KeptDisk:
        """Keeps the disk as it is at one moment, whatever runs: everything written by then, nothing half.

        On any failure nothing is left. Raises NoCapacity when the pool is full, Conflict for a used id.
        """

    async def restore(self, handle: Handle, order: Order, disk_id: str, *, start: bool) -> Handle:
        """Replaces the disk by a copy of the kept one and ends its processes; with `start` it runs again.

        A crash at any moment leaves the old disk or the new one. What can be refused is refused before
        anything of the sandbox is touched: NotFound, Conflict (altered), NoCapacity.
        """

    async def drop(self, disk_id: str) -> None:
        """Gone already is success."""

    async def check_kept(self, disk_id: str) -> None:
        """Checks a kept disk. Raises NotFound, or Conflict if it is not what was kept."""

    async def sizes(self, disk_id: str) -> KeptSizes:
        """Measures a kept disk. May take as long as reading every file's size. Raises NotFound."""

    async def kept(self) -> Sequence[str]:
        """Returns the ids of all kept disks on this host, half-made ones included."""


@runtime_checkable
class KeepsMemory(Protocol):
    """Keeps what runs too: processes, memory, open files, listening ports go on in what begins as a copy."""

    async def take_with_memory(self, handle: Handle, disk_id: str) -> KeptDisk:
        """Does as `Snapshots.take`, with what runs, which stands still meanwhile. What begins as a copy of
        it, or is restored to it while it runs, goes on there.

        Raises BackendLost.
        """

    async def suspend(self, handle: Handle) -> int:
        """Does as `Stops.stop`, and keeps what runs: `Stops.resume` lets it go on, `Stops.stop` ends it.
        Returns the bytes that it takes beside the disk; of what is stopped already, those that it has.
        """


@runtime_checkable
class CopiesAhead(Protocol):
    def copies_ahead(self, disk_id: str, count: int) -> AbstractAsyncContextManager[None]:
        """Prepares for so many sandboxes with this `Order.origin`, made while inside: what takes no longer
        for all of them than for one is done once. Nothing of it is left afterwards.

        Raises NotFound, or Conflict if it is not what was kept.
        """


@value_class
class KeptLayers:
    """Says where a kept disk lies on this host, read-only: a layer over a tree.

    The layer has the form of an overlay's upper side: a character device 0/0 hides what lies below, the
    attribute `trusted.overlay.opaque` all that lies below a folder, `trusted.overlay.redirect` says where a
    renamed folder lies below. Its names and contents were a tenant's: no link in it may be followed.
    """

    # Of the tree; one for good. "scratch" is empty.
    base: str
    tree: Path
    layer: Path


@runtime_checkable
class ShapesDisks(Protocol):
    """Reads, copies and makes kept disks from outside of sandboxes, for published images."""

    async def layers(self, disk_id: str, *, suspected: bool = False) -> KeptLayers:
        """Returns the layers of a kept disk, checked as by `check_kept`. Raises NotFound, Conflict (altered).

        `suspected`: unchecked, to see what was altered.
        """

    async def copy_kept(self, disk_id: str, new_id: str, change: Callable[[int], None] | None) -> KeptDisk:
        """Makes a kept disk that is a copy of another and outlives it. On any failure nothing is left.

        `change` is called in a thread with a descriptor of the copy's layer, before it is kept for good.
        """

    async def fill_kept(self, new_id: str, fill: Callable[[int], None], *, limit_mb: int) -> KeptDisk:
        """Makes a kept disk from an empty layer over an empty tree; what `fill` writes has this limit
        (EDQUOT).

        Raises NoCapacity before anything is made when the pool has not that much left.
        """


@value_class
class VolumeUsage:
    # What it holds; at most that, where it shares content with others.
    used_bytes: int
    limit_bytes: int


@runtime_checkable
class Volumes(Protocol):
    """Makes volumes: disks under an id of the caller's choice (`vol_…`), which outlive every sandbox.

    One is attached (`Order.volumes`) read-write by one sandbox, or read-only by any number: an order that
    would have it otherwise is refused with Conflict. Files in it belong to the users of whoever looks: what
    root wrote in one sandbox is root's in the next.
    """

    async def make_volume(self, volume_id: str, *, size_mb: int, origin: str | None = None) -> None:
        """Makes a volume: empty, or a copy of a kept disk that came from a volume. On any failure nothing is
        left.

        Raises NoCapacity before anything is made when the pool has not that much left, Conflict for a used
        id, NotFound and Conflict (altered) for its origin, InvalidRequest if that is no volume's or larger.
        """

    async def resize_volume(self, volume_id: str, *, size_mb: int) -> None:
        """Changes a volume's size at once, attached or not. Raises NoCapacity, Conflict when it holds
        more, NotFound.
        """

    async def take_volume(self, volume_id: str, disk_id: str) -> KeptDisk:
        """Does the same as `Snapshots.take` for a volume, attached or not."""

    async def restore_volume(self, volume_id: str, disk_id: str) -> None:
        """Replaces a volume by a copy of the kept disk; what is on it is lost. Its size stays; a failure
        changes nothing.

        Raises Conflict while it is attached to something that runs; NoCapacity; NotFound, Conflict (altered)
        and InvalidRequest for the kept disk, as `make_volume` does.
        """

    async def drop_volume(self, volume_id: str) -> None:
        """Gone already is success. Raises Conflict while it is attached to something that runs."""

    async def volume_usage(self, volume_id: str) -> VolumeUsage:
        """Raises NotFound."""

    async def volumes(self) -> Sequence[str]:
        """Returns the ids of all volumes on this host, half-made ones included."""


@runtime_checkable
class KnowsImages(Protocol):
    def check_image(self, image: str) -> None:
        """Raises InvalidRequest unless there is such an image. Cheap; asked before anything is recorded."""


@runtime_checkable
class ChecksHost(Protocol):
    async def check_host(self) -> None:
        """Raises Unavailable if this host can make nothing now: a disk is full or cannot be written to,
        descriptors have run out. Cheap; asked before anything is recorded.
        """


@runtime_checkable
class LiesOverTrees(Protocol):
    async def lies_over(self) -> Mapping[str, str]:
        """Returns the tree below each sandbox's disk and each kept one, half-made ones included."""


@runtime_checkable
class HasParts(Protocol):
    def parts(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        """Returns what it needs to make sandboxes, by name: each call tries one part, and raises if it fails.

        Called at most once at a time. It may hang with what it tries: whoever asks brings the deadline.
        """


@runtime_checkable
class KnowsCapacity(Protocol):
    async def capacity(self) -> Capacity:
        """Returns the capacity at this moment. Cheap; the next create is judged by itself."""


@runtime_checkable
class CarriesMark(Protocol):
    """Keeps a text beside the disks that says which database they belong to (see `sandboxes/binding.py`)."""

    async def mark(self) -> str | None:
        """Returns the mark; None if nobody has set one."""

    async def set_mark(self, text: str) -> None:
        """Sets the mark so that it survives a crash whole. Raises OSError."""

    async def disks(self) -> Sequence[str]:
        """Returns the ids of all disks, of whatever kind."""


@runtime_checkable
class Spares(Protocol):
    """Remembers spares, which nobody has been given yet: only they may be removed without a record."""

    async def spares(self) -> Sequence[str]:
        """Returns the ids of sandboxes that were ordered as spare and not given to anyone."""

    async def give_away(self, sandbox_id: str) -> None:
        """Records that a spare sandbox belongs to somebody from now on. Repeating it is harmless."""


@runtime_checkable
class GivesWay(Protocol):
    """It can let sandboxes come last on the processor: they run when no other sandbox wants it."""

    async def processor_s_of_all(self) -> float:
        """Seconds that all its sandboxes together have had of the processor; one look, however many."""

    async def processor_s(self) -> Mapping[str, float]:
        """The same for each that runs, by id."""

    async def give_way(self, sandbox_ids: Collection[str]) -> None:
        """These come last from now on, and no others. Those that are gone are left out.

        Whoever comes last when this backend is closed, or when a server that crashed is started again, is
        not remembered: the next call says who does.
        """


class Capability(StrEnum):
    STOP = "stop"
    FREEZE = "freeze"
    SNAPSHOT = "snapshot"
    RESIZE = "resize"
    IMAGES = "images"
    VOLUMES = "volumes"
    MEMORY = "memory"


OPTIONAL: Mapping[Capability, type] = {
    Capability.STOP: Stops,
    Capability.FREEZE: Freezes,
    Capability.SNAPSHOT: Snapshots,
    Capability.RESIZE: Resizes,
    Capability.IMAGES: ShapesDisks,
    Capability.VOLUMES: Volumes,
    Capability.MEMORY: KeepsMemory,
}


def capabilities_of(backend: Backend) -> frozenset[Capability]:
    """Derives them from the protocols that a backend implements: it cannot promise what it lacks."""
    return frozenset(cap for cap, proto in OPTIONAL.items() if isinstance(backend, proto))
