"""Accepts a listener's connections, and keeps those that have not sent anything as bare sockets.

A silent connection costs only its descriptor and its slot: it has no transport, parser or task before its
first byte. One poll object watches all of them. The time for accepting in one turn is limited, so that others
are served while thousands arrive.

What a listener itself answers are whole messages that close the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http
import json
import logging
import math
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping

from sandboxer.access.connections import Front, Slot
from sandboxer.edges.http.problems import PROBLEM_JSON
from sandboxer.kernel.ids import new_id
from sandboxer.wire.words import PROBLEM_TYPE_PREFIX

log = logging.getLogger(__name__)
# How long new connections are accepted before others get their turn.
TURN_S = 0.001
# How many new connections with a first byte get a transport and a protocol in one turn.
SPOKEN_AT_ONCE = 16
# The pause when descriptors or memory ran out, because the queue stays readable all the time.
REST_S = 0.2
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_RESET = struct.pack("ii", 1, 0)
CALLER, SANDBOX, PLATFORM = "caller", "sandbox", "platform"
_TRY_LATER = frozenset({429, 503, 504})
Make = Callable[[Slot], asyncio.BaseProtocol]


class Silent:
    """Holds the slot of a connection until its first byte."""

    __slots__ = ("_acceptor", "deadline", "slot", "sock")

    def __init__(self, acceptor: Acceptor, sock: socket.socket, deadline: float) -> None:
        self._acceptor = acceptor
        self.sock = sock
        self.deadline = deadline
        self.slot: Slot | None = None

    def overdue(self) -> None:
        self._acceptor.forget(self)
        self.leave()

    def send_away(self) -> None:
        """Resets the connection, so that nothing is left of it in the kernel either."""
        self._acceptor.forget(self)
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.leave()

    def leave(self) -> None:
        if self.slot is not None:
            self.slot.leave()
        self.sock.close()

    def is_ending(self) -> bool:
        return False


class Acceptor:
    """Accepts connections on `listening` until it is closed; `make` gives a protocol to one that has sent a
    byte.
    """

    def __init__(self, listening: socket.socket, front: Front, make: Make) -> None:
        self._loop = asyncio.get_running_loop()
        self._listening = listening
        self._front = front
        self._make = make
        self._silent: dict[int, Silent] = {}
        self._watch = select.epoll()
        self._tasks: set[asyncio.Task[None]] = set()
        self._rest: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._loop.add_reader(listening.fileno(), self._accept)
        self._loop.add_reader(self._watch.fileno(), self._listen_to_them)

    def close(self) -> None:
        if self._watch.closed:
            return
        if self._rest is not None:
            self._rest.cancel()
        self._loop.remove_reader(self._listening.fileno())
        self._loop.remove_reader(self._watch.fileno())
        for silent in list(self._silent.values()):
            silent.leave()
        self._silent.clear()
        self._watch.close()

    async def wait_closed(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)

    def forget(self, silent: Silent) -> None:
        # Closing a socket takes it out of the poll object.
        self._silent.pop(silent.sock.fileno(), None)

    def _accept(self) -> None:
        ends = time.monotonic() + TURN_S
        while time.monotonic() < ends:
            try:
                sock, peer = self._listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._pause(error)
                    return
                # The connection is already gone.
                continue
            self._take(sock, peer)

    def _take(self, sock: socket.socket, peer: object) -> None:
        sock.setblocking(False)
        silent = Silent(self, sock, self._loop.time() + self._front.patience.first_byte_s)
        silent.slot = self._front.enter(str(peer[0]) if isinstance(peer, tuple) else None, silent)
        if silent.slot is None:
            with contextlib.suppress(OSError):
                sock.send(too_many_connections())
            sock.close()
            return
        self._silent[sock.fileno()] = silent
        self._watch.register(sock.fileno(), select.EPOLLIN)

    def _listen_to_them(self) -> None:
        for number, _ in self._watch.poll(0, SPOKEN_AT_ONCE):
            silent = self._silent.pop(number, None)
            if silent is None:
                continue
            self._watch.unregister(number)
            self._begin(silent)

    def _begin(self, silent: Silent) -> None:
        """Handles a connection that has sent a byte, or is gone."""
        slot = silent.slot
        try:
            has_spoken = bool(silent.sock.recv(1, socket.MSG_PEEK))
        except OSError:
            has_spoken = False
        if slot is None or not has_spoken:
            silent.leave()
            return
        # It must not be closed for others before its protocol exists.
        slot.serves()
        silent.deadline = math.inf
        task = self._loop.create_task(self._hand_over(silent, slot), name="connection")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _hand_over(self, silent: Silent, slot: Slot) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: self._make(slot), silent.sock)
        except Exception:
            # An outermost step: one connection that cannot be served must not end the others.
            log.exception("could not take on a connection")
            silent.leave()

    def _pause(self, error: OSError) -> None:
        log.warning("nobody is accepted for a moment: %s", error)
        self._loop.remove_reader(self._listening.fileno())
        self._rest = self._loop.call_later(REST_S, self._resume)

    def _resume(self) -> None:
        self._loop.add_reader(self._listening.fileno(), self._accept)


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    fault: str,
    next_step: str,
    facts: Mapping[str, object] | None = None,
) -> bytes:
    """Returns an answer that closes the connection: the rest of a refused request is not worth reading."""
    members = {
        **{name: value for name, value in (facts or {}).items() if isinstance(value, str | int)},
        "type": PROBLEM_TYPE_PREFIX + code,
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "detail": detail,
        "code": code,
        "fault": fault,
        "next_step": next_step,
        "request_id": new_id("req"),
    }
    headers = {"content-type": PROBLEM_JSON, "cache-control": "no-store"}
    if status in _TRY_LATER:
        headers["retry-after"] = str((facts or {}).get("retry_after_s", 1))
    return message(status, headers, json.dumps(members).encode())


def bad_request(why: str, status: int = 400) -> bytes:
    return problem(
        status,
        "bad_request",
        f"The request was not passed on: {why}.",
        fault=CALLER,
        next_step="Send a plain HTTP/1.1 request.",
    )


def too_slow() -> bytes:
    return problem(
        408,
        "too_slow",
        "The request came too slowly.",
        fault=CALLER,
        next_step="Send it without long pauses.",
    )


def too_many_connections() -> bytes:
    return problem(
        503,
        "too_many_connections",
        "Too many connections are open.",
        fault=CALLER,
        next_step="Close some, or use them for several requests.",
    )


def message(status: int, headers: Mapping[str, str], body: bytes) -> bytes:
    phrase = http.HTTPStatus(status).phrase
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    lines += [f"content-length: {len(body)}", "connection: close", "", ""]
    return "\r\n".join(lines).encode("latin-1", "replace") + body
