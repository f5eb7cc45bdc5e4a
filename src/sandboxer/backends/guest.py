"""The line to the supervisor inside a sandbox, as the packages above see it. Every byte from it is hostile.

Errors: GuestRefused and its children when the sandbox's own system said no (the caller's business),
BackendLost when the line broke, GuestMisbehaved when the other end broke the protocol.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable


class EndReason(StrEnum):
    """Why a process ended, when it was not its own doing."""

    OOM_KILLED = "oom_killed"
    DISK_FULL = "disk_full"
    PIDS_EXHAUSTED = "pids_exhausted"
    # File locks, open files, filters: more than one sandbox may make the kernel hold.
    KERNEL_OBJECTS_EXHAUSTED = "kernel_objects_exhausted"
    TIMED_OUT = "timed_out"
    KILLED = "killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalSize:
    cols: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    # A user name or numeric uid known inside.
    user: str = "root"
    # A pseudo terminal of this size instead of pipes.
    terminal: TerminalSize | None = None
    # False: stdin is /dev/null.
    has_stdin: bool = False
    # Opaque words kept with the process and listed with it (at most 1 KiB).
    tag: str = ""
    # Unix seconds after which the whole tree should be killed; kept outside the sandbox, so that it
    # survives a restart of the server. The server kills; the backend only remembers.
    deadline: float | None = None
    # False: forgotten with its output once its Exit was read (nobody will attach to it again).
    keep: bool = True


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, slots=True)
class Output:
    stream: Stream
    data: bytes
    # Bytes of this stream that were dropped before `data` because nobody read them in time.
    dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    # The exit code, or 128 + signal.
    code: int
    signal: int | None = None
    reason: EndReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInfo:
    process_id: str
    pid: int
    argv: Sequence[str]
    tag: str
    started_at: float
    has_terminal: bool
    # None while it runs.
    exit: Exit | None
    deadline: float | None
    # Bytes that its stdin took so far; None: an older guest does not say.
    stdin_bytes: int | None = None


class Process(Protocol):
    """One attached process. Leaving `async with` detaches; the process goes on, keeping its last output."""

    @property
    def process_id(self) -> str: ...

    @property
    def pid(self) -> int:
        """As seen inside the sandbox."""

    async def __aenter__(self) -> Process: ...

    async def __aexit__(self, *exc: object) -> None: ...

    def output(self) -> AsyncIterator[Output | Exit]:
        """Everything it prints, then one Exit. Reading slowly slows the process down (back pressure)."""

    @property
    def stdin_bytes(self) -> int | None:
        """Bytes that its stdin had taken when we attached; None: an older guest does not say."""

    async def write_stdin(self, data: bytes) -> None:
        """Returns when its stdin took all of it; read its output meanwhile, or it may wait for that.

        Raises StdinNotTaken. (An older guest takes note only, and delivers while this is attached.)"""

    async def close_stdin(self) -> None:
        """After everything written before was taken. Closed already is success."""

    async def resize(self, size: TerminalSize) -> None: ...

    async def signal(self, number: int) -> None:
        """To the process alone."""

    async def kill(self) -> None:
        """End everything this command started, re-parented children included."""


class FileKind(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    # Absolute path. Bytes that are not UTF-8 appear as surrogate escapes (`os.fsdecode`).
    path: str
    kind: FileKind
    size: int
    mode: int
    uid: int
    gid: int
    modified_at: float
    link_target: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingPage:
    files: Sequence[FileInfo]
    # Where the next page begins: give it as `after`. None: this was the last one.
    next_after: bytes | None


class FileChange(StrEnum):
    CREATED = "created"
    MODIFIED = "modified"
    REMOVED = "removed"
    MOVED = "moved"
    # The guest could not keep up: look again at what you watch.
    OVERFLOW = "overflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEvent:
    path: str
    change: FileChange


class Files(Protocol):
    """Paths are absolute, resolved inside the sandbox by its own kernel: a symlink leads nowhere else."""

    async def stat(self, path: str, *, follow: bool = True) -> FileInfo: ...

    def list(self, path: str, *, depth: int = 1) -> AsyncIterator[FileInfo]:
        """Entries below `path`, unordered, not following links; `depth` 1 is the folder itself only."""

    async def list_page(
        self, path: str, *, depth: int = 1, after: bytes | None = None, limit: int
    ) -> ListingPage:
        """Of the same entries the `limit` smallest above `after`, ordered by the bytes of their paths.

        It may hold fewer although others follow. The guest sorts, so that a large folder costs us a page."""

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """Regular files only: a FIFO or device raises NotARegularFile at once."""

    async def write(
        self, path: str, chunks: AsyncIterator[bytes], *, mode: int | None = None, parents: bool = True
    ) -> FileInfo:
        """Replace `path` when `chunks` ends; if it raises, or this is cancelled, the old file stays."""

    async def mkdir(self, path: str, *, mode: int = 0o755, parents: bool = True) -> None: ...

    async def move(self, source: str, target: str, *, overwrite: bool = False) -> None: ...

    async def remove(self, path: str, *, recursive: bool = False) -> None: ...

    def watch(self, path: str, *, recursive: bool = False) -> AsyncIterator[FileEvent]:
        """Changes from now on. The first item arrives only after the watch is in place."""


@runtime_checkable
class PlacesWatches(Protocol):
    """Files that can say when a watch is in place."""

    async def watching(self, path: str, *, recursive: bool = False) -> AsyncIterator[FileEvent]:
        """Returns once the watch is in place; what it returns yields the changes since."""


class Connection(Protocol):
    """A byte stream to a port inside. `read` returns b"" at the end."""

    async def read(self, limit: int = 65536) -> bytes: ...

    async def write(self, data: bytes) -> None: ...

    async def close_write(self) -> None: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A connection's bare socket, non-blocking; from now on the holder's to close."""

    sock: socket.socket
    # What had come already.
    received: bytes
    # To be called once, when it is closed.
    closed: Callable[[], None]


