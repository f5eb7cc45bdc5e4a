"""Reaches what runs in a container: one program of ours inside carries the lines to its supervisor. It is
started with the first of them.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from sandboxer.backends.contract import Presence
from sandboxer.backends.docker.container import CARRIER, Seen, name_of, seen
from sandboxer.backends.docker.engine import Answer, Engine, message_of
from sandboxer.backends.docker.lines import Lines, Outputs
from sandboxer.backends.supervisor.line import Gate
from sandboxer.backends.supervisor.marked import MarkedGuest
from sandboxer.kernel.errors import BackendLost, ProvisionFailed, Unavailable

BOOT_S = 30.0
# How long what carries lines stays inside when there are none.
IDLE_S = 60.0


async def look(engine: Engine, sandbox_id: str) -> Seen | None:
    """Returns what the engine says of a sandbox; None if there is none. Raises Unavailable."""
    answer = await engine.call("GET", f"/containers/{name_of(sandbox_id)}/json", accepts=(404,))
    return None if answer.status == 404 else read(answer)


def read(answer: Answer) -> Seen:
    try:
        return seen(answer.content)
    except (LookupError, TypeError, ValueError) as error:
        raise Unavailable(why=f"the engine describes a container in other words: {error!r}") from error


async def boot(engine: Engine, sandbox_id: str, secret: bytes) -> None:
    """Starts the container; returns once its supervisor listens. Raises ProvisionFailed, Unavailable."""
    name = name_of(sandbox_id)
    streams = await engine.hijack(f"/containers/{name}/attach?stream=1&stdin=1&stdout=1&stderr=1")
    reader, writer = streams
    try:
        answer = await engine.call("POST", f"/containers/{name}/start", accepts=(304, 404, 409, 500))
        if answer.status not in (204, 200, 304):
            raise ProvisionFailed(step="start", why=message_of(answer))
        writer.write(secret)
        outputs = Outputs()
        async with asyncio.timeout(BOOT_S):
            while data := await reader.read(4096):
                if b"1" in b"".join(outputs.feed(data)):
                    return
        said = outputs.last_words.decode(errors="replace").strip()
        raise ProvisionFailed(step="boot", why=said or "the sandbox ended at once")
    except TimeoutError:
        raise ProvisionFailed(step="boot", why=f"the supervisor did not listen within {BOOT_S:g} s") from None
    except OSError as error:
        raise Unavailable(why=f"the engine went while a sandbox started: {error}") from error
    finally:
        writer.close()


@dataclass(slots=True)
class _Reached:
    """A sandbox that was talked to."""

    guest: MarkedGuest
    making: asyncio.Lock = field(default_factory=asyncio.Lock)
    lines: Lines | None = None
    secret: bytes = b""
    is_frozen: bool = False
    idle: asyncio.TimerHandle | None = None


class Reach:
    def __init__(self, engine: Engine, *, streams: int) -> None:
        self._engine = engine
        self._streams = streams
        self._reached: dict[str, _Reached] = {}

    def guest(self, sandbox_id: str) -> MarkedGuest:
        return self._of(sandbox_id).guest

    def set_frozen(self, sandbox_id: str, is_frozen: bool) -> None:
        """What stands still answers nothing: nobody waits for it."""
        self._of(sandbox_id).is_frozen = is_frozen

    async def forget(self, sandbox_id: str) -> None:
        """Ends all lines to a sandbox."""
        if (reached := self._reached.pop(sandbox_id, None)) is not None:
            await _let_go(reached)

    async def close(self) -> None:
        for sandbox_id in list(self._reached):
            await self.forget(sandbox_id)

    def _of(self, sandbox_id: str) -> _Reached:
        if (known := self._reached.get(sandbox_id)) is None:
            guest = MarkedGuest(self._door(sandbox_id), gate=Gate(self._streams))
            known = self._reached[sandbox_id] = _Reached(guest)
        return known

    def _door(self, sandbox_id: str) -> Callable[[], Awaitable[socket.socket]]:
        async def enter() -> socket.socket:
            reached = self._of(sandbox_id)
            if reached.is_frozen:
                raise _frozen()
            lines = reached.lines
            if lines is None or lines.is_closed:
                lines = await self._carried(sandbox_id, reached)
            sock = lines.open()
            sock.send(reached.secret)
            return sock

        return enter

    async def _carried(self, sandbox_id: str, reached: _Reached) -> Lines:
        async with reached.making:
            if reached.lines is not None and not reached.lines.is_closed:
                return reached.lines
            found = await look(self._engine, sandbox_id)
            if found is None:
                # Nobody comes back to it.
                self._reached.pop(sandbox_id, None)
                raise BackendLost(why="the sandbox is gone")
            if found.presence is Presence.FROZEN:
                raise _frozen()
            if found.presence is not Presence.RUNNING:
                raise BackendLost(why="the sandbox is not running")
            reached.secret = found.secret
            reached.lines = await self._start_carrier(sandbox_id, reached)
            return reached.lines

    async def _start_carrier(self, sandbox_id: str, reached: _Reached) -> Lines:
        try:
            made = await self._engine.call("POST", f"/containers/{name_of(sandbox_id)}/exec", body=CARRIER)
            number = made.content["Id"]
            streams = await self._engine.hijack(f"/exec/{number}/start", {"Detach": False, "Tty": False})
        except (Unavailable, LookupError, TypeError) as error:
            raise BackendLost(why=f"nothing can be started in the sandbox: {error}") from error
        lines = Lines(streams, most=self._streams + 8)
        if reached.idle is not None:
            reached.idle.cancel()
        loop = asyncio.get_running_loop()

        def rest() -> None:
            """Ends what carries lines once there are none; the next dial starts another."""
            if lines.is_closed:
                return
            if lines.is_idle:
                lines.end()
            else:
                reached.idle = loop.call_later(IDLE_S, rest)

        reached.idle = loop.call_later(IDLE_S, rest)
        return lines


async def _let_go(reached: _Reached) -> None:
    if reached.idle is not None:
        reached.idle.cancel()
    if reached.lines is not None:
        await reached.lines.close()


def _frozen() -> Unavailable:
    return Unavailable(why="the sandbox is frozen, and its supervisor with it: thaw it first")
