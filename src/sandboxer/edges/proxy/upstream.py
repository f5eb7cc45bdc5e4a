"""Upstreams are connections to ports inside sandboxes, kept open for further requests. Their number per
sandbox is limited, so that a tenant cannot exhaust the host. They are dropped when the sandbox stops
answering.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from sandboxer.access.ports.targets import Again, MayWake, Passages, Target
from sandboxer.backends.guest import Connection, HandedOver, HandsOver
from sandboxer.kernel.errors import BackendLost, NoCapacity, SandboxerError
from sandboxer.kernel.tasks import TaskOwner

# The most connections to one sandbox, including WebSockets and idle ones; the backend allows more, for
# commands.
STREAMS = 64
WAITING = 256
WAIT_S = 10.0
# A server inside may close an idle connection at any time; closing it early ourselves avoids races.
IDLE_S = 30.0
WRITE_BUFFER = 128 * 1024

Key = tuple[str, int]


class User(Protocol):
    """Whoever uses an upstream right now."""

    def upstream_data(self, data: bytes) -> None: ...

    def upstream_lost(self) -> None: ...

    def upstream_full(self) -> None: ...

    def upstream_drained(self) -> None: ...


class Upstream(asyncio.Protocol):
    __slots__ = ("_closed", "idle_since", "is_lost", "key", "pool", "requests", "transport", "user")

    def __init__(self, key: Key, pool: Pool, closed: Callable[[], None]) -> None:
        self.key = key
        self.pool = pool
        self._closed = closed
        self.transport: asyncio.Transport
        self.user: User | None = None
        self.requests = 0
        self.idle_since = 0.0
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not a subclass.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER)

    def data_received(self, data: bytes) -> None:
        if self.user is None:
            # Unsolicited bytes: it is out of step, and its next answer could be taken for another's.
            self.close()
        else:
            self.user.upstream_data(data)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._closed()
        self.pool.lost(self)
        user, self.user = self.user, None
        if user is not None:
            user.upstream_lost()

    def pause_writing(self) -> None:
        if self.user is not None:
            self.user.upstream_full()

    def resume_writing(self) -> None:
        if self.user is not None:
            self.user.upstream_drained()

    def close(self) -> None:
        """Closes at once, without telling its user."""
        self.user = None
        self.transport.abort()


class Pool:
    def __init__(self, passages: Passages, tasks: TaskOwner, *, streams: int = STREAMS) -> None:
        self._passages = passages
        self._tasks = tasks
        self.streams = streams
        self._idle: dict[Key, list[Upstream]] = {}
        # How many are open or being opened, by sandbox.
        self.open_streams: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._all: set[Upstream] = set()
        self._loop = asyncio.get_running_loop()
        passages.on_leave(self.drop)

    def take(self, key: Key) -> Upstream | None:
        """Returns an idle connection, if there is one."""
        idle = self._idle.get(key)
        while idle:
            found = idle.pop()
            if not found.transport.is_closing():
                return found
        return None

    def give_back(self, upstream: Upstream) -> None:
        """Takes back a connection that has answered completely and may be used again."""
        upstream.user = None
        sandbox_id = upstream.key[0]
        if upstream.transport.is_closing():
            return
        # It was halted if the last piece of its answer was more than the client took.
        upstream.transport.resume_reading()
        upstream.idle_since = self._loop.time()
        self._idle.setdefault(upstream.key, []).append(upstream)
        if sandbox_id in self._waiting:
            self._wake(sandbox_id)

    async def get(
        self,
        target: Target,
        again: Again | None = None,
        *,
        may_wake: MayWake | None = None,
        fresh: bool = False,
    ) -> Upstream:
        """Returns an idle connection, or a new one if there is none or `fresh` is set. Raises what
        `Passages.dial` raises.
        """
        key = (target.sandbox_id, target.port)
        while True:
            found = None if fresh else self.take(key)
            if found is not None:
                return found
            if self.open_streams.get(key[0], 0) < self.streams or self._drop_idle(key[0]):
                return await self._dial(target, again, may_wake)
            await self._wait(key[0])

    def lost(self, upstream: Upstream) -> None:
        self._all.discard(upstream)
        if (idle := self._idle.get(upstream.key)) is not None:
            if upstream in idle:
                idle.remove(upstream)
            if not idle:
                del self._idle[upstream.key]
        self._released(upstream.key[0])

    def drop(self, sandbox_id: str) -> None:
        """Closes the idle connections of a sandbox that no longer answers."""
        for key in [key for key in self._idle if key[0] == sandbox_id]:
            for upstream in self._idle.pop(key):
                upstream.close()

    def sweep(self, now: float) -> None:
        for idle in list(self._idle.values()):
            for upstream in [one for one in idle if now - one.idle_since > IDLE_S]:
                upstream.close()

    def close(self) -> None:
        for upstream in list(self._all):
            upstream.close()

    async def _dial(self, target: Target, again: Again | None, may_wake: MayWake | None) -> Upstream:
        sandbox_id = target.sandbox_id
        self.open_streams[sandbox_id] = self.open_streams.get(sandbox_id, 0) + 1
        made: Upstream | None = None
        try:
            connection, target = await self._passages.dial(target, again, may_wake)
            handed = await self._hand_over(connection)
            if handed.received:
                handed.sock.close()
                handed.closed()
                raise BackendLost(why="what listens there speaks first, which no HTTP server does")
            upstream = Upstream((sandbox_id, target.port), self, handed.closed)
            self._all.add(upstream)
            await self._loop.create_unix_connection(lambda: upstream, sock=handed.sock)
            made = upstream
            return made
        finally:
            if made is None:
                self._released(sandbox_id)

    async def _hand_over(self, connection: Connection) -> HandedOver:
        if isinstance(connection, HandsOver):
            return connection.hand_over()
        near, far = socket.socketpair()
        near.setblocking(False)
        self._tasks.start(_bridge(connection, far), name="bridge to a port")
        return HandedOver(near, b"", lambda: None)

    async def _wait(self, sandbox_id: str) -> None:
        waiting = self._waiting.setdefault(sandbox_id, deque())
        full = NoCapacity(resource="streams", why=f"{self.streams} connections to this sandbox are in use")
        if len(waiting) >= WAITING:
            raise full
        mine = self._loop.create_future()
        waiting.append(mine)
        try:
            async with asyncio.timeout(WAIT_S):
                await mine
        except TimeoutError:
            raise full from None
        finally:
            if mine in waiting:
                waiting.remove(mine)
            if not waiting:
                self._waiting.pop(sandbox_id, None)

    def _released(self, sandbox_id: str) -> None:
        if (left := self.open_streams.get(sandbox_id, 0) - 1) > 0:
            self.open_streams[sandbox_id] = left
        else:
            self.open_streams.pop(sandbox_id, None)
        self._wake(sandbox_id)

    def _wake(self, sandbox_id: str) -> None:
        waiting = self._waiting.get(sandbox_id)
        while waiting:
            first = waiting.popleft()
            if not first.done():
                first.set_result(None)
                return

    def _drop_idle(self, sandbox_id: str) -> bool:
        """Closes one that is idle for another port. Returns True if there is room now."""
        for key, idle in self._idle.items():
            if key[0] == sandbox_id and idle:
                idle.pop().close()
                return True
        return False


async def _bridge(connection: Connection, sock: socket.socket) -> None:
    """Copies bytes both ways, for backends whose connections are not sockets."""
    reader, writer = await asyncio.open_unix_connection(sock=sock)

    async def inwards() -> None:
        while data := await reader.read(65536):
            await connection.write(data)

    async def outwards() -> None:
        while data := await connection.read():
            writer.write(data)
            await writer.drain()

    try:
        async with asyncio.TaskGroup() as group:
            ways = {group.create_task(inwards()), group.create_task(outwards())}
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
    except* (OSError, SandboxerError):
        pass
    finally:
        writer.close()
        await connection.close()
