"""Opens the SSH gateway on an open platform, and closes it with all its connections.

A `Door` is one connection: who may connect, whose key opens which sandbox, and what it may ask for then. Only
public keys are accepted. Passwords, agents, X11, remote forwards and tunnels are refused.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit
from weakref import WeakSet

import asyncssh

from sandboxer.access.connections import Slot
from sandboxer.access.ssh import HOST_KEY_FILE, Gateway, SshKey, fingerprint_of
from sandboxer.accounts.authority import demand, demand_active
from sandboxer.accounts.limits import client_address
from sandboxer.edges.http.disconnection import standing_of
from sandboxer.edges.ssh.channels import (
    INTAKE,
    BoundedChannel,
    Listener,
    Session,
    bounded_channel,
    refuse_elsewhere,
    refuse_no_path,
    to_port,
    to_socket,
    unread,
)
from sandboxer.edges.ssh.dependencies import Bounds, Crowd, Login, SshDependencies
from sandboxer.edges.ssh.sessions import asleep, serve_session
from sandboxer.edges.ssh.sftp import open_sftp
from sandboxer.identity.seal import create_private_file
from sandboxer.kernel.errors import SandboxerError, Unauthenticated
from sandboxer.kernel.tasks import own_tasks
from sandboxer.sandboxes.lifecycle import State
from sandboxer.wire.operations.declaration import Scope
from sandboxer.wiring import Platform

log = logging.getLogger(__name__)
LOOK_EVERY_S = 0.5
KEEPALIVE_S = 30
# Without SHA-1, which old clients use with RSA keys.
SIGNATURES = [
    "ssh-ed25519",
    "sk-ssh-ed25519@openssh.com",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "rsa-sha2-512",
    "rsa-sha2-256",
]
# In these states there are no processes, and none will start by itself.
_OVER = frozenset(
    {State.STOPPED, State.REAPED, State.FAILED, State.EXPIRED, State.DESTROYING, State.DESTROYED}
)


class Door(asyncssh.SSHServer):
    def __init__(self, dependencies: SshDependencies) -> None:
        self._dependencies = dependencies
        self._conn: asyncssh.SSHServerConnection | None = None
        self._address = ""
        self._is_counted = False
        self._offers = 0
        self._opened_by: SshKey | None = None
        self.login: Login | None = None
        self._channels = 0
        self._sessions: WeakSet[Session] = WeakSet()
        self._was_awake = False
        self._slot: Slot | None = None
        # The login has a time limit of its own; afterwards a connection may be quiet for long.
        self.deadline = math.inf

    # -- coming and going

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._conn = conn
        peer = conn.get_extra_info("peername")
        self._address = client_address(str(peer[0]) if peer else None, (), ())
        self._slot = self._dependencies.platform.front.enter(str(peer[0]) if peer else None, self)
        if self._slot is None or not self._dependencies.crowd.may_knock(self._address, _now()):
            conn.abort()
            return
        conn.get_extra_info(INTAKE).slot = self._slot
        self._is_counted = True
        self._dependencies.crowd.knocked(self._address)
        self._dependencies.doors.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self._slot is not None:
            self._slot.leave()
        self._dependencies.doors.discard(self)
        if self._is_counted:
            self._is_counted = False
            while self._channels:
                self._close_channel()
            login = self.login
            inside = None if login is None else (login.sandbox_id, login.root)
            self._dependencies.crowd.left(self._address, inside)

    def overdue(self) -> None:
        self.send_away()

    def send_away(self) -> None:
        """Closes it because another connection needs its place; it has not logged in."""
        if self._conn is not None:
            self._conn.abort()

    def is_ending(self) -> bool:
        return False

    async def look(self) -> None:
        """Ends the connection if what opened it is no longer valid, or its sandbox has no
        processes any more.
        """
        if self._conn is not None and unread(self._conn) > self._dependencies.crowd.bounds.unread_bytes:
            # It keeps asking and reads no answers, so no message would reach it.
            self._conn.abort()
            return
        if self.login is None:
            return
        try:
            await self.login.standing()
        except SandboxerError as error:
            self.hang_up(str(error))
            return
        self._look_inside(self.login)

    def _look_inside(self, login: Login) -> None:
        """Ends the connection if its sandbox has stopped. Processes of a frozen sandbox go on."""
        sandbox = self._dependencies.platform.sandboxes.repository.peek(login.sandbox_id)
        if sandbox is not None and sandbox.state not in _OVER:
            self._was_awake = True
        elif self._was_awake:
            self.hang_up(asleep(login.sandbox_id, "gone" if sandbox is None else sandbox.state.value))

    def hang_up(self, why: str) -> None:
        """Ends the connection. The reason is also written to every shell and command, which are closed before
        the client reads it.
        """
        if self._conn is None:
            return
        why = why if why.startswith("sandboxer:") else f"sandboxer: {why}"
        for session in self._sessions:
            session.tell(why)
        self._conn.disconnect(asyncssh.DISC_BY_APPLICATION, why)
        self._conn.abort()

    # -- who is there

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    async def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Answers alike, by the same steps, if there is no such sandbox and if it is somebody else's."""
        self._offers += 1
        if self._offers > self._dependencies.crowd.bounds.offers:
            self.hang_up("too many keys were offered")
            return False
        found = self._dependencies.platform.access.ssh.keys.opening(username, fingerprint_of(key.public_data))
        if found is None or not await self._may_enter(found, username):
            self._dependencies.crowd.refused(self._address, _now())
            return False
        self._opened_by = found
        return True

    async def auth_completed(self) -> None:
        conn, key = self._conn, self._opened_by
        if conn is None or key is None or not self._is_counted:
            self.hang_up("nothing was opened")
            return
        sandbox_id = str(conn.get_extra_info("username"))
        root = await self._root_of(key)
        if not self._dependencies.crowd.may_enter(sandbox_id, root):
            # Others have logged in since this one was checked.
            self.hang_up("too many connections are open")
            return
        self._dependencies.crowd.entered(self._address, sandbox_id, root)
        if self._slot is not None:
            self._slot.serves()
            self._slot.proven(root)
        standing = self._standing(key, sandbox_id)
        self.login = Login(self._dependencies, sandbox_id, key, root, self._address, standing, conn.is_closed)
        try:
            # Counted here because the connection is recorded; this covers its first request.
            await self.login.count()
        except SandboxerError as error:
            self.hang_up(f"{error} {error.next_step}")
            return
        self.login.prepaid = 1
        await self._dependencies.platform.access.ssh.keys.tell_of(key, sandbox_id, self._address)

    async def _may_enter(self, key: SshKey, sandbox_id: str) -> bool:
        if not self._dependencies.crowd.may_enter(sandbox_id, await self._root_of(key)):
            return False
        try:
            await self._standing(key, sandbox_id)()
        except SandboxerError as error:
            log.info("ssh to %s refused: %s", sandbox_id, error)
            return False
        return True

    async def _root_of(self, key: SshKey) -> str:
        """Returns the account it is counted for: all delegated keys of an account together get no more than
        the account.
        """
        return (await self._dependencies.platform.authorities.of(key.caller())).root

    def _standing(self, key: SshKey, sandbox_id: str) -> Callable[[], Awaitable[None]]:
        platform = self._dependencies.platform
        credentials = standing_of(platform, key.caller(), None, since=key.created_at)

        async def check() -> None:
            if why := platform.access.ssh.keys.why_shut(key, sandbox_id):
                raise Unauthenticated(why=why)
            await credentials()
            authority = await platform.authorities.of(key.caller())
            if authority.is_delegated:
                demand(authority, Scope.EXEC, now=platform.clock.now())
            else:
                demand_active(authority, now=platform.clock.now())

        return check

    # -- channels: shells, commands and files; forwards to the sandbox itself, and nowhere else

    def session_requested(self) -> tuple[BoundedChannel, Session]:
        conn, login = self._let_in()
        self._open_channel(login)
        channel = bounded_channel(conn, self._dependencies.crowd.bounds.window_bytes)
        session = Session(partial(serve_session, login), partial(open_sftp, login), self._close_channel)
        self._sessions.add(session)
        return channel, session

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> Coroutine[None, None, asyncssh.SSHTCPSession[bytes]]:
        del orig_host, orig_port
        _, login = self._let_in()
        refuse_elsewhere(dest_host, dest_port)
        self._open_channel(login)
        return to_port(login, dest_port, self._close_channel)

    def unix_connection_requested(
        self, dest_path: str
    ) -> Coroutine[None, None, asyncssh.SSHUNIXSession[bytes]]:
        _, login = self._let_in()
        refuse_no_path(dest_path)
        self._open_channel(login)
        return to_socket(login, dest_path, self._close_channel)

    def _let_in(self) -> tuple[asyncssh.SSHServerConnection, Login]:
        if self._conn is None or self.login is None:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, "nobody is there")
        return self._conn, self.login

    def _open_channel(self, login: Login) -> None:
        if not self._dependencies.crowd.may_open(login.root, self._channels):
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_RESOURCE_SHORTAGE, "too many channels are open")
        self._channels += 1
        self._dependencies.crowd.opened(login.root)

    def _close_channel(self) -> None:
        # Channels that were open at the end of the connection are already counted.
        if self._channels > 0 and self.login is not None:
            self._channels -= 1
            self._dependencies.crowd.closed(self.login.root)


