"""Carries many lines to a supervisor over one stream of an engine; guest/supervisor/lines.c is the other end.

To whoever dials, a line is a socket as any other; its other end is led from here. Each line has only so much
on its way in either direction: one that nobody reads holds up no other.

What comes from inside may be hostile: a piece that no honest end would send ends all lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from sandboxer.backends.docker.address import Streams
from sandboxer.kernel.errors import BackendLost, GuestMisbehaved, NoCapacity, SandboxerError

WINDOW = 128 * 1024
PIECE = 32 * 1024
# What the engine has not taken yet; beyond it nobody's bytes are read.
_UNSENT = 1024 * 1024
_HEAD = struct.Struct("<III")
# How an engine says which of a program's outputs a piece is of, and its size.
_STREAM = struct.Struct(">BxxxI")
_STDOUT, _STDERR = 1, 2
_LAST_WORDS = 400


class Piece(IntEnum):
    OPEN = 1
    DATA = 2
    END = 3
    CLOSE = 4
    ROOM = 5


class Outputs:
    """Takes the two outputs of a program apart, as an engine sends them."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._left = 0
        self._stream = 0
        self.last_words = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yields what was said on stdout. Raises GuestMisbehaved."""
        self._buffer += data
        while self._buffer:
            if not self._left:
                if len(self._buffer) < _STREAM.size:
                    return
                self._stream, self._left = _STREAM.unpack_from(self._buffer)
                del self._buffer[: _STREAM.size]
                if self._stream > _STDERR:
                    raise GuestMisbehaved(why=f"the engine named a stream {self._stream}")
                continue
            said = bytes(self._buffer[: self._left])
            del self._buffer[: self._left]
            self._left -= len(said)
            if self._stream == _STDOUT:
                yield said
            elif self._stream == _STDERR:
                self.last_words = (self.last_words + said)[-_LAST_WORDS:]


@dataclass(slots=True)
class _Led:
    """The end of a line that is led from here."""

    number: int
    sock: socket.socket
    # What the inside still takes, and what it was not told that it may send.
    room: int = WINDOW
    owed: int = 0
    # From inside, for whoever dialled.
    waiting: deque[bytes] = field(default_factory=deque)
    waiting_bytes: int = 0
    inside_ended: bool = False
    inside_left: bool = False
    outside_ended: bool = False
    is_read: bool = False


class Lines:
    def __init__(self, streams: Streams, *, most: int) -> None:
        self._reader, self._writer = streams
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._led: dict[int, _Led] = {}
        self._next = 1
        self._paused: asyncio.Task[None] | None = None
        # Tells of those that were half-closed and are closed now: to a reader both look the same.
        self._left = select.epoll()
        self._loop.add_reader(self._left.fileno(), self._hung_up)
        self._is_closed = False
        self._listening = asyncio.ensure_future(self._listen())

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def is_idle(self) -> bool:
        return not self._led

    def open(self) -> socket.socket:
        """Returns a socket that leads to the supervisor. Raises BackendLost, NoCapacity."""
        if self._is_closed:
            raise BackendLost(why="the engine closed the connection to the sandbox")
        if len(self._led) >= self._most:
            raise NoCapacity(
                resource="streams", why=f"{self._most} connections to this sandbox are open already"
            )
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        theirs.setblocking(False)
        led = _Led(self._next, theirs)
        self._next = self._next % 0xFFFF_FFFF + 1
        self._led[led.number] = led
        self._tell(led, Piece.OPEN)
        self._read_from(led)
        return ours

    async def close(self) -> None:
        self.end()
        self._listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._listening

    # ---- towards the inside ----

    def _tell(self, led: _Led, piece: Piece, data: bytes = b"", *, size: int = 0) -> None:
        if not self._is_closed:
            self._writer.write(_HEAD.pack(led.number, piece, size or len(data)) + data)

    def _read_from(self, led: _Led) -> None:
        wants = not led.outside_ended and led.room > 0 and self._paused is None
        if wants and not led.is_read:
            self._loop.add_reader(led.sock.fileno(), self._readable, led)
        elif led.is_read and not wants:
            self._loop.remove_reader(led.sock.fileno())
        led.is_read = wants

    def _readable(self, led: _Led) -> None:
        try:
            data = led.sock.recv(min(PIECE, led.room))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._leave(led)
            return
        if data:
            led.room -= len(data)
            self._tell(led, Piece.DATA, data)
            if self._writer.transport.get_write_buffer_size() > _UNSENT and self._paused is None:
                self._paused = asyncio.ensure_future(self._unpause())
                self._read_from_all()
        else:
            led.outside_ended = True
            if _hung_up(led.sock):
                self._leave(led)
                return
            self._tell(led, Piece.END)
            self._left.register(led.sock.fileno(), 0)
        self._read_from(led)

    def _read_from_all(self) -> None:
        for led in self._led.values():
            self._read_from(led)

    async def _unpause(self) -> None:
        with contextlib.suppress(OSError):
            await self._writer.drain()
        self._paused = None
        self._read_from_all()

    def _hung_up(self) -> None:
        numbers = {led.sock.fileno(): led for led in self._led.values()}
        for fd, _ in self._left.poll(0):
            if (led := numbers.get(fd)) is not None:
                self._leave(led)

    def _leave(self, led: _Led) -> None:
        """Whoever dialled has gone: what was written still arrives."""
        self._tell(led, Piece.CLOSE)
        self._forget(led)

    def _forget(self, led: _Led) -> None:
        if self._led.pop(led.number, None) is None:
            return
        fd = led.sock.fileno()
        self._loop.remove_reader(fd)
        self._loop.remove_writer(fd)
        if led.outside_ended:
            with contextlib.suppress(OSError):
                self._left.unregister(fd)
        led.sock.close()

    # ---- towards whoever dialled ----

    async def _listen(self) -> None:
        outputs, held_back = Outputs(), bytearray()
        try:
            while data := await self._reader.read(8 * PIECE):
                for said in outputs.feed(data):
                    held_back += said
                    self._hear(held_back)
        except (OSError, SandboxerError):
            # The lines end with it, and their readers say so.
            return
        finally:
            self.end()

    def _hear(self, said: bytearray) -> None:
        at = 0
        while len(said) - at >= _HEAD.size:
            number, kind, size = _HEAD.unpack_from(said, at)
            body = size if kind == Piece.DATA else 0
            if not Piece.DATA <= kind <= Piece.ROOM or (body > PIECE) or size > WINDOW:
                raise GuestMisbehaved(why=f"a piece {kind} of {size} bytes")
            if len(said) - at < _HEAD.size + body:
                break
            begin = at + _HEAD.size
            at = begin + body
            # Else it is closed here already, and the inside does not know yet.
            if (led := self._led.get(number)) is not None:
                self._heard(led, Piece(kind), bytes(said[begin:at]), size)
        del said[:at]

    def _heard(self, led: _Led, piece: Piece, data: bytes, size: int) -> None:
        match piece:
            case Piece.DATA:
                led.waiting.append(data)
                led.waiting_bytes += len(data)
                if led.waiting_bytes > WINDOW or led.inside_ended:
                    raise GuestMisbehaved(why="more on a line than there was room for")
            case Piece.ROOM:
                led.room += size
                if led.room > WINDOW:
                    raise GuestMisbehaved(why="more room on a line than there can be")
                self._read_from(led)
                return
            case Piece.CLOSE:
                led.inside_ended = led.inside_left = True
            case _:
                led.inside_ended = True
        self._pass_on(led)

    def _pass_on(self, led: _Led) -> None:
        while led.waiting:
            try:
                sent = led.sock.send(led.waiting[0])
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                self._leave(led)
                return
            led.waiting_bytes -= sent
            led.owed += sent
            first = led.waiting.popleft()
            if sent < len(first):
                led.waiting.appendleft(first[sent:])
        if led.waiting:
            self._loop.add_writer(led.sock.fileno(), self._pass_on, led)
        else:
            self._loop.remove_writer(led.sock.fileno())
        self._grant(led)

    def _grant(self, led: _Led) -> None:
        if led.inside_ended:
            if led.waiting:
                return
            if led.inside_left or led.outside_ended:
                self._forget(led)
            else:
                with contextlib.suppress(OSError):
                    led.sock.shutdown(socket.SHUT_WR)
        elif led.owed >= WINDOW // 4:
            self._tell(led, Piece.ROOM, size=led.owed)
            led.owed = 0

    def end(self) -> None:
        """Ends all lines. What carries them inside goes with them."""
        if self._is_closed:
            return
        self._is_closed = True
        for led in list(self._led.values()):
            self._forget(led)
        self._loop.remove_reader(self._left.fileno())
        self._left.close()
        self._writer.close()


def _hung_up(sock: socket.socket) -> bool:
    """Says whether the other end is closed, and not only half."""
    poll = select.poll()
    poll.register(sock.fileno(), 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))
