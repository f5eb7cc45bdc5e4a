"""Implements guest/PROTOCOL.md as pure functions: numbers, building, reading what a hostile guest sent.

Nothing here does I/O. Whatever does not fit raises GuestMisbehaved.

`refusal` turns an ERROR frame into the one error a caller can act on. An errno alone says too little: the
stage tells whose path it was about.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from enum import IntEnum, IntFlag

from sandboxer.kernel.errors import (
    Conflict,
    DirectoryNotEmpty,
    DiskFull,
    GuestMisbehaved,
    GuestRefused,
    InvalidRequest,
    IsADirectory,
    NotADirectory,
    NotARegularFile,
    NotAvailable,
    NotFound,
    PathExists,
    PathNotFound,
    PermissionDenied,
    SandboxerError,
)

VERSION = 2
OLDEST = 1
# From this version on a guest says what became of each STDIN and STDIN_EOF.
VERSION_TAKEN = 2
MAX_PAYLOAD = 256 * 1024
MAX_TEXT = 64 * 1024
HEADER = struct.Struct("<IB")
TLV = struct.Struct("<HI")
U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")
_BY_ERRNO: dict[int, type[GuestRefused]] = {
    errno.ENOENT: PathNotFound,
    errno.EEXIST: PathExists,
    errno.ENOTDIR: NotADirectory,
    errno.EISDIR: IsADirectory,
    errno.EACCES: PermissionDenied,
    errno.EPERM: PermissionDenied,
    errno.EROFS: PermissionDenied,
    errno.ENOTEMPTY: DirectoryNotEmpty,
    errno.ENOSPC: DiskFull,
    errno.EDQUOT: DiskFull,
}


class Frame(IntEnum):
    HELLO = 0x01
    PING = 0x02
    RUN = 0x10
    ATTACH = 0x11
    LIST = 0x12
    SIGNAL = 0x13
    STDIN = 0x14
    STDIN_EOF = 0x15
    RESIZE = 0x16
    FORGET = 0x17
    STAT = 0x20
    LISTDIR = 0x21
    READ = 0x22
    WRITE = 0x23
    MKDIR = 0x24
    MOVE = 0x25
    REMOVE = 0x26
    WATCH = 0x27
    COMMIT = 0x28
    CONNECT = 0x30
    LISTEN = 0x31
    ACCEPT = 0x32
    UNLISTEN = 0x33
    DESCRIBE = 0x34
    DATA = 0x40
    WELCOME = 0x81
    DONE = 0x82
    ERROR = 0x83
    STARTED = 0x90
    STDOUT = 0x91
    STDERR = 0x92
    DROPPED = 0x93
    EXIT = 0x94
    PROCESS = 0x95
    TAKEN = 0x96
    FILE = 0xA0
    ENTRIES = 0xA1
    EVENTS = 0xA2
    ANNOUNCE = 0xB0
    # Not on the wire: what follows the answer to CONNECT and ACCEPT.
    RAW = 0x100


class Tag(IntEnum):
    VERSION = 1
    OLDEST = 2
    ID = 10
    ARG = 11
    ENV = 12
    CWD = 13
    USER = 14
    TAG = 15
    COLS = 16
    ROWS = 17
    FLAGS = 18
    SIGNAL = 19
    PID = 20
    STARTED_AT = 21
    CODE = 22
    STREAM = 23
    COUNT = 24
    FROM_STDOUT = 25
    FROM_STDERR = 26
    TAKEN = 27
    PATH = 30
    TARGET = 31
    MODE = 32
    OFFSET = 33
    LENGTH = 34
    DEPTH = 35
    KIND = 36
    SIZE = 37
    UID = 38
    GID = 39
    MTIME = 40
    LINK = 41
    ENTRY = 42
    CHANGE = 43
    AFTER = 44
    LIMIT = 45
    ATTRIBUTES = 46
    ATTRIBUTE = 47
    PORT = 50
    CALL = 51
    CONTENT = 52
    ERRNO = 60
    STAGE = 61


class Flag(IntFlag):
    STDIN = 1 << 0
    CGROUP = 1 << 1
    FORGET = 1 << 2
    PARENTS = 1 << 3
    OVERWRITE = 1 << 4
    RECURSIVE = 1 << 5
    FOLLOW = 1 << 6
    GROUP = 1 << 7
    TERMINAL = 1 << 8
    INPUT = 1 << 9
    MORE = 1 << 10
    REFUSED = 1 << 11


class Stage(IntEnum):
    """Says where in the guest an error arose."""

    REQUEST = 1
    FORK = 2
    CGROUP = 3
    TERMINAL = 4
    USER = 5
    CWD = 6
    EXEC = 7
    STDIO = 8
    PROCESS = 9
    LIMIT = 10
    PATH = 11
    NOT_REGULAR = 12
    TARGET = 13
    CONNECT = 14
    WATCH = 15
    VERSION = 16
    LISTEN = 17


_STREAMED = frozenset({Frame.STDOUT, Frame.STDERR, Frame.DATA})
# What {path} stands for in the message when the error is about no path.
_SUBJECT = {
    Stage.FORK: "a new process",
    Stage.CGROUP: "entering the command's cgroup",
    Stage.TERMINAL: "a new terminal",
    Stage.STDIO: "/dev/null",
    Stage.LIMIT: "one more process or stream",
    Stage.WATCH: "one more watch",
    Stage.REQUEST: "the request",
}


def frame(kind: Frame, payload: bytes = b"") -> bytes:
    return HEADER.pack(len(payload), kind) + payload


def field(tag: Tag, value: bytes) -> bytes:
    return TLV.pack(tag, len(value)) + value


def text(tag: Tag, value: str) -> bytes:
    return field(tag, os.fsencode(value))


def u32(tag: Tag, value: int) -> bytes:
    return field(tag, U32.pack(value))


def u64(tag: Tag, value: int) -> bytes:
    return field(tag, U64.pack(value))


HELLO = frame(Frame.HELLO, u32(Tag.VERSION, VERSION) + u32(Tag.OLDEST, OLDEST))


def fields(payload: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the TLVs of a payload, in order, unknown ones too."""
    at, end = 0, len(payload)
    while at < end:
        if end - at < TLV.size:
            raise GuestMisbehaved(why="a field is cut off")
        tag, length = TLV.unpack_from(payload, at)
        at += TLV.size
        if length > end - at:
            raise GuestMisbehaved(why="a field is longer than its frame")
        yield tag, payload[at : at + length]
        at += length