def _now() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def open_gateway(
    platform: Platform, listening: socket.socket, *, bounds: Bounds | None = None
) -> AsyncIterator[Gateway]:
    """Serves on a socket that is already bound."""
    # The library would log every command, and commands are private.
    logging.getLogger("asyncssh").setLevel(logging.WARNING)
    dependencies = SshDependencies(platform, Crowd(bounds or Bounds()))
    key = load_host_key(platform.settings.state_dir)
    acceptor = await asyncssh.listen(
        tunnel=Listener(listening, platform.front),
        server_factory=lambda: Door(dependencies),
        server_host_keys=[key],
        encoding=None,
        window=dependencies.crowd.bounds.window_bytes,
        public_key_auth=True,
        password_auth=False,
        kbdint_auth=False,
        host_based_auth=False,
        gss_host=None,
        agent_forwarding=False,
        x11_forwarding=False,
        compression_algs=["none"],
        signature_algs=SIGNATURES,
        login_timeout=dependencies.crowd.bounds.login_s,
        keepalive_interval=KEEPALIVE_S,
        keepalive_count_max=4,
        server_version="sandboxer",
    )
    gateway = _gateway(platform, listening, key)
    platform.access.ssh.gateway = gateway
    try:
        async with own_tasks() as tasks:
            tasks.start(_look_after(dependencies), name="ssh connections")
            yield gateway
    finally:
        platform.access.ssh.gateway = None
        acceptor.close()
        for door in list(dependencies.doors):
            door.hang_up("the platform is stopping")
        await acceptor.wait_closed()


def load_host_key(folder: Path) -> asyncssh.SSHKey:
    """Returns the host key, which is made once and readable only by this user."""
    path = folder / HOST_KEY_FILE
    if not path.exists():
        made = asyncssh.generate_private_key("ssh-ed25519", comment="sandboxer")
        create_private_file(path, made.export_private_key().decode("ascii"))
    return asyncssh.import_private_key(path.read_text("ascii"))


async def _look_after(dependencies: SshDependencies) -> None:
    """Ends within a second whatever is no longer allowed."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        for door in list(dependencies.doors):
            await door.look()
        dependencies.crowd.sweep(loop.time())
        dependencies.rate_limit.sweep(time.monotonic())


def _gateway(platform: Platform, listening: socket.socket, key: asyncssh.SSHKey) -> Gateway:
    address, port = listening.getsockname()[:2]
    public = urlsplit(platform.settings.public_url or "").hostname
    host = public or {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    line = key.export_public_key().decode("ascii").split()
    return Gateway(host, port, f"{line[0]} {line[1]}", fingerprint_of(key.public_data))
