"""A wire is one end of a proxied connection: it is read as a message, or piped to the other end by callbacks
alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from sandboxer.access.http1.framing import BadChunk, Body
from sandboxer.access.http1.heads import MAX_HEAD, BadHead

# How many received bytes may be unread; beyond it the other side has to wait.
_READ_AHEAD = 128 * 1024
_WRITE_BUFFER = 256 * 1024
# Reasons why reading is paused; it resumes when none is left.
_FULL, _THROTTLED, _AHEAD = 1, 2, 4

Count = Callable[[int], float]


class Gone(Exception):
    """The other side hung up before it had said everything."""


class Wire(asyncio.Protocol):
    __slots__ = (
        "_body",
        "_buffer",
        "_count",
        "_drained",
        "_halts",
        "_is_late",
        "_loop",
        "_lost",
        "_over",
        "_peer",
        "_source",
        "_waiter",
        "_wrote",
        "born",
        "fault",
        "has_ended",
        "heard",
        "is_lost",
        "is_over",
        "said",
        "tied",
        "transport",
    )

    def __init__(
        self,
        count: Count,
        lost: Callable[[], None] | None = None,
        wrote: Callable[[int], None] | None = None,
    ) -> None:
        """`count` is called for received bytes and returns how long the next ones have to wait."""
        self._loop = asyncio.get_running_loop()
        self._count = count
        self._lost = lost
        self._wrote = wrote
        self._buffer = b""
        # Where received bytes go, how that ends, and where sent bytes come from.
        self._peer: Wire | None = None
        self._body: Body | None = None
        self._source: Wire | None = None
        # The wire to close when this one is lost.
        self.tied: Wire | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._over: asyncio.Future[None] | None = None
        self._halts = 0
        self._is_late = False
        self.transport: asyncio.Transport
        self.has_ended = self.is_lost = False
        # Done when nothing more is piped from here; and what went wrong.
        self.is_over = True
        self.fault: BadChunk | None = None
        # Bytes sent and bytes received on this wire.
        self.said = 0
        self.heard = 0
        self.born = self._loop.time()

    # ---- from the loop ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not a subclass.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=_WRITE_BUFFER)

    def data_received(self, data: bytes) -> None:
        wait = self._count(len(data))
        self.heard += len(data)
        if self._peer is not None:
            self._pass_on(data)
        else:
            self._buffer = self._buffer + data if self._buffer else data
            if len(self._buffer) > _READ_AHEAD:
                self._halt(_AHEAD)
            self._wake()
        if wait > 0 and not self.is_lost:
            self._halt(_THROTTLED)
            self._loop.call_later(wait, self._go_on, _THROTTLED)

    def eof_received(self) -> bool:
        self.has_ended = True
        if self._peer is not None:
            self._end()
        self._wake()
        # Half-closed; only TLS cannot be.
        return self.transport.get_extra_info("ssl_object") is None

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.is_lost = self.has_ended = True
        if self._lost is not None:
            self._lost()
        if self.tied is not None:
            self.tied.abort()
        for other, body in ((self._peer, self._body), (self._source, self._source and self._source._body)):
            if other is not None and body is None:
                other.close()
        self.unpipe()
        self._let_go()
        self._wake()

    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()
        if self._source is not None:
            self._source._halt(_FULL)

    def resume_writing(self) -> None:
        self._let_go()
        if self._source is not None:
            self._source._go_on(_FULL)

    def _let_go(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    # ---- as a message ----

    async def head(self, within_s: float) -> bytes:
        """Returns a head with its empty line. Raises BadHead for one that is too long, TimeoutError, Gone."""
        looked = 0
        timer: asyncio.TimerHandle | None = None
        try:
            while (end := self._buffer.find(b"\r\n\r\n", looked)) < 0:
                if len(self._buffer) > MAX_HEAD:
                    raise BadHead("its head is too long", 431)
                looked = max(0, len(self._buffer) - 3)
                # A timer of our own, since `asyncio.timeout` for every head would cost ten times as much.
                timer = timer or self._loop.call_later(within_s, self._expire)
                await self._more()
        finally:
            if timer is not None:
                timer.cancel()
        if end > MAX_HEAD:
            raise BadHead("its head is too long", 431)
        return self._take(end + 4)

    async def stirs(self, within_s: float) -> bool:
        """Tells whether anything arrives in that time."""
        if self._buffer:
            return True
        timer = self._loop.call_later(within_s, self._expire)
        try:
            await self._more()
        except (Gone, TimeoutError):
            return False
        finally:
            timer.cancel()
        return bool(self._buffer)

    async def look(self, enough: Callable[[bytes], bool]) -> None:
        """Returns once enough has arrived, without consuming it. Raises Gone."""
        while not enough(self._buffer):
            await self._more()

    @property
    def address(self) -> str:
        """The address at its other end; empty if it is gone."""
        return str((self.transport.get_extra_info("peername") or ("",))[0])

    @property
    def has_early_bytes(self) -> bool:
        return bool(self._buffer)

    def _expire(self) -> None:
        self._is_late = True
        self._wake()

    @property
    def has_unsent(self) -> bool:
        return not self.is_lost and self.transport.get_write_buffer_size() > 0

    async def _more(self) -> None:
        if self.has_ended:
            raise Gone
        self._is_late = False
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self._is_late:
            raise TimeoutError

    def _take(self, length: int) -> bytes:
        buffer = self._buffer
        taken, self._buffer = buffer[:length], buffer[length:]
        if self._halts and len(self._buffer) <= _READ_AHEAD:
            self._go_on(_AHEAD)
        return taken

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def write(self, data: bytes) -> None:
        if not self.is_lost:
            self.said += len(data)
            if self._wrote is not None:
                self._wrote(len(data))
            self.transport.write(data)

    @property
    def is_full(self) -> bool:
        return self._drained is not None

    async def drained(self) -> None:
        """Returns once the other side has read enough, or is gone."""
        if self._drained is not None:
            await self._drained

    # ---- as a pipe ----

    def pipe(self, peer: Wire, body: Body | None = None, before: bytes = b"") -> None:
        """Passes everything received to the peer from now on, after `before`: up to the end of the body, or
        for ever.
        """
        self._peer, peer._source = peer, self
        self._body = body
        self.is_over = False
        if before or self._buffer:
            self._pass_on(self._take(len(self._buffer)), before)
        if self.has_ended and not self.is_over:
            self._end()

    def _pass_on(self, data: bytes, before: bytes = b"") -> None:
        peer, body = self._peer, self._body
        if peer is None or peer.is_lost:
            self.unpipe()
            if body is None:
                self.close()
            return
        if body is not None:
            try:
                data = body.feed(data)
            except BadChunk as error:
                self.fault = error
                peer.abort()
                self.unpipe()
                return
        if before:
            data = before + data
        if data:
            peer.write(data)
        if body is not None and body.is_over:
            # What comes after the body is not for the peer.
            self._buffer = body.rest
            self.unpipe()

    def _end(self) -> None:
        """Handles the end of input: a tunnel is half-closed; a body was cut short or is complete."""
        peer, is_tunnel = self._peer, self._body is None
        self.unpipe()
        if peer is None or peer.is_lost or peer.transport.is_closing():
            return
        if is_tunnel and peer.transport.can_write_eof():
            peer.transport.write_eof()

    def unpipe(self) -> None:
        """Passes nothing on any more; what is received is kept for who reads it."""
        peer, self._peer = self._peer, None
        if peer is not None:
            peer._source = None
            self._go_on(_FULL)
        self._body = None
        self.is_over = True
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    def when_over(self) -> asyncio.Future[None]:
        """Done once nothing more is to be piped from here."""
        over = self._over = self._loop.create_future()
        if self.is_over:
            over.set_result(None)
        return over

    def _halt(self, why: int) -> None:
        if not self._halts and not self.is_lost and not self.has_ended:
            self.transport.pause_reading()
        self._halts |= why

    def _go_on(self, why: int) -> None:
        if not self._halts & why:
            return
        self._halts &= ~why
        if not self._halts and not self.is_lost and not self.transport.is_closing():
            self.transport.resume_reading()

    def close(self) -> None:
        """Closes after what was written is sent."""
        if not self.is_lost:
            self.transport.close()

    def abort(self) -> None:
        if not self.is_lost:
            self.transport.abort()