class Fields:
    """Holds the TLVs of one payload by tag; a repeated tag counts once (its last value)."""

    __slots__ = ("_values",)

    def __init__(self, payload: bytes) -> None:
        self._values = dict(fields(payload))

    def __contains__(self, tag: Tag) -> bool:
        return tag in self._values

    def u32(self, tag: Tag, most: int = 0xFFFFFFFF) -> int:
        return self._number(tag, U32, most)

    def u64(self, tag: Tag, most: int = 0xFFFFFFFFFFFFFFFF) -> int:
        return self._number(tag, U64, most)

    def text(self, tag: Tag) -> str:
        value = self._value(tag)
        if len(value) > MAX_TEXT or b"\0" in value:
            raise GuestMisbehaved(why=f"{tag.name} is no text")
        return os.fsdecode(value)

    def raw(self, tag: Tag) -> bytes:
        return self._value(tag)

    def _value(self, tag: Tag) -> bytes:
        try:
            return self._values[tag]
        except KeyError:
            raise GuestMisbehaved(why=f"{tag.name} is missing") from None

    def _number(self, tag: Tag, form: struct.Struct, most: int) -> int:
        value = self._value(tag)
        if len(value) != form.size:
            raise GuestMisbehaved(why=f"{tag.name} has the wrong size")
        number: int = form.unpack(value)[0]
        if number > most:
            raise GuestMisbehaved(why=f"{tag.name} is out of range")
        return number


