"""One connection: who may knock, whose key opens which sandbox, and what it may ask for then.

Public keys only. All else is refused: passwords, agents, X11, remote and unix forwards, tunnels.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import asyncssh
from asyncssh.stream import SSHTCPStreamSession

from sandboxer.access.ssh.keys import SshKey
from sandboxer.access.ssh.public_keys import fingerprint_of
from sandboxer.accounts.authority import demand, demand_active
from sandboxer.accounts.limits import client_address
from sandboxer.accounts.scopes import Scope
from sandboxer.backends.guest import Connection
from sandboxer.edges.http.hanging_up import standing_of
from sandboxer.edges.ssh.house import House, Visit
from sandboxer.kernel.errors import SandboxerError, Unauthenticated
from sandboxer.sandboxes.access import ActivityKind

log = logging.getLogger(__name__)
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_PIECE = 65536


class Door(asyncssh.SSHServer):
    def __init__(self, house: House) -> None:
        self._house = house
        self._conn: asyncssh.SSHServerConnection | None = None
        self._address = ""
        self._is_counted = False
        self._offers = 0
        self._opened_by: SshKey | None = None
        self.visit: Visit | None = None
        self.channels = 0

    @property
    def most_channels(self) -> int:
        return self._house.crowd.bounds.channels

    # -- coming and going

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._conn = conn
        peer = conn.get_extra_info("peername")
        self._address = client_address(str(peer[0]) if peer else None, (), ())
        if not self._house.crowd.may_knock(self._address, _now()):
            conn.abort()
            return
        self._is_counted = True
        self._house.crowd.knocked(self._address)
        self._house.doors.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._house.doors.discard(self)
        if self._is_counted:
            self._is_counted = False
            self._house.crowd.left(self._address, None if self.visit is None else self.visit.sandbox_id)

    async def look(self) -> None:
        """End it if what opened it does not stand any more."""
        if self.visit is None:
            return
        try:
            await self.visit.standing()
        except SandboxerError as error:
            self.hang_up(str(error))

    def hang_up(self, why: str) -> None:
        if self._conn is not None:
            self._conn.disconnect(asyncssh.DISC_BY_APPLICATION, why)
            self._conn.abort()

    # -- who is there

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    async def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """The same answer, by the same steps, for no such sandbox and for somebody else's."""
        self._offers += 1
        if self._offers > self._house.crowd.bounds.offers:
            self.hang_up("too many keys were offered")
            return False
        found = self._house.platform.access.ssh.keys.opening(username, fingerprint_of(key.public_data))
        if found is None or not await self._may_enter(found, username):
            self._house.crowd.refused(self._address, _now())
            return False
        self._opened_by = found
        return True

    async def auth_completed(self) -> None:
        conn, key = self._conn, self._opened_by
        if conn is None or key is None or not self._is_counted:
            self.hang_up("nothing was opened")
            return
        sandbox_id = str(conn.get_extra_info("username"))
        self._house.crowd.entered(self._address, sandbox_id)
        self.visit = Visit(self._house, sandbox_id, key, self._address, self._standing(key, sandbox_id))
        await self._house.platform.access.ssh.keys.tell_of(key, sandbox_id, self._address)

    async def _may_enter(self, key: SshKey, sandbox_id: str) -> bool:
        if not self._house.crowd.may_enter(sandbox_id):
            return False
        try:
            await self._standing(key, sandbox_id)()
        except SandboxerError as error:
            log.info("ssh to %s refused: %s", sandbox_id, error)
            return False
        return True

    def _standing(self, key: SshKey, sandbox_id: str) -> Callable[[], Awaitable[None]]:
        platform = self._house.platform
        credentials = standing_of(platform, key.caller(), None)

        async def check() -> None:
            if not platform.access.ssh.keys.is_open(key, sandbox_id):
                raise Unauthenticated(why="the key was revoked or is over, or the sandbox is gone")
            await credentials()
            authority = await platform.authorities.of(key.caller())
            if authority.is_delegated:
                demand(authority, Scope.EXEC, now=platform.clock.now())
            else:
                demand_active(authority, now=platform.clock.now())

        return check

    # -- forwards: to the sandbox's own loopback, and nowhere else

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> asyncssh.SSHTCPSession[bytes]:
        del orig_host, orig_port
        if dest_host not in _LOOPBACK or self.visit is None or not 0 < dest_port < 65536:
            raise asyncssh.ChannelOpenError(
                asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED,
                "only localhost, the sandbox itself, can be reached",
            )
        return self._connected(self.visit, dest_port)  # type: ignore[return-value]

    async def _connected(self, visit: Visit, port: int) -> object:
        """Dialled before the client is told that it is open, so that a refusal is one."""
        if self.channels >= self.most_channels:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_RESOURCE_SHORTAGE, "too many channels are open")
        try:
            await visit.count()
            async with visit.guest(ActivityKind.PORT) as guest:
                inside = await guest.connect(port)
        except SandboxerError as error:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, str(error)) from None

        async def carry(reader: asyncssh.SSHReader[bytes], writer: asyncssh.SSHWriter[bytes]) -> None:
            self.channels += 1
            try:
                with visit.house.platform.sandboxes.room.activity.working(visit.sandbox_id):
                    await _carry(inside, reader, writer)
            finally:
                self.channels -= 1

        return SSHTCPStreamSession[bytes](carry)


async def _carry(
    inside: Connection, reader: asyncssh.SSHReader[bytes], writer: asyncssh.SSHWriter[bytes]
) -> None:
    async def inwards() -> None:
        while data := await reader.read(_PIECE):
            await inside.write(data)
        await inside.close_write()

    async def outwards() -> None:
        while data := await inside.read(_PIECE):
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(inwards())
            group.create_task(outwards())
    except* (SandboxerError, asyncssh.Error, OSError):
        # Either end went away; the other is told by the close below.
        pass
    finally:
        await inside.close()
        writer.close()


def _now() -> float:
    return asyncio.get_running_loop().time()
