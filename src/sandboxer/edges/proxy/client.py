"""A client's connection reads requests one after another, has each admitted, and hands it to an exchange.

The common case (a known name, an idle connection to the sandbox) needs no task and no wait; anything else
happens in a task of the listener. Clients that are slow or silent for too long are disconnected.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from sandboxer.access.connections import Front, Slot
from sandboxer.access.http1.heads import MAX_HEAD, BadHead, read_request
from sandboxer.access.ports.targets import Targets
from sandboxer.accounts.limits import Network
from sandboxer.edges.proxy import answers
from sandboxer.edges.proxy.doors import Admission, Door, Peer, VisitorLimits, peer_of
from sandboxer.edges.proxy.exchange import Exchange
from sandboxer.edges.proxy.upstream import Pool, Upstream
from sandboxer.kernel.errors import SandboxerError
from sandboxer.kernel.tasks import TaskOwner

log = logging.getLogger(__name__)
WRITE_BUFFER = 128 * 1024
# How much is read from a client ahead of need.
READ_AHEAD = 64 * 1024
# How much is read after a refusal, so that the refusal is not lost with the connection.
UNWANTED = 1024 * 1024


@dataclass(slots=True, kw_only=True)
class Proxy:
    """What all connections to ports share."""

    pool: Pool
    targets: Targets
    tasks: TaskOwner
    trusted: Sequence[Network]
    visitor_limits: VisitorLimits
    connections: set[ClientConnection]
    front: Front


class ClientConnection(asyncio.Protocol):
    def __init__(self, proxy: Proxy, door: Door, slot: Slot) -> None:
        self._proxy = proxy
        self._door = door
        # The slot that it got when it was accepted.
        self._slot = slot
        self._loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self.peer: Peer
        self._buffer = b""
        self._exchange: Exchange | None = None
        self._admission: Admission | None = None
        # Whether its request is being admitted, or connected to the sandbox.
        self._is_opening = False
        self._is_leaving = False
        # Whether it has not read what it was answered: its next request waits, because the transport tells of
        # a full buffer only once.
        self._is_full = False
        self._unwanted_left = UNWANTED
        self.deadline = math.inf

    # ---- the transport's calls ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER)
        proxy = self._proxy
        self.peer = peer_of(transport.get_extra_info("peername"), proxy.trusted)
        proxy.connections.add(self)
        self.deadline = self._loop.time() + proxy.front.patience.first_byte_s
        self._slot.holder = self
        self._slot.waits()

    def data_received(self, data: bytes) -> None:
        if self._is_leaving:
            self._unwanted_left -= len(data)
            if self._unwanted_left < 0:
                self.transport.abort()
            return
        exchange = self._exchange
        if exchange is None or self._is_opening or (exchange.has_whole_request and not exchange.is_tunnel):
            self._buffer = self._buffer + data if self._buffer else data
            if exchange is None:
                self._next()
            elif len(self._buffer) > READ_AHEAD:
                self.transport.pause_reading()
            return
        if not exchange.is_tunnel:
            self.deadline = self._loop.time() + self._proxy.front.patience.body_s
        if rest := exchange.client_data(data):
            self._buffer += rest

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._proxy.connections.discard(self)
        self._is_leaving = True
        self._slot.leave()
        self._drop()

    def pause_writing(self) -> None:
        self._is_full = True
        self.deadline = self._loop.time() + self._proxy.front.patience.reader_s
        if self._exchange is not None and not self._is_opening:
            self._exchange.client_full()

    def resume_writing(self) -> None:
        self._is_full = False
        self.deadline = math.inf
        if self._exchange is None:
            self.deadline = self._loop.time() + self._proxy.front.patience.idle_s
            self.transport.resume_reading()
            self._loop.call_soon(self._go_on)
        elif not self._is_opening:
            self._exchange.client_drained()

    # ---- a request ----

    def _next(self) -> None:
        """Begins a request if a whole head has arrived, and the client reads what it is answered."""
        buffer = self._buffer
        if self._is_full:
            if len(buffer) > READ_AHEAD:
                self.transport.pause_reading()
            return
        while buffer[:2] == b"\r\n":
            buffer = self._buffer = buffer[2:]
        if (end := buffer.find(b"\r\n\r\n")) < 0 or end > MAX_HEAD:
            if len(buffer) > MAX_HEAD:
                self._refuse(answers.bad_request("its head is too long", 431))
            elif buffer and self.deadline > self._loop.time() + self._proxy.front.patience.head_s:
                self.deadline = self._loop.time() + self._proxy.front.patience.head_s
            return
        if not self._door.is_mine(buffer):
            self._pass_door()
            return
        try:
            head = read_request(buffer[: end + 4])
        except BadHead as error:
            self._refuse(answers.bad_request(error.why, error.status))
            return
        self._buffer = buffer[end + 4 :]
        self._slot.serves()
        exchange = self._exchange = Exchange(self, head)
        if (admission := self._door.glance(head)) is not None:
            target = admission.way.target
            if (upstream := self._proxy.pool.take((target.sandbox_id, target.port))) is not None:
                self._enter(admission)
                self._begin(exchange, upstream)
                return
        self._is_opening = True
        self.deadline = math.inf
        self._proxy.tasks.start(self._open(exchange, None), name="open a port")

    async def _open(self, exchange: Exchange, admission: Admission | None, *, fresh: bool = False) -> None:
        """Admits and connects. It goes on if the client leaves, because a wake must not end half-way."""
        upstream: Upstream | None = None
        answer: bytes | None = None
        try:
            if admission is None:
                found = await self._door.admit(exchange.head, self.peer)
                if isinstance(found, bytes):
                    answer = found
                else:
                    admission = found
            if admission is not None:
                if exchange is self._exchange:
                    self._enter(admission)
                target = admission.way.target
                may_wake = partial(
                    self._proxy.visitor_limits.count_wake, exchange.head, self.peer, target, admission.target
                )
                upstream = await self._proxy.pool.get(target, admission.again, may_wake=may_wake, fresh=fresh)
        except SandboxerError as error:
            answer = answers.of_error(error, None if admission is None else admission.way.target)
        except Exception:
            # Outermost of this request: a bug in one must not end the listener.
            log.exception("a request for a port broke")
            answer = answers.problem(
                500,
                "broken",
                "Something broke on our side.",
                fault=answers.PLATFORM,
                next_step="Tell the operator.",
            )
        if exchange is not self._exchange:
            # The client has gone meanwhile.
            if upstream is not None:
                self._proxy.pool.give_back(upstream)
            return
        self._is_opening = False
        if upstream is None:
            self._say(answer or b"")
        else:
            self._begin(exchange, upstream)

    def _enter(self, admission: Admission) -> None:
        if self._admission is None:
            self._admission = admission
            admission.way.passage.enter()
            self._proxy.targets.touched(admission.way.target.sandbox_id)

    def _begin(self, exchange: Exchange, upstream: Upstream) -> None:
        admission = self._admission
        assert admission is not None
        self.deadline = self._loop.time() + self._proxy.front.patience.body_s
        exchange.begin(admission, upstream, self.peer.forwarded(exchange.head, admission.way.prefix))
        if self._buffer and not exchange.has_whole_request:
            data, self._buffer = self._buffer, b""
            self._buffer = exchange.client_data(data)
            self.transport.resume_reading()

    # ---- the exchange's calls ----

    def request_sent(self) -> None:
        if (exchange := self._exchange) is not None and not exchange.has_answer_begun:
            self.deadline = self._loop.time() + self._proxy.front.patience.answer_s

    def answer_began(self) -> None:
        self.deadline = math.inf

    def tunnelled(self) -> None:
        self.deadline = math.inf
        if self._buffer and self._exchange is not None:
            data, self._buffer = self._buffer, b""
            self._exchange.client_data(data)

    def exchange_over(self, *, keeps_alive: bool) -> None:
        self._leave()
        if not keeps_alive:
            self._close()
            return
        if not self._is_full:
            self.deadline = self._loop.time() + self._proxy.front.patience.idle_s
        self._slot.waits()
        self.transport.resume_reading()
        if self._buffer:
            # The next request came before this answer. It is handled from the loop, or many in a row would
            # nest too deep.
            self._loop.call_soon(self._go_on)

    def exchange_failed(self, answer: bytes | None) -> None:
        self._leave()
        if answer is None:
            self.transport.abort()
        else:
            self._say(answer)

    def retry(self) -> None:
        exchange = self._exchange
        assert exchange is not None
        again = self._exchange = Exchange(self, exchange.head)
        self._is_opening = True
        self.deadline = math.inf
        self._proxy.tasks.start(self._open(again, self._admission, fresh=True), name="open a port again")

    # ---- ends ----

    def overdue(self) -> None:
        """Called when its deadline has passed."""
        self.deadline = math.inf
        if (exchange := self._exchange) is None:
            if self._buffer:
                self._say(answers.too_slow())
            else:
                self._close()
        elif exchange.has_answer_begun:
            self.transport.abort()
        elif exchange.has_whole_request:
            self._say(answers.too_slow_inside(self._proxy.front.patience.answer_s))
        else:
            self._say(answers.too_slow())

    def send_away(self) -> None:
        """Closes it because another connection needs its place."""
        self._is_leaving = True
        self._drop()
        self.transport.abort()

    def is_ending(self) -> bool:
        return self.transport.is_closing()

    async def look(self) -> None:
        """Ends what was opened by something that is no longer valid."""
        if (admission := self._admission) is None or admission.stands is None:
            return
        try:
            await admission.stands()
        except SandboxerError:
            if admission is self._admission:
                self.transport.abort()

    def shut_down(self) -> None:
        """Closes the connection when the listener closes."""
        self._is_leaving = True
        self._drop()
        self.transport.close()

    def _pass_door(self) -> None:
        """Called when the next request is not for ports. A connection that serves both hands it over."""
        self._say(answers.bad_request("it is not for a port of a sandbox", 404))

    def _go_on(self) -> None:
        if self._exchange is None and not self._is_leaving:
            self._next()

    def _refuse(self, answer: bytes) -> None:
        self._slot.refused()
        self._say(answer)

    def _say(self, answer: bytes) -> None:
        """Sends an answer of our own and ends the connection."""
        self._drop()
        self.transport.write(answer)
        self._close()

    def _close(self) -> None:
        """Closes, but reads on for a moment: an abrupt end could destroy our answer on its way."""
        self._is_leaving = True
        self._buffer = b""
        if not self.transport.is_closing():
            self.transport.resume_reading()
            if self.transport.can_write_eof():
                self.transport.write_eof()
            self.deadline = self._loop.time() + 2.0

    def _drop(self) -> None:
        if (exchange := self._exchange) is not None:
            exchange.abandon()
        self._leave()

    def _leave(self) -> None:
        self._exchange = None
        self._is_opening = False
        admission, self._admission = self._admission, None
        if admission is not None:
            admission.way.passage.leave()