class Deframer:
    """Cuts a byte stream into frames. Those that carry plain bytes are passed on in pieces, as they come."""

    __slots__ = ("_kind", "_left", "_pending", "_raw_after_done")

    def __init__(self, *, raw_after_done: bool = False) -> None:
        self._pending = b""
        self._kind = 0
        self._left = 0
        self._raw_after_done = raw_after_done

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        at, end = 0, len(data)
        while at < end:
            if self._kind == Frame.RAW:
                yield Frame.RAW, data[at:]
                return
            if self._left:
                piece = data[at : at + self._left] if at or end > self._left else data
                self._left -= len(piece)
                at += len(piece)
                yield self._kind, piece
                continue
            if self._pending:
                data = self._pending + data[at:]
                at, end, self._pending = 0, len(data), b""
            if end - at < HEADER.size:
                self._pending = data[at:]
                return
            length, kind = HEADER.unpack_from(data, at)
            if length > MAX_PAYLOAD:
                raise GuestMisbehaved(why=f"a frame of {length} bytes")
            body = at + HEADER.size
            if kind in _STREAMED:
                self._kind, self._left, at = kind, length, body
            elif end - body < length:
                self._pending = data[at:]
                return
            else:
                at = body + length
                if self._raw_after_done and kind == Frame.DONE:
                    self._kind = Frame.RAW
                yield kind, data[body:at]


def refusal(
    payload: bytes, *, subject: str, target: str = "", cwd: str = "", user: str = ""
) -> SandboxerError:
    """Turns an ERROR frame into an error. `subject` is what the request was about: a path, a process id,
    the program.
    """
    answer = Fields(payload)
    number, stage = answer.u32(Tag.ERRNO, most=4095), answer.u32(Tag.STAGE, most=255)
    name = errno.errorcode.get(number, f"E{number}")
    match stage:
        case Stage.VERSION:
            return GuestMisbehaved(why="it speaks no version that we know")
        case Stage.USER if number in (errno.ENOENT, errno.EINVAL):
            return InvalidRequest(field="user", why=f"no user {user!r} in the sandbox")
        case Stage.PROCESS:
            return _about_process(number, name, subject)
        case Stage.REQUEST if number == errno.ENOSYS:
            return NotAvailable(what="this operation", why="the sandbox has an older supervisor")
        case Stage.NOT_REGULAR:
            return NotARegularFile(path=subject, errno_name=name)
        case Stage.PATH | Stage.EXEC | Stage.CWD | Stage.TARGET:
            path = {Stage.CWD: cwd, Stage.TARGET: target}.get(Stage(stage), subject)
            return _BY_ERRNO.get(number, GuestRefused)(path=path, errno_name=name)
        case Stage.CONNECT:
            return GuestRefused(path=subject, errno_name=name)
        case _:
            return GuestRefused(path=_SUBJECT.get(_stage(stage), subject), errno_name=name)


def _stage(number: int) -> Stage:
    return Stage(number) if number in Stage._value2member_map_ else Stage.REQUEST


_LOOK = "See what runs: GET /v1/sandboxes/{sandbox_id}/processes."


def _about_process(number: int, name: str, process_id: str) -> SandboxerError:
    match number:
        case errno.ESRCH:
            return NotFound(what="process", id=process_id)
        case errno.EEXIST:
            return Conflict(why=f"process id {process_id} is in use", hint=_LOOK)
        case errno.EBUSY:
            return Conflict(why=f"process {process_id} still runs or is being read", hint=_LOOK)
        case errno.ENOTTY:
            return Conflict(why=f"process {process_id} has no terminal", hint="Open a terminal instead.")
        case errno.EINVAL:
            return InvalidRequest(field="signal or size", why="out of range")
        case _:
            return GuestRefused(path=process_id, errno_name=name)