@runtime_checkable
class HandsOver(Protocol):
    """A connection whose socket can be had, for relays that must not pay for each piece twice."""

    def hand_over(self) -> HandedOver: ...


class Guest(Protocol):
    @property
    def files(self) -> Files: ...

    async def run(self, command: Command, *, process_id: str | None = None) -> Process: ...

    async def attach(self, process_id: str) -> Process:
        """Everything still kept of its output first, then what follows. Raises NotFound."""

    async def feed(
        self, process_id: str, data: bytes, *, close: bool = False, offset: int | None = None
    ) -> None:
        """Returns when its stdin took all of `data`, and was closed after it; it takes no output.

        Writers take turns. `offset`: how many bytes came before; what it took already is not written again,
        so that a write that was broken off can be repeated.
        Raises NotFound, StdinNotTaken, Conflict (a gap)."""

    async def processes(self) -> Sequence[ProcessInfo]:
        """All that `run` started and nobody forgot, ended ones included (the last 64 of those)."""

    async def forget(self, process_id: str) -> None:
        """Drop an ended process and its output."""

    async def connect(self, port: int) -> Connection:
        """A TCP connection to 127.0.0.1:port inside. Raises GuestRefused with ECONNREFUSED."""

    async def ping(self) -> None:
        """Returns if the supervisor answers."""


class Relay(Protocol):
    """An inside port that leads outwards. Losing it closes nothing: whoever calls meanwhile waits inside."""

    async def next_call(self) -> int:
        """The number of the next connection that somebody made to it inside. Raises BackendLost."""

    async def accept(self, call: int) -> Connection:
        """The stream of that connection. Raises GuestRefused for one that is not there any more."""

    async def close(self) -> None:
        """Hear of no more calls; the port stays."""


@runtime_checkable
class Sockets(Protocol):
    """A guest that can reach unix sockets inside."""

    async def connect_socket(self, path: str) -> Connection:
        """A connection to the unix socket there. Raises GuestRefused, PathNotFound."""


@runtime_checkable
class Relays(Protocol):
    """A guest that can relay inside ports outwards."""

    async def listen(self, port: int) -> Relay:
        """Takes the port over from whoever heard of its calls before. Raises GuestRefused (EADDRINUSE)."""

    async def unlisten(self, port: int) -> None:
        """Not listened on is success."""
