"""Implements a line, one connection to a supervisor: a plain non-blocking socket on the event loop, without a
transport.

Dialling and sending the request happen in the call itself, so that a short command costs two wake-ups of the
loop and no more. Descriptors are only ever sent: `recv` takes none, the kernel closes what a guest passes.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from sandboxer.backends.guest import HandedOver
from sandboxer.backends.launch import Door
from sandboxer.backends.supervisor.codec import HELLO, OLDEST, VERSION, Deframer, Fields, Frame, Tag
from sandboxer.kernel.errors import BackendLost, GuestMisbehaved, NoCapacity, SandboxerError
from sandboxer.kernel.values import value_class

_SMALL, _LARGE = 64 * 1024, 256 * 1024
# Bytes taken from the guest and not yet asked for; beyond it the guest has to wait. All lines to one sandbox
# share a whole: alone, a line has as much as it can use, and among many never less than a small read.
_READ_AHEAD = 1024 * 1024
_READ_AHEAD_OF_ALL = 8 * 1024 * 1024
# Bytes that a frame takes here beside its payload: a million empty ones are not nothing.
_FRAME_COSTS = 128
# Bytes given to us and not yet taken by the guest; beyond it the caller has to wait.
_WRITE_BEHIND = 512 * 1024
# Pages of folders that one sandbox is asked for at the same time.
LISTINGS_AT_ONCE = 2
# How long a stream that was closed on our side goes on sending what it had taken.
FINISH_S = 30.0


class Gate:
    """Limits how many lines to one sandbox may be open at once, and so what a tenant can make the host
    hold.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open = 0
        # Listings take processor time inside, and ours: a tenant who asks for more at once waits for himself.
        self.listing = asyncio.Semaphore(LISTINGS_AT_ONCE)

    @property
    def read_ahead(self) -> int:
        """Returns how many bytes each line may read from the guest ahead of its reader."""
        return min(_READ_AHEAD, max(_SMALL, _READ_AHEAD_OF_ALL // max(1, self._open)))

    def enter(self) -> None:
        if self._open >= self._limit:
            raise NoCapacity(
                resource="streams", why=f"{self._limit} connections to this sandbox are open already"
            )
        self._open += 1

    def leave(self) -> None:
        self._open -= 1


class Tap(Protocol):
    """Is given every frame as it arrives, before it waits for its reader."""

    def heard(self, kind: int, payload: bytes) -> bool:
        """Looks at a frame. Returns True if it was meant for the tap alone. Raises GuestMisbehaved."""

    def lost(self, error: SandboxerError) -> None:
        """Tells the tap that nothing more will come."""


class Line:
    def __init__(
        self, sock: socket.socket, *, raw_after_done: bool = False, gate: Gate | None = None
    ) -> None:
        self._sock = sock
        self._gate = gate
        self._loop = asyncio.get_running_loop()
        self._deframer = Deframer(raw_after_done=raw_after_done)
        self._frames: deque[tuple[int, bytes]] = deque()
        self._queued = 0
        self._reading = False
        self._greeted = False
        self._version = 0
        self._tap: Tap | None = None
        self._failure: SandboxerError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._out: deque[memoryview] = deque()
        self._out_bytes = 0
        self._drained: asyncio.Future[None] | None = None
        self._shut_when_sent = False
        self._finishing: asyncio.TimerHandle | None = None
        self._closed = False
        self._resume()

    # ---- towards us ----

    async def next(self, limit_s: float | None) -> tuple[int, bytes]:
        """Returns the next frame (or piece of a streamed one). Raises BackendLost, GuestMisbehaved."""
        if not self._frames:
            if limit_s is None:
                await self._wait()
            else:
                try:
                    async with asyncio.timeout(limit_s):
                        await self._wait()
                except TimeoutError:
                    raise BackendLost(why=f"no answer from the supervisor within {limit_s:g} s") from None
        kind, payload = self._frames.popleft()
        # Nothing left is zero, whatever headers were counted: a reader that caught up must never stay paused.
        self._queued = self._queued - len(payload) - _FRAME_COSTS if self._frames else 0
        if not self._reading and self._queued < self._ahead():
            self._resume()
        if not self._greeted:
            self._check_welcome(kind, payload)
            if kind == Frame.WELCOME:
                return await self.next(limit_s)
        return kind, payload

    def _check_welcome(self, kind: int, payload: bytes) -> None:
        if kind == Frame.WELCOME:
            version = Fields(payload).u32(Tag.VERSION)
            if not OLDEST <= version <= VERSION:
                raise GuestMisbehaved(why=f"version {version} was not offered")
            self._greeted = True
            self._version = version
        elif kind != Frame.ERROR:
            raise GuestMisbehaved(why=f"frame {kind:#x} instead of a welcome")

    @property
    def version(self) -> int:
        """Returns the version of the protocol that the guest agreed to; 0 before its first answer was
        read.
        """
        return self._version

    def divert(self, tap: Tap) -> None:
        """Gives every frame to a tap from now on, also those that are here already."""
        self._tap = tap
        waiting, self._frames = self._frames, deque()
        self._frames.extend(found for found in waiting if not tap.heard(*found))
        if self._failure:
            tap.lost(self._failure)

    def _sort(self, data: bytes) -> None:
        """Gives frames to the tap or to the reader."""
        for kind, payload in self._deframer.feed(data):
            if self._tap is None or not self._tap.heard(kind, payload):
                self._frames.append((kind, payload))

    async def _wait(self) -> None:
        while not self._frames:
            if self._failure:
                raise self._failure
            if self._waiter:
                raise RuntimeError("two readers on one line")
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def _resume(self) -> None:
        if not self._closed and not self._failure:
            self._loop.add_reader(self._sock.fileno(), self._readable)
            self._reading = True

    def _pause(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._sock.fileno())
            self._reading = False

    def _readable(self) -> None:
        try:
            data = self._sock.recv(min(_LARGE, self._ahead()) if self._queued else _SMALL)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(BackendLost(why=f"the line to the supervisor broke: {error.strerror}"))
            return
        if not data:
            self._fail(BackendLost(why="the supervisor closed the line"))
            return
        before = len(self._frames)
        try:
            self._sort(data)
        except SandboxerError as error:
            self._fail(error)
            return
        costs = len(data) + (len(self._frames) - before) * _FRAME_COSTS
        self._queued = self._queued + costs if self._frames else 0
        if self._queued >= self._ahead():
            self._pause()
        if self._waiter and self._frames and not self._waiter.done():
            self._waiter.set_result(None)

    def _ahead(self) -> int:
        return _READ_AHEAD if self._gate is None else self._gate.read_ahead

    def _fail(self, error: SandboxerError) -> None:
        self._failure = self._failure or error
        self._pause()
        if self._tap is not None:
            self._tap.lost(self._failure)
        for future in (self._waiter, self._drained):
            if future and not future.done():
                future.set_result(None)

    @property
    def refused(self) -> bool:
        """Says whether the guest has already refused, or is gone, so that sending more is useless."""
        return self._failure is not None or any(kind == Frame.ERROR for kind, _ in self._frames)

    # ---- towards the guest ----

    def send(self, *parts: bytes | memoryview, passed_fd: int | None = None) -> None:
        """Sends now what the socket takes, the rest later. On a broken line nothing; `drain` says so."""
        sent = 0
        if self._failure:
            return
        if not self._out:
            try:
                if passed_fd is None:
                    sent = self._sock.sendmsg(parts)
                else:
                    sent = socket.send_fds(self._sock, list(parts), [passed_fd])
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as error:
                # What it said before it hung up is still to be read, so only writing has failed.
                self._lost_out(error)
                return
        for part in parts:
            if sent >= len(part):
                sent -= len(part)
            else:
                self._keep(memoryview(part)[sent:])
                sent = 0

    def _keep(self, rest: memoryview) -> None:
        if not self._out:
            self._loop.add_writer(self._sock.fileno(), self._writable)
        self._out.append(rest)
        self._out_bytes += len(rest)

    def _writable(self) -> None:
        try:
            sent = self._sock.sendmsg(list(self._out)[:64])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lost_out(error)
            return
        self._out_bytes -= sent
        while self._out and sent >= len(self._out[0]):
            sent -= len(self._out.popleft())
        if sent:
            self._out[0] = self._out[0][sent:]
        if not self._out:
            self._loop.remove_writer(self._sock.fileno())
            if self._shut_when_sent:
                self._shut()
            if self._finishing:
                self.close()
        self._wake_drained()

    def _lost_out(self, error: OSError) -> None:
        if self._out:
            self._loop.remove_writer(self._sock.fileno())
        self._out.clear()
        self._out_bytes = 0
        if self._finishing:
            self.close()
            return
        if not self._reading:
            self._fail(BackendLost(why=f"the line to the supervisor broke: {error.strerror}"))
        self._wake_drained()

    def _wake_drained(self) -> None:
        if self._drained and not self._drained.done() and self._out_bytes < _WRITE_BEHIND:
            self._drained.set_result(None)

    async def drain(self, limit_s: float | None = None) -> None:
        """Waits until the guest has taken enough. Raises what broke the line, unless it left a last word."""
        if self._out_bytes >= _WRITE_BEHIND:
            try:
                async with asyncio.timeout(limit_s):
                    await self._wait_drained()
            except TimeoutError:
                raise BackendLost(why=f"the supervisor took nothing for {limit_s} s") from None
        if self._failure and not self._frames:
            raise self._failure

    async def _wait_drained(self) -> None:
        while self._out_bytes >= _WRITE_BEHIND and not self._failure:
            self._drained = self._loop.create_future()
            try:
                await self._drained
            finally:
                self._drained = None

    def shut_write(self) -> None:
        """Half-closes the line once everything is sent."""
        self._shut_when_sent = True
        if not self._out:
            self._shut()

    def _shut(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            return  # the other end has gone already; reading tells

    def hand_over(self) -> HandedOver:
        """Returns the socket of a line that carries plain bytes by now. The caller watches it from then
        on.
        """
        if self._closed or self._out:
            raise BackendLost(why="the line is closed, or has something to send")
        self._pause()
        received = b"".join(payload for _, payload in self._frames)
        self._frames.clear()
        self._closed = True
        return HandedOver(self._sock, received, self._gate.leave if self._gate else lambda: None)

    def finish(self, limit_s: float = FINISH_S) -> None:
        """Closes once everything that was given to `send` is sent, as a socket would; or after `limit_s`."""
        if self._closed or self._finishing:
            return
        if not self._out or self._failure:
            self.close()
            return
        self._pause()
        self._finishing = self._loop.call_later(limit_s, self.close)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._finishing:
            self._finishing.cancel()
        if self._gate:
            self._gate.leave()
        if self._out:
            self._loop.remove_writer(self._sock.fileno())
            self._out.clear()
        self._fail(BackendLost(why="the line was closed on our side"))
        self._sock.close()


@value_class
class Peer:
    """Says where a supervisor listens, and how long one waits for it."""

    path: Door
    # For a question that is one system call inside, and for work that may take a while.
    answer_s: float
    work_s: float
    gate: Gate | None

    async def dial(self, request: bytes, *, passed_fd: int | None = None, is_raw: bool = False) -> Line:
        return await dial(
            self.path,
            request,
            passed_fd=passed_fd,
            limit_s=self.answer_s,
            raw_after_done=is_raw,
            gate=self.gate,
        )


async def dial(
    path: Door,
    request: bytes,
    *,
    passed_fd: int | None = None,
    limit_s: float = 10,
    raw_after_done: bool = False,
    gate: Gate | None = None,
) -> Line:
    """Opens a line and sends the greeting and `request`. Raises BackendLost, NoCapacity."""
    if gate:
        gate.enter()
    try:
        sock = await _connect(path, limit_s) if isinstance(path, str) else await _enter(path)
        try:
            line = Line(sock, raw_after_done=raw_after_done, gate=gate)
        except BaseException:
            sock.close()
            raise
    except BaseException:
        if gate:
            gate.leave()
        raise
    line.send(HELLO + request, passed_fd=passed_fd)
    return line


async def _enter(door: Callable[[], Awaitable[socket.socket]]) -> socket.socket:
    try:
        return await door()
    except OSError as error:
        raise _unreached(error) from None


async def _connect(path: str, limit_s: float) -> socket.socket:
    try:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    except OSError as error:
        raise NoCapacity(resource="descriptors", why=error.strerror) from None
    try:
        deadline = time.monotonic() + limit_s
        while not _connected(sock, path):
            # The backlog is full: the supervisor is busy or stopped. The kernel offers nothing to wait on.
            if time.monotonic() > deadline:
                raise BackendLost(why="the supervisor does not take calls")
            await asyncio.sleep(0.005)
    except BaseException:
        sock.close()
        raise
    return sock


def _connected(sock: socket.socket, path: str) -> bool:
    try:
        sock.connect(path)
    except BlockingIOError:
        return False
    except OSError as error:
        raise _unreached(error) from None
    return True


def _unreached(error: OSError) -> SandboxerError:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return NoCapacity(resource="descriptors", why=error.strerror)
    return BackendLost(why=f"the supervisor cannot be reached: {error.strerror or error}")
