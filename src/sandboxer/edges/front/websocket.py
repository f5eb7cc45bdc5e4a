"""uvicorn's WebSocket protocol with limits on what a client can make the server hold.

A client that does not read gets no more pongs than fit: one of many pings is answered, and none while there
is no room. Received data is handled in small pieces, so that a thousand tiny messages do not become a
thousand objects before the first of them is wanted; and one piece in each turn of the loop, so that a fast
sender does not keep everybody else waiting.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

from uvicorn._types import ASGIReceiveEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from sandboxer.access.connections import Front, Slot
from sandboxer.edges.front.http import SLOT

# How many bytes are handled in one turn of the loop; the rest waits until their messages were taken.
AT_ONCE = 4 * 1024
# The most fragments of one message; `ws_max_size` limits its bytes.
MAX_FRAGMENTS = 1024
CLOSE_TOO_BIG = 1009


class BoundedWebSocket(WebSocketsSansIOProtocol):
    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        self._slot: Slot | None = None
        self._front: Front | None = None
        self._held = b""
        self._next_look: asyncio.Handle | None = None
        self._unsent = 0
        self.deadline = math.inf

    def take(self, slot: Slot, front: Front) -> None:
        """Takes the slot of the connection that it was made from."""
        self._slot, self._front = slot, front
        slot.holder = self
        scope = getattr(self, "scope", None)
        if scope is not None:
            scope[SLOT] = slot

    # ---- the transport's calls ----

    def connection_lost(self, exc: Exception | None) -> None:
        self._held = b""
        if self._next_look is not None:
            self._next_look.cancel()
        if self._slot is not None:
            self._slot.leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._held = self._held + data if self._held else data
        if self._next_look is None:
            self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unsent = self.transport.get_write_buffer_size()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.deadline = math.inf

    # ---- messages ----

    def _look(self) -> None:
        if not self.handshake_initiated:
            # The head, which was judged already and is small.
            data, self._held = self._held, b""
            super().data_received(data)
            return
        if not self._held or self.read_paused or self.transport.is_closing():
            return
        began = time.monotonic()
        piece, self._held = self._held[:AT_ONCE], self._held[AT_ONCE:]
        super().data_received(piece)
        if self._held and not self.transport.is_closing():
            self.transport.pause_reading()
            wait_s = 0.0 if self._front is None else self._front.spend(self._slot, time.monotonic() - began)
            self._next_look = self.loop.call_later(wait_s, self._look_again)

    def _look_again(self) -> None:
        self._next_look = None
        self._look()
        if not self._held and not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    async def receive(self) -> ASGIReceiveEvent:
        message = await super().receive()
        if self._held and not self.read_paused and not self.transport.is_closing():
            # uvicorn resumed reading because the last message was taken; what is held here comes first.
            self.transport.pause_reading()
            if self._next_look is None:
                self._next_look = self.loop.call_soon(self._look_again)
        return message

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= MAX_FRAGMENTS:
            self.conn.fail(CLOSE_TOO_BIG, "too many fragments")
            self.handle_parser_exception()
            return
        super().handle_cont(event)

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        else:
            # The answer is dropped: the protocol requires one only for the newest ping.
            self.conn.data_to_send()

    # ---- the front's calls ----

    def overdue(self) -> None:
        """Called when the client has read nothing for too long."""
        self.deadline = math.inf
        unsent = self.transport.get_write_buffer_size()
        if unsent < self._unsent:
            self._unsent = unsent
            self._wait_for_reader()
        else:
            self.transport.abort()

    def send_away(self) -> None:
        self.transport.abort()

    def is_ending(self) -> bool:
        return self.transport.is_closing()

    def _wait_for_reader(self) -> None:
        if self._front is not None:
            self.deadline = self.loop.time() + self._front.patience.reader_s
