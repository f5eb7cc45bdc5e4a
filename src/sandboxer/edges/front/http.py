"""uvicorn's HTTP protocol behind the strict reader of heads, with limits in bytes and in time.

A request reaches uvicorn's parser only when its whole head has arrived and was judged as strictly as the
ports proxy does. Bodies are followed to their end, so that no part of one is ever taken for a request. The
next request of a connection waits here, in few bytes, until the previous one is answered.

uvicorn's WebSocket protocol with limits on what a client can make the server hold.

A client that does not read gets no more pongs than fit: one of many pings is answered, and none while there
is no room. Received data is handled in small pieces, so that a thousand tiny messages do not become a
thousand objects before the first of them is wanted; and one piece in each turn of the loop, so that a fast
sender does not keep everybody else waiting.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any, cast

from uvicorn._types import ASGIReceiveEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from sandboxer.access.connections import Front, Slot
from sandboxer.access.http1.framing import BadChunk, Body, Counted, Rechunked
from sandboxer.access.http1.heads import BadHead, judge_request
from sandboxer.edges.front import acceptor

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
        if (scope := getattr(self, "scope", None)) is not None:
            scope[SLOT] = slot
        if not self.handshake_initiated:
            # Its parser takes shorter lines than ours, and says nothing about longer ones.
            slot.refused()
            self.transport.write(acceptor.bad_request("its head is too long for a WebSocket", 431))
            self.transport.close()

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
        if not self.handshake_complete:
            # Whether there will be anybody who wants frames is not decided yet.
            if len(self._held) > AT_ONCE:
                self.transport.pause_reading()
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

    def start_keepalive(self) -> None:
        """Called when the upgrade is accepted: what came before that is looked at now."""
        super().start_keepalive()
        if self._held and self._next_look is None:
            self._next_look = self.loop.call_soon(self._look_again)

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
        if (unsent := self.transport.get_write_buffer_size()) < self._unsent:
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


# The scope key under which a request finds the slot of its connection.
SLOT = "sandboxer.connection"
# Enough for a percent-encoded path of 4 KiB beside the longest cursor, and for the headers of a payment.
MAX_HEAD = 64 * 1024
MAX_TARGET = 32 * 1024
# How much is read from a client ahead of need.
READ_AHEAD = 64 * 1024
# How much of an unwanted body is read, from a stranger and from a known caller. Many clients read an answer
# only after they have sent everything; without this it would be lost with the connection.
UNWANTED_BODY = 1024 * 1024
UNWANTED_BODY_OF_KNOWN = 1024 * 1024 * 1024
LAST_WORDS_S = 2.0


class StrictHttp(HttpToolsProtocol):
    """`front` is set by whoever makes the class for a listener."""

    front: Front

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        self._slot: Slot | None = None
        self._early = b""
        self._buffer = b""
        # What is still to come of the present request.
        self._body: Body | None = None
        self._unwanted = 0
        self._is_leaving = False
        self._unsent = 0
        self.deadline = math.inf

    # ---- the transport's calls ----

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.deadline = self.loop.time() + self.front.patience.first_byte_s
        if self._slot is not None:
            self._slot.holder = self
            self._slot.waits()
        if self._early:
            early, self._early = self._early, b""
            self.data_received(early)

    def take(self, slot: Slot, early: bytes = b"") -> None:
        """Takes the slot that the connection got when it was accepted, and what was read of it before."""
        self._slot = slot
        self._early = early

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_leaving = True
        if self._slot is not None:
            self._slot.leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_leaving:
            self._drop(data)
        elif self._body is not None:
            self._read_body(self._body, data)
        else:
            self._buffer = self._buffer + data if self._buffer else data
            self._next()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unsent = self.transport.get_write_buffer_size()
        self.deadline = self.loop.time() + self.front.patience.reader_s

    def resume_writing(self) -> None:
        super().resume_writing()
        self.deadline = math.inf if not self._is_answered() else self._idle_until()

    # ---- a request ----

    def _next(self) -> None:
        """Begins the next request, if its whole head has arrived and the previous one is answered."""
        buffer = self._buffer
        if not self._is_answered():
            if len(buffer) > READ_AHEAD:
                self.transport.pause_reading()
            return
        while buffer[:2] == b"\r\n":
            buffer = self._buffer = buffer[2:]
        if (end := buffer.find(b"\r\n\r\n")) < 0 or end > MAX_HEAD:
            if len(buffer) > MAX_HEAD:
                self.refuse(acceptor.bad_request("its head is too long", 431))
            elif buffer:
                self.deadline = min(self.deadline, self.loop.time() + self.front.patience.head_s)
            return
        if self._is_for_another(buffer):
            return
        whole = buffer[: end + 4]
        try:
            length = judge_request(whole, most_target=MAX_TARGET)
        except BadHead as error:
            self.refuse(acceptor.bad_request(error.why, error.status))
            return
        self._buffer = b""
        self._begin(length, whole, buffer[end + 4 :])

    def _begin(self, length: int | None, whole: bytes, rest: bytes) -> None:
        if not self.flow.write_paused:
            # Else its client must still read the answer before.
            self.deadline = math.inf
        if self._slot is not None:
            self._slot.serves()
        self._unwanted = 0
        if length is None:
            self._body = Rechunked()
        elif length:
            self._body = Counted(length)
        super().data_received(whole)
        if not rest or self._is_leaving or self.transport.is_closing():
            return
        if self._body is not None:
            self._read_body(self._body, rest)
            return
        if (taker := cast(asyncio.Protocol, self.transport.get_protocol())) is self:
            self._buffer = rest
            self._next()
        else:
            # It is a WebSocket by now.
            taker.data_received(rest)

    def _read_body(self, body: Body, data: bytes) -> None:
        try:
            payload = body.feed(data)
        except BadChunk as error:
            self._break_off(acceptor.bad_request(str(error)))
            return
        if self._is_answered() and not self._drop(data):
            return
        if payload:
            super().data_received(payload)
        if body.is_over and not self._is_leaving:
            self._body = None
            self._buffer = body.rest
            if self._buffer or self._is_answered():
                self._next()

    def _drop(self, data: bytes) -> bool:
        """Counts unwanted bytes. Returns False if there were too many."""
        self._unwanted += len(data)
        is_known = self._slot is not None and self._slot.account is not None
        if self._unwanted > (UNWANTED_BODY_OF_KNOWN if is_known else UNWANTED_BODY):
            self.transport.abort()
            return False
        if not self._is_leaving:
            self.deadline = self.loop.time() + self.front.patience.body_s
        return True

    def _is_answered(self) -> bool:
        cycle = self.cycle
        return cycle is None or cycle.response_complete

    def _is_for_another(self, buffer: bytes) -> bool:
        """Tells whether the connection was handed over, with everything that has arrived."""
        return False

    # ---- uvicorn's calls ----

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[SLOT] = self._slot  # type: ignore[literal-required]

    def send_400_response(self, msg: str) -> None:
        """Refuses what uvicorn's parser does not take, such as a method that it does not know."""
        self._break_off(acceptor.bad_request("its method or its head is not known here"))

    def on_response_complete(self) -> None:
        """Does what uvicorn does, without a timer for each request: the front watches deadlines."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        self.transport.resume_reading()
        if not self.flow.write_paused:
            self.deadline = self._idle_until()
        if self._slot is not None:
            self._slot.waits()
        if self._buffer and self._body is None:
            # The next request came before this answer. It is handled from the loop, or many in a row would
            # nest too deep.
            self.loop.call_soon(self._go_on)

    def handle_websocket_upgrade(self) -> None:
        super().handle_websocket_upgrade()
        taker: Any = self.transport.get_protocol()
        if self._slot is not None and hasattr(taker, "take"):
            taker.take(self._slot, self.front)

    def _go_on(self) -> None:
        if not self._is_leaving and self._body is None and self.transport.get_protocol() is self:
            self._next()

    def _idle_until(self) -> float:
        patience = self.front.patience
        return self.loop.time() + (patience.idle_s if self._body is None else patience.body_s)

    # ---- ends ----

    def overdue(self) -> None:
        """Called when its deadline has passed."""
        self.deadline = math.inf
        if self._is_leaving:
            self.transport.abort()
        elif self.flow.write_paused:
            if (unsent := self.transport.get_write_buffer_size()) < self._unsent:
                self._unsent = unsent
                self.deadline = self.loop.time() + self.front.patience.reader_s
            else:
                self.transport.abort()
        elif self._buffer and self._is_answered():
            self.refuse(acceptor.too_slow())
        else:
            self.transport.close()

    def send_away(self) -> None:
        self._is_leaving = True
        self.transport.abort()

    def is_ending(self) -> bool:
        return self.transport.is_closing()

    def refuse(self, answer: bytes) -> None:
        """Sends an answer of our own and ends the connection. It reads on for a moment, because an abrupt end
        could destroy the answer.
        """
        self._is_leaving = True
        self._buffer = b""
        if self._slot is not None:
            self._slot.refused()
        if self.transport.is_closing():
            return
        self.transport.write(answer)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.deadline = self.loop.time() + LAST_WORDS_S
        self.transport.resume_reading()

    def _break_off(self, answer: bytes) -> None:
        """Ends a request whose rest cannot be read: its handler sees that the client has gone."""
        cycle = self.cycle
        self._body = None
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.abort()
                return
        self.refuse(answer)
