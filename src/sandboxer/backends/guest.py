"""Defines the connection to the supervisor inside a sandbox, for the packages above. Every byte from it may
be hostile.

Errors: GuestRefused and its children when the sandbox's own system said no (the caller's business),
BackendLost when the line broke, GuestMisbehaved when the other end broke the protocol.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from sandboxer.kernel.values import brief_value_class, value_class

# The inside port of the egress proxy, on 127.0.0.1 and ::1. Where the kernel can, connections of a sandbox of
# trust level `semi` to addresses far away are led to it (decision 0037).
WAY_OUT_PORT = 3128


class EndReason(StrEnum):
    """Says why a process ended, when it did not end by itself."""

    OOM_KILLED = "oom_killed"
    DISK_FULL = "disk_full"
    PIDS_EXHAUSTED = "pids_exhausted"
    # File locks, open files, filters: more than one sandbox may make the kernel hold.
    KERNEL_OBJECTS_EXHAUSTED = "kernel_objects_exhausted"
    TIMED_OUT = "timed_out"
    KILLED = "killed"


@value_class
class TerminalSize:
    cols: int
    rows: int


@value_class
class FolderMount:
    """A folder of the sandbox's own disk that is a mount of its own (see `shared.MountsFolders`): nothing is
    linked into it from outside, and if it is read-only nobody inside writes to it, root included.
    """

    path: str
    is_read_only: bool = False


@value_class
class FirstFile:
    """A file that a new disk begins with: root's, and readable by all. A copy of a file of the host (a
    program stays one), with `text` after it.
    """

    path: str
    source: str | None = None
    text: str = ""


@value_class
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


@brief_value_class
class Output:
    stream: Stream
    data: bytes
    # Bytes of this stream that were dropped before `data` because nobody read them in time.
    dropped: int = 0


@value_class
class Exit:
    # The exit code, or 128 + signal.
    code: int
    signal: int | None = None
    reason: EndReason | None = None


@value_class
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
        """Returns the process id as seen inside the sandbox."""

    async def __aenter__(self) -> Process: ...

    async def __aexit__(self, *exc: object) -> None: ...

    def output(self) -> AsyncIterator[Output | Exit]:
        """Yields everything the process prints, then one Exit. Reading slowly slows the process down
        (back pressure).
        """

    @property
    def stdin_bytes(self) -> int | None:
        """Returns how many bytes its stdin had accepted when we attached; None if an older guest does not
        say.
        """

    async def write_stdin(self, data: bytes) -> None:
        """Writes to its stdin and returns when all was accepted. Read its output meanwhile, or it may wait
        for that.

        Raises StdinNotTaken. (An older guest takes note only, and delivers while this is attached.)"""

    async def close_stdin(self) -> None:
        """Closes its stdin after everything written before was accepted. Closed already is success."""

    async def resize(self, size: TerminalSize) -> None: ...

    async def signal(self, number: int) -> None:
        """Sends a signal to the process alone."""

    async def kill(self) -> None:
        """Ends everything this command started, re-parented children included."""


class PassedOnProcess:
    """Passes every call on to another process; whoever adds something to a process derives from it."""

    def __init__(self, process: Process) -> None:
        self._inner = process

    @property
    def process_id(self) -> str:
        return self._inner.process_id

    @property
    def pid(self) -> int:
        return self._inner.pid

    @property
    def stdin_bytes(self) -> int | None:
        return self._inner.stdin_bytes

    async def __aenter__(self) -> Process:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._inner.__aexit__(*exc)

    def output(self) -> AsyncIterator[Output | Exit]:
        return self._inner.output()

    async def write_stdin(self, data: bytes) -> None:
        await self._inner.write_stdin(data)

    async def close_stdin(self) -> None:
        await self._inner.close_stdin()

    async def resize(self, size: TerminalSize) -> None:
        await self._inner.resize(size)

    async def signal(self, number: int) -> None:
        await self._inner.signal(number)

    async def kill(self) -> None:
        await self._inner.kill()


class FileKind(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    OTHER = "other"


@value_class
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
    # Extended attributes by name, of those that were asked for.
    attributes: Mapping[str, bytes] = field(default_factory=dict)


@value_class
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


@value_class
class FileEvent:
    path: str
    change: FileChange


class Files(Protocol):
    """Paths are absolute, resolved inside the sandbox by its own kernel: a symlink leads nowhere else."""

    async def stat(self, path: str, *, follow: bool = True, attributes: str = "") -> FileInfo:
        """`attributes` is the beginning of the names of extended attributes that are wanted; empty: none."""

    def list(self, path: str, *, depth: int = 1) -> AsyncIterator[FileInfo]:
        """Lists the entries below `path`, unordered, without following links; `depth` 1 is the folder
        itself only.
        """

    async def list_page(
        self, path: str, *, depth: int = 1, after: bytes | None = None, limit: int, attributes: str = ""
    ) -> ListingPage:
        """Lists the `limit` smallest of these entries above `after`, ordered by the bytes of their paths.

        It may hold fewer although others follow. The guest sorts, so that a large folder costs us a page."""

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """Reads a regular file. A FIFO or device raises NotARegularFile at once."""

    async def write(
        self,
        path: str,
        chunks: AsyncIterator[bytes],
        *,
        mode: int | None = None,
        parents: bool = True,
        owner: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> FileInfo:
        """Replaces `path` when `chunks` ends. If that raises, or this is cancelled, the old file stays.

        The file, and folders made for it, belong to the user `owner` of the sandbox; without one a replaced
        file keeps whose it was, and a new one is root's. Raises InvalidRequest for somebody unknown inside.
        It has these extended attributes and no others, if its file system can have any.
        """

    async def mkdir(
        self, path: str, *, mode: int = 0o755, parents: bool = True, owner: str | None = None
    ) -> None: ...

    async def move(self, source: str, target: str, *, overwrite: bool = False) -> None: ...

    async def remove(self, path: str, *, recursive: bool = False) -> None: ...

    def watch(self, path: str, *, recursive: bool = False) -> AsyncIterator[FileEvent]:
        """Yields changes from now on. The first item arrives only after the watch is in place."""


async def whole(data: bytes) -> AsyncIterator[bytes]:
    """Yields the content of a small file in one piece, as `Files.write` takes it."""
    yield data


@runtime_checkable
class PlacesWatches(Protocol):
    """Files that can say when a watch is in place."""

    async def watching(self, path: str, *, recursive: bool = False) -> AsyncIterator[FileEvent]:
        """Returns once the watch is in place; what it returns yields the changes since."""


class Connection(Protocol):
    """Carries bytes to and from a port inside. `read` returns b"" at the end."""

    async def read(self, limit: int = 65536) -> bytes: ...

    async def write(self, data: bytes) -> None: ...

    async def close_write(self) -> None: ...

    async def close(self) -> None: ...


@brief_value_class
class HandedOver:
    """Holds a connection's bare socket, non-blocking, which the holder has to close."""

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
        """Attaches to a process: first comes the output that is still kept, then what follows. Raises
        NotFound.
        """

    async def feed(
        self, process_id: str, data: bytes, *, close: bool = False, offset: int | None = None
    ) -> None:
        """Writes `data` to the stdin of a process and closes it, without reading output. Returns when all was
        accepted.

        Writers take turns. `offset`: how many bytes came before; what it took already is not written again,
        so that a write that was broken off can be repeated.
        Raises NotFound, StdinNotTaken, Conflict (a gap)."""

    async def processes(self) -> Sequence[ProcessInfo]:
        """Returns all processes that `run` started and nobody removed, ended ones included (the last 64
        of those).
        """

    async def forget(self, process_id: str) -> None:
        """Removes an ended process and its output."""

    async def connect(self, port: int) -> Connection:
        """Opens a TCP connection to 127.0.0.1:port inside. Raises GuestRefused with ECONNREFUSED."""

    async def ping(self) -> None:
        """Returns if the supervisor answers."""


