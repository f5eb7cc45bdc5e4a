"""Asks the platform by Python's own HTTP, over the network or a unix socket, and turns refusals into the
named states of a run.

A request is sent once. What is to be repeated, and when, is decided by the table of steps and nowhere else.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from sandboxer.sdk.agent.steps import Blocked, Blocker

# Headers of a signature: of method, path with query, and the body's SHA-256.
Signing = Callable[[str, str, str], Mapping[str, str]]
# What the server takes to answer, beyond what a request asks it to wait.
PATIENCE_S = 60.0
MOST_BYTES = 16 * 1024 * 1024
# The end of the year 9999.
_LAST_MOMENT = 253_402_300_800
# Said where the platform names no time.
_BUSY_PAUSE_S = 1.0
# Nobody waits longer at once, nor keeps more words, whatever a platform says.
LONGEST_RETRY_S = 600.0
MOST_WORDS = 2000


class HeldUp(Exception):
    """The platform did not do it, for a reason that has a name."""

    def __init__(self, blocked: Blocked, status: int = 0, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(blocked.why)
        self.blocked = blocked
        self.status = status
        self.problem = problem or {}

    def fact(self, name: str) -> Any:
        facts = self.problem.get("facts")
        if isinstance(facts, Mapping) and name in facts:
            return facts[name]
        return self.problem.get(name)


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            why = f"the answer is no JSON: {self.content[:80]!r}"
            raise HeldUp(Blocked(Blocker.UNAVAILABLE, why)) from None


class Line:
    """One platform, as one caller."""

    def __init__(
        self,
        url: str,
        *,
        socket_path: str | None = None,
        signing: Signing | None = None,
        trust: ssl.SSLContext | None = None,
        is_inside: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.url = url
        self._parts = urlsplit(url)
        self._socket_path = socket_path
        self._signing = signing
        self._trust = trust
        self._is_inside = is_inside
        self._now = now

    def ask(
        self,
        method: str,
        target: str,
        body: object = None,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        waits_s: float = 0.0,
        also: tuple[int, ...] = (),
        is_signed: bool = True,
    ) -> Reply:
        """Returns the answer, if its status is below 400 or in `also`. Raises HeldUp."""
        raw = content if content is not None else b"" if body is None else json.dumps(body).encode()
        head = {"content-length": str(len(raw)), **(headers or {})}
        if body is not None:
            head["content-type"] = "application/json"
        if self._signing is not None and is_signed:
            head |= self._signing(method, target, hashlib.sha256(raw).hexdigest())
        reply = self._sent(method, target, raw, head, PATIENCE_S + waits_s)
        if reply.status < 400 or reply.status in also:
            return reply
        raise refusal_of(reply, is_inside=self._is_inside, now=self._now)

    def _sent(self, method: str, target: str, raw: bytes, head: Mapping[str, str], within_s: float) -> Reply:
        connection = self._connection(within_s)
        try:
            with _answered_within(connection, within_s):
                connection.request(method, target, raw, dict(head))
                answer = connection.getresponse()
                content = answer.read(MOST_BYTES)
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, named, content)
        except FileNotFoundError as error:
            blocker = Blocker.ORPHAN if self._is_inside else Blocker.UNAVAILABLE
            raise HeldUp(Blocked(blocker, f"there is no socket to ask by: {error}")) from None
        # A ValueError is of an id that no request can carry.
        except (OSError, http.client.error, ValueError) as error:
            said = getattr(error, "strerror", None) or str(error) or type(error).__name__
            why = f"{self.url} did not answer {method} {target.partition('?')[0]}: {said}"
            raise HeldUp(Blocked(Blocker.UNAVAILABLE, why)) from None
        finally:
            connection.close()

    def _connection(self, within_s: float) -> http.client.HTTPConnection:
        if self._socket_path is not None:
            return _BySocket(self._socket_path, within_s)
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=within_s, context=self._trust)
        return http.client.HTTPConnection(host, port, timeout=within_s)


@contextmanager
def _answered_within(connection: http.client.HTTPConnection, within_s: float) -> Iterator[None]:
    """Ends an exchange that goes on for longer: a byte now and then keeps every single read alive."""
    connection.connect()
    # The connection gives it up where the answer says that it is the last.
    sock = connection.sock
    is_over = threading.Event()

    def end() -> None:
        # First: a head that is cut off reads like a whole one.
        is_over.set()
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(within_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield
        if is_over.is_set():
            raise TimeoutError(f"it took longer than {within_s:g} s")
    finally:
        timer.cancel()


class _BySocket(http.client.HTTPConnection):
    def __init__(self, path: str, within_s: float) -> None:
        super().__init__("localhost", timeout=within_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def refusal_of(reply: Reply, *, is_inside: bool, now: Callable[[], float] = time.time) -> HeldUp:
    """Returns the named state of an answer of 400 and above."""
    try:
        problem = json.loads(reply.content)
    except (ValueError, RecursionError):
        problem = None
    if not isinstance(problem, dict):
        problem = {"title": f"HTTP {reply.status}"}
    held = HeldUp(Blocked(Blocker.REFUSED, _words(problem)), reply.status, problem)
    blocker = _blocker(reply.status, held, is_inside)
    changes: dict[str, Any] = {}
    if blocker is Blocker.CLOCK_SKEW and (server := _seconds(held.fact("server_time"))) is not None:
        changes["clock_offset_s"] = server - now()
    held.blocked = Blocked(blocker, held.blocked.why, _retry_after(reply, blocker), changes=changes)
    return held


def _blocker(status: int, held: HeldUp, is_inside: bool) -> Blocker:
    reason = held.fact("reason")
    if is_inside and (status == 401 or reason == "not_active"):
        return Blocker.ORPHAN
    if reason in ("clock_skew", "server_clock") or reason == "before_start":
        return Blocker.CLOCK_SKEW if reason == "clock_skew" else Blocker.UNAVAILABLE
    if status == 409 and reason == "in_flight":
        return Blocker.RACE
    if status == 429:
        return Blocker.RATE_LIMIT
    if status == 401:
        return Blocker.LOST_KEY
    if status == 402:
        return Blocker.NO_MONEY
    return Blocker.UNAVAILABLE if status >= 500 or status == 408 else Blocker.REFUSED


def _retry_after(reply: Reply, blocker: Blocker) -> float | None:
    said = reply.headers.get("retry-after", "")
    if blocker in (Blocker.RATE_LIMIT, Blocker.UNAVAILABLE) and said.isdecimal():
        return min(float(said), LONGEST_RETRY_S)
    return _BUSY_PAUSE_S if blocker is Blocker.RATE_LIMIT else None


def _words(problem: Mapping[str, Any]) -> str:
    said = str(problem.get("detail") or problem.get("title") or "it said no")
    if problem.get("next_step"):
        said = f"{said}{'' if said.endswith(('.', '!', '?')) else '.'} {problem['next_step']}"
    return said[:MOST_WORDS]


def _seconds(value: object) -> float | None:
    """Returns a moment after 1970 that every clock can show; None: it is none."""
    try:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        found = float(value) if is_number else datetime.fromisoformat(str(value)).timestamp()  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) and 0 <= found < _LAST_MOMENT else None
