"""Accepts a listener's connections, and keeps those that have not sent anything as bare sockets.

A silent connection costs only its descriptor and its slot: it has no transport, parser or task before its
first byte. One poll object watches all of them. The time for accepting in one turn is limited, so that others
are served while thousands arrive.

What a listener itself answers are whole messages that close the connection.

Opens the socket by which users of this machine reach the API: for root and one group, and nobody else.

Its folder and all above it must be root's alone to write: otherwise another user could put a socket of his
own in its place, and be taken for the platform.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import grp
import http
import json
import logging
import math
import os
import select
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from sandboxer.access.connections import Front, Slot
from sandboxer.backends.guest import HandedOver
from sandboxer.edges.http.problems import PROBLEM_JSON
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Conflict, InvalidRequest
from sandboxer.kernel.values import new_id
from sandboxer.wire.words import PROBLEM_TYPE_PREFIX

BACKLOG = 256
_CREDENTIALS = struct.Struct("iII")


@contextlib.contextmanager
def listen_for_users(path: Path, group: str) -> Iterator[socket.socket]:
    """Yields the listening socket; its file goes with it. Raises InvalidRequest, Conflict."""
    try:
        gid = grp.getgrnam(group).gr_gid
    except KeyError:
        why = f"this machine has no group {group} (groupadd --system {group})"
        raise InvalidRequest(field="socket_group", why=why) from None
    if not path.parent.exists():
        path.parent.mkdir(mode=0o755)
        path.parent.chmod(0o755)
    _demand_safe(path.parent)
    _remove_stale(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        before = os.umask(0o177)
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
        made = path.lstat()
        try:
            # Nobody can connect yet: it is root's alone until here, and nobody listens.
            os.chown(path, 0, gid, follow_symlinks=False)
            path.chmod(0o660)
            listening.listen(BACKLOG)
            yield listening
        finally:
            with contextlib.suppress(OSError):
                if path.lstat().st_ino == made.st_ino:
                    path.unlink()


def peer_uid(connection: socket.socket) -> int | None:
    """Returns which user opened a connection, as the kernel noted then; None for one from a network."""
    if connection.family != socket.AF_UNIX:
        return None
    said = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(said)[1])


def _demand_safe(folder: Path) -> None:
    for place in (folder, *folder.parents):
        found = place.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o022:
            why = f"{place} is not a folder that only root can write to"
            raise InvalidRequest(field="socket_path", why=why)


def _remove_stale(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise InvalidRequest(field="socket_path", why=f"{path} is there and is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trying:
        try:
            trying.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        else:
            hint = "Stop it (sandboxer down), or choose another place: SANDBOXER_SOCKET_PATH."
            raise Conflict(why=f"another server listens at {path}", hint=hint)


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
        address = str(peer[0]) if isinstance(peer, tuple) else None
        silent.slot = self._front.enter(address, silent, peer_uid(sock))
        if silent.slot is None:
            with contextlib.suppress(OSError):
                sock.send(too_many_connections())
            sock.close()
            return
        self._silent[sock.fileno()] = silent
        self._watch.register(sock.fileno(), select.EPOLLIN)

    def _listen_to_them(self) -> None:
        for number, _ in self._watch.poll(0, SPOKEN_AT_ONCE):
            if (silent := self._silent.get(number)) is None or silent.slot is None:
                continue
            self._watch.unregister(number)
            if silent.slot.rest_s:
                silent.deadline = math.inf
                self._loop.call_later(silent.slot.rest_s, self._begin, silent)
            else:
                self._begin(silent)

    def _begin(self, silent: Silent) -> None:
        """Handles a connection that has sent a byte, or is gone."""
        if self._silent.pop(silent.sock.fileno(), None) is None:
            # It was sent away while it had to wait.
            return
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


class _Arriving:
    """Holds the slot of a connection that was handed over, until it has its protocol."""

    __slots__ = ("_sock", "deadline")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.deadline = math.inf

    def overdue(self) -> None:
        self.send_away()

    def send_away(self) -> None:
        self._sock.close()

    def is_ending(self) -> bool:
        return False


async def serve_handed_over(
    handed: HandedOver,
    sandbox: Caller,
    front: Front,
    ended: Callable[[], None],
    make: Callable[[Slot, bytes], asyncio.BaseProtocol],
) -> None:
    """Serves a connection that programs in a sandbox made; `ended` is called once, when it is over."""

    def over() -> None:
        handed.closed()
        ended()

    slot = front.enter(None, _Arriving(handed.sock), sandbox=sandbox)
    if slot is None:
        with contextlib.suppress(OSError):
            handed.sock.send(too_many_connections())
        handed.sock.close()
        over()
        return
    slot.on_leave = over
    slot.serves()
    try:
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: make(slot, handed.received), handed.sock)
    except BaseException:
        slot.leave()
        handed.sock.close()
        raise


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