class Relay(Protocol):
    """Leads connections from a port inside to the host. Losing it closes nothing: callers wait inside
    meanwhile.
    """

    async def next_call(self) -> int:
        """Returns the number of the next connection that a program inside made to the port. Raises
        BackendLost.
        """

    async def accept(self, call: int) -> Connection:
        """Returns the stream of that connection. Raises GuestRefused for one that is gone."""

    async def close(self) -> None:
        """Stops accepting connections here; the port stays open inside."""


@runtime_checkable
class Sockets(Protocol):
    """A guest that can reach unix sockets inside."""

    async def connect_socket(self, path: str) -> Connection:
        """Opens a connection to a unix socket inside. Raises GuestRefused, PathNotFound."""


# The folder that tells a sandbox where it is: read-only inside, in memory, and never part of its disk.
INSIDE = "/run/sandboxer"


@runtime_checkable
class Described(Protocol):
    """A guest that can tell a sandbox where it is."""

    async def describe(self, files: Mapping[str, str]) -> None:
        """Writes these files into `INSIDE`, each whole or not at all; those that are not named stay.

        Raises NotAvailable if its supervisor is older than that.
        """


# In `INSIDE`, for root inside alone: who connects to it is led to the host.
INSIDE_SOCKET = "api.sock"


@runtime_checkable
class RelaysSocket(Protocol):
    """A guest that can relay a socket in `INSIDE` outwards."""

    async def listen_inside(self) -> Relay:
        """Listens there, and replaces whoever did before. Raises NotAvailable, GuestRefused."""

    async def unlisten_inside(self) -> None:
        """Takes the socket away. None there is success."""


@runtime_checkable
class Relays(Protocol):
    """A guest that can relay inside ports outwards."""

    async def listen(self, port: int) -> Relay:
        """Listens on a port inside, and replaces whoever did before. Raises GuestRefused (EADDRINUSE)."""

    async def unlisten(self, port: int) -> None:
        """Stops listening on a port inside. Not listening is success."""
